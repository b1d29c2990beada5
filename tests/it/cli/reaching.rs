//! All processes of a command are reached, wherever they went.

use fence_tests::process::{children_of, eventually, signal};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use super::super::rust_client::take_over;
use super::ended::{is_alive, until_gone};
use super::{Dev, call, end, fence, on_a_terminal, pid};

/// One in the group of the command, and one that has left it.
const TWO: &str = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait";

/// The next lines that a call writes.
struct Heard(Lines<BufReader<ChildStdout>>);

impl Heard {
    fn of(child: &mut Child) -> Self {
        Self(BufReader::new(child.stdout.take().unwrap()).lines())
    }

    async fn line(&mut self) -> String {
        self.0.next_line().await.unwrap().unwrap().trim().to_owned()
    }

    async fn two(&mut self) -> [String; 2] {
        [self.line().await, self.line().await]
    }
}

#[tokio::test]
async fn who_left_its_group_ends_with_it() {
    let gateway = Dev::start().await;
    let script = "setsid sleep 1000 > /dev/null 2>&1 & echo $!";
    let said = call(gateway.url(), &["run", "-r", "r", "-c", script]).await.with(0);
    assert!(!is_alive(said.out().trim()), "it outlived the lock");
    // One that does not listen, and has a new child all the time.
    let deaf =
        "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' > /dev/null 2>&1 & echo $!";
    let words = ["run", "-r", "r", "--ttl", "3s", "--grace", "0.2", "-c", deaf];
    let said = call(gateway.url(), &words).await.with(0);
    assert!(!is_alive(said.out().trim()), "it outlived the lock");
    // Unless it may stay.
    let words = ["run", "-r", "r", "--leave-children", "-c", script];
    let stays = call(gateway.url(), &words).await.with(0).out().trim().to_owned();
    assert!(is_alive(&stays));
    signal("KILL", &[stays.parse().unwrap()]);
}

#[tokio::test]
async fn a_loss_ends_them_all() {
    let gateway = Dev::start().await;
    let words = ["run", "-r", "r", "--ttl", "2s", "-c", TWO];
    let mut child = fence(gateway.url(), &words).spawn().unwrap();
    let pids = Heard::of(&mut child).two().await;
    take_over(&gateway.http(), "r").await;
    end(child).await.with(121);
    assert!(!pids.iter().any(|pid| is_alive(pid)), "one outlived the lock");
}

#[tokio::test]
async fn a_killed_fence_leaves_none_of_them() {
    let gateway = Dev::start().await;
    let mut child = fence(gateway.url(), &["run", "-r", "r", "-c", TWO]).spawn().unwrap();
    let pids = Heard::of(&mut child).two().await;
    signal("KILL", &[pid(&child)]);
    for pid in pids {
        until_gone(&pid).await;
    }
}

#[tokio::test]
async fn on_a_terminal_they_are_reached_as_well() {
    let gateway = Dev::start().await;
    for way in ["killed", "lost"] {
        let inner = format!("run -r {way} --ttl 2s -c '{TWO}'");
        let mut terminal = on_a_terminal(gateway.url(), &inner).spawn().unwrap();
        let pids = Heard::of(&mut terminal).two().await;
        if way == "killed" {
            let of_script = children_of(pid(&terminal));
            signal("KILL", &[*of_script.first().unwrap()]);
        } else {
            take_over(&gateway.http(), way).await;
        }
        for pid in pids {
            until_gone(&pid).await;
        }
        end(terminal).await;
    }
}

#[tokio::test]
async fn a_run_within_a_run_hears_it_once() {
    let gateway = Dev::start().await;
    // It listens for a while after the first TERM, and ends by itself before the outer `fence` kills: the death of the
    // inner `fence` sends its command a TERM, too.
    let script = "trap 'echo heard; rounds=10' TERM; echo ready; rounds=1000; \
        while [ $rounds -gt 0 ]; do rounds=$((rounds - 1)); sleep 0.05 & wait $!; done";
    let inner = format!("\"$FENCE\" run -r inner --ttl 30s -c '{}'", script.replace('\'', "'\\''"));
    let words = ["run", "-r", "outer", "--ttl", "6s", "--grace", "2s", "-c", &inner];
    let mut command = fence(gateway.url(), &words);
    let mut child = command.env("FENCE", super::binary()).spawn().unwrap();
    let mut heard = Heard::of(&mut child);
    assert_eq!(heard.line().await, "ready");
    take_over(&gateway.http(), "outer").await;
    assert_eq!(heard.line().await, "heard");
    assert_eq!(heard.0.next_line().await.unwrap(), None, "it heard more than one TERM");
    end(child).await.with(121);
}

#[tokio::test]
async fn a_watcher_that_was_killed_has_a_successor() {
    let gateway = Dev::start().await;
    let words = ["run", "-r", "r", "-c", "sleep 1000 & echo $!; wait"];
    let mut child = fence(gateway.url(), &words).spawn().unwrap();
    let grandchild = Heard::of(&mut child).line().await;
    let fence = pid(&child);
    // One that was killed is still listed until it is gone.
    let watcher = async |killed| {
        eventually("there is a watcher", async || {
            children_of(fence).into_iter().find(|pid| {
                let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
                Some(*pid) != killed && words.is_ok_and(|words| words.contains("__watch"))
            })
        })
        .await
    };
    let first = watcher(None).await;
    signal("KILL", &[first]);
    watcher(Some(first)).await;
    // It has been told what to watch, by the time that it is told for the second time until when.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    signal("KILL", &[fence]);
    until_gone(&grandchild).await;
}
