//! The recipes of `clients/recipes` are command lines that work, with other programs in the place of the jobs.

use std::path::Path;

use fence_tests::process::{eventually, signal};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::{Dev, Said, binary, end, fence, pid};

fn recipe(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/recipes");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// What systemd starts.
fn of_systemd(name: &str) -> Vec<String> {
    let text = recipe(name);
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    line.split(' ').map(str::to_owned).collect()
}

/// What Kubernetes starts.
fn of_kubernetes(name: &str, pod: &str) -> Vec<String> {
    let document: Value = yaml_serde::from_str(&recipe(name)).unwrap();
    let container = &document.pointer(pod).unwrap()["containers"][0];
    let words = container["command"].as_array().unwrap().iter();
    words.map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// The same recipe, with another command in its place.
fn with_command(words: &[String], instead: &[&str]) -> Vec<String> {
    let (program, words) = words.split_first().unwrap();
    assert_eq!(Path::new(program).file_name().unwrap(), "fence");
    let words = words.iter().take_while(|word| *word != "--").cloned();
    words.chain(["--".to_owned()]).chain(instead.iter().map(|word| (*word).to_owned())).collect()
}

/// A job of that name.
fn job(words: &[String], name: &str) -> (Vec<String>, String) {
    let (program, words) = words.split_first().unwrap();
    assert_eq!(Path::new(program).file_name().unwrap(), "fence");
    let (job, words) = words.split_last().unwrap();
    assert!(job.ends_with(name) && words.last().unwrap() == "--", "{words:?}");
    (words.to_vec(), job.clone())
}

#[tokio::test]
async fn jobs_run_under_their_lock() {
    let gateway = Dev::start().await;
    let pod = "/spec/jobTemplate/spec/template/spec";
    for words in [of_systemd("close-books.service"), of_kubernetes("cronjob.yaml", pod)] {
        let (mut words, _) = job(&words, "close-books");
        words.extend(["sh", "-c", "echo $FENCE_RESOURCE"].map(str::to_owned));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let said = end(fence(gateway.url(), &words).spawn().unwrap()).await.with(0);
        assert_eq!(said.out(), "close-books\n");
    }
}

#[tokio::test]
async fn slots_of_jobs_are_done_once() {
    let gateway = Dev::start().await;
    let pod = "/spec/jobTemplate/spec/template/spec";
    let recipes = [of_systemd("jobs/close-books.service"), of_kubernetes("jobs/cronjob.yaml", pod)];
    for recipe in recipes {
        let words = with_command(&recipe, &["sh", "-c", "echo $FENCE_JOB"]);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let first = super::call(gateway.url(), &words).await.with(0).out();
        assert!(["close-books\n", "import\n"].contains(&first.as_str()), "{first}");
        assert_eq!(super::call(gateway.url(), &words).await.with(0).out(), "", "it is done");
    }
    // What Kubernetes puts in the place of the variable.
    let parts = of_kubernetes("jobs/parts.yaml", "/spec/template/spec");
    let parts = with_command(&parts, &["sh", "-c", "echo $FENCE_SHARD of $FENCE_SHARDS"]);
    for index in ["0", "15"] {
        let words: Vec<_> =
            parts.iter().map(|word| word.replace("$(JOB_COMPLETION_INDEX)", index)).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let said = super::call(gateway.url(), &words).await.with(0);
        assert_eq!(said.out(), format!("{index} of 16\n"));
    }
    // Each line of the crontab, and nothing is said the second time.
    let jobs =
        [("*/10 * * * *", "/usr/local/bin/close-books"), ("*/5 * * * *", "/usr/local/bin/import")];
    let other = Dev::start().await;
    for (minute, job) in jobs {
        for expected in ["done", ""] {
            let said = by_jobs_cron(&other, minute, job, "echo done").await.with(0);
            assert_eq!(said.out().split_whitespace().next().unwrap_or(""), expected, "{said:?}");
            assert_eq!(said.err(), "", "cron would send a letter");
        }
    }
    assert_eq!(
        by_jobs_cron(&other, "0 * * * *", "/tmp/jobs.txt", "/dev/null").await.with(0).out(),
        ""
    );
}

#[tokio::test]
async fn an_agent_and_an_exporter_are_started() {
    let gateway = Dev::start().await;
    let words = with_command(&of_kubernetes("jobs/agent.yaml", "/spec/template/spec"), &["true"]);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let agent = fence(gateway.url(), &words).spawn().unwrap();
    eventually("it waits for orders", async || {
        let asked =
            super::call(gateway.url(), &["job", "start", "import", "--reason", "now"]).await;
        (asked.code() == Some(0)).then_some(())
    })
    .await;
    eventually("it is run", async || {
        let runs = super::call(
            gateway.url(),
            &["job", "runs", "import", "--status", "succeeded", "-o", "name"],
        );
        (!runs.await.out().is_empty()).then_some(())
    })
    .await;
    signal("TERM", &[pid(&agent)]);
    assert_eq!(end(agent).await.signal(), Some(15));
    let words = of_systemd("jobs/exporter.service");
    let words: Vec<_> = words[1..].iter().map(|word| word.replace("9469", "0")).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let mut exporter = fence(gateway.url(), &words).spawn().unwrap();
    let mut lines = BufReader::new(exporter.stderr.take().unwrap()).lines();
    let said = lines.next_line().await.unwrap().unwrap();
    let scraped =
        reqwest::get(said.rsplit(' ').next().unwrap()).await.unwrap().text().await.unwrap();
    assert!(scraped.contains("fencegate_job_running{name=\"import\"} 0"), "{scraped}");
}

#[tokio::test]
async fn leaders_are_elected() {
    let gateway = Dev::start().await;
    let words = [of_systemd("leader.service"), of_kubernetes("leader.yaml", "/spec/template/spec")];
    for words in words {
        let (mut words, _) = job(&words, "dispatcher");
        words.extend(["sleep", "1000"].map(str::to_owned));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let child = fence(gateway.url(), &words).env("FENCE_OWNER", "pod-1").spawn().unwrap();
        eventually("it leads", async || {
            let leader = super::call(gateway.url(), &["leader", "dispatcher"]).await;
            leader.out().contains("pod-1").then_some(())
        })
        .await;
        signal("TERM", &[pid(&child)]);
        assert_eq!(end(child).await.signal(), Some(15));
    }
}

/// What cron starts at this minute, and how it ends: `%` is special to cron, unless it is escaped.
async fn by_cron(gateway: &Dev, minute: &str, job: &str, instead: &str) -> Said {
    by_line_of("crontab", gateway, minute, job, instead).await
}

/// The same of the jobs that have records.
async fn by_jobs_cron(gateway: &Dev, minute: &str, job: &str, instead: &str) -> Said {
    by_line_of("jobs/crontab", gateway, minute, job, instead).await
}

async fn by_line_of(file: &str, gateway: &Dev, minute: &str, job: &str, instead: &str) -> Said {
    let text = recipe(file);
    let line = text.lines().find_map(|line| line.strip_prefix(minute)).unwrap();
    let line = line.replace("\\%", "%");
    assert!(line.contains(job), "{line}");
    let mut command = Command::new("sh");
    let folders =
        format!("{}:{}", binary().parent().unwrap().display(), std::env::var("PATH").unwrap());
    command.arg("-c").arg(line.replace(job, instead)).env("PATH", folders);
    command.env("FENCE_URL", gateway.url()).env("XDG_CONFIG_HOME", "/nonexistent");
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    end(command.kill_on_drop(true).spawn().unwrap()).await
}

#[tokio::test]
async fn cron_starts_a_job_once() {
    let gateway = Dev::start().await;
    let job = "/usr/local/bin/close-books";
    let said = by_cron(&gateway, "30 2 * * *", job, "echo done").await.with(0);
    assert_eq!(said.out(), "done\n");
    // Another machine has it: nothing is said.
    let lock = gateway.client().lock("close-books").acquire().await.unwrap();
    let said = by_cron(&gateway, "30 2 * * *", job, "echo done").await.with(0);
    assert_eq!(said.out(), "");
    assert!(lock.release().await);
    // The mark of the day is made once.
    for expected in ["done\n", ""] {
        let said = by_cron(&gateway, "40 2 * * *", "/usr/local/bin/report", "echo done").await;
        assert_eq!(said.with(0).out(), expected);
    }
}
