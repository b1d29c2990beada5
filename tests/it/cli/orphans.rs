//! `fence` as the process that orphans are given to, as process 1 of a container is.

use tokio::process::Command;

use super::{Dev, binary, end, fence};

/// Becomes a process that orphans are given to, and then another program.
const REAPER: &str = "import ctypes, os, sys; \
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])";
/// Leaves an orphan that ends, and waits until nothing is left of it: a zombie would be.
const ORPHAN: &str = "folder=$(mktemp -d); sh -c 'sh -c \"echo \\$\\$ > $0/new; mv $0/new $0/pid\" &' $folder; \
    until [ -s $folder/pid ]; do sleep 0.02; done; pid=$(cat $folder/pid); rm -r $folder; \
    while [ -e /proc/$pid ]; do sleep 0.02; done; echo none is left";

fn given_orphans(url: &str, words: &[&str]) -> Command {
    let plain = fence(url, words);
    let mut command = Command::new("python3");
    command.args(["-c", REAPER]).arg(binary()).args(words);
    for (name, value) in plain.as_std().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn orphans_are_waited_for_while_a_command_runs() {
    let gateway = Dev::start().await;
    let runs: [&[&str]; 3] = [
        &["run", "-r", "r", "-c", ORPHAN],
        &["elect", "e", "--", "sh", "-c", ORPHAN],
        &["job", "run", "j", "--", "sh", "-c", ORPHAN],
    ];
    for words in runs {
        let mut command = given_orphans(gateway.url(), words);
        if words[0] == "elect" {
            // Or it stands for election again.
            let script = format!("{ORPHAN}; kill -TERM $PPID; sleep 1000");
            command = given_orphans(gateway.url(), &["elect", "e", "--", "sh", "-c", &script]);
        }
        let said = end(command.spawn().unwrap()).await;
        assert_eq!(said.out(), "none is left\n", "{words:?}: {said:?}");
    }
}

#[tokio::test]
async fn its_end_is_that_of_its_command_and_signals_come_through() {
    let gateway = Dev::start().await;
    let run = |script: &str| given_orphans(gateway.url(), &["run", "-r", "r", "-c", script]);
    end(run("exit 7").spawn().unwrap()).await.with(7);
    assert_eq!(end(run("kill -KILL $$").spawn().unwrap()).await.signal(), Some(9));
    let script = "trap 'echo heard; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let mut child = run(script).spawn().unwrap();
    let mut lines = {
        use tokio::io::AsyncBufReadExt as _;
        tokio::io::BufReader::new(child.stdout.take().unwrap()).lines()
    };
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    fence_tests::process::signal("TERM", &[super::pid(&child)]);
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("heard"));
    end(child).await.with(3);
}
