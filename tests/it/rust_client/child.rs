//! Programs of their own: a client whose process is stopped, and one that the environment describes.

use std::process::Stdio;
use std::time::Duration;

use fence_tests::process::{DEADLINE, signal};
use fencegate_client::Client;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use super::proxy::Proxy;
use super::{Dev, client, text, until_state};

const MARK: &str = "told: ";

/// Says something to the process that started this one.
pub fn tell(what: impl std::fmt::Display) {
    println!("\n{MARK}{what}");
}

/// Is set in a process that a test started to play its other part.
const IS_CHILD: &str = "TEST_IS_CHILD";

/// Whether this process is one that the test itself started, to play its other part.
pub fn is_child() -> bool {
    std::env::var_os(IS_CHILD).is_some()
}

/// Starts a test of this folder once more, in a process of its own, with these variables.
fn start(test: &str, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("rust_client::{test}"), "--nocapture"]).env(IS_CHILD, "1");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FENCE_") || name == "TRACEPARENT" {
            command.env_remove(name);
        }
    }
    command.envs(variables.iter().copied()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Runs it so to its end, which must be a good one; what it told.
pub async fn child(test: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let output = tokio::time::timeout(DEADLINE, start(test, variables).wait_with_output()).await;
    let output = output.expect("it ends").unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{test}: {text}");
    text.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_holder_that_was_stopped_for_too_long_knows_it_before_it_writes() {
    if is_child() {
        return hold_a_lock().await;
    }
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let http = gateway.http();
    let test = "child::a_holder_that_was_stopped_for_too_long_knows_it_before_it_writes";
    let mut holder = start(test, &[("TEST_URL", &proxy.url())]);
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let mut told = async || {
        loop {
            let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap();
            if let Some(told) = line.expect("it speaks").strip_prefix(MARK) {
                return told.to_owned();
            }
        }
    };
    assert_eq!(told().await, "held");
    let pid = holder.id().unwrap();
    signal("STOP", &[pid]);
    until_state(&http, "r", "expired").await;
    let rival = http.acquire("r", "10m").await;
    http.put("r", "k", "the rival's").under(&rival).send().await.expect(200);
    let writes = proxy.count("PUT", "");
    signal("CONT", &[pid]);
    holder.stdin.take().unwrap().write_all(b"write on\n").await.unwrap();
    assert_eq!(told().await, "lost: unconfirmed, signal: true");
    assert!(holder.wait().await.unwrap().success());
    assert_eq!(proxy.count("PUT", ""), writes, "nothing was sent");
    assert_eq!(text(&http, "r", "k").await, "the rival's");
}

/// Its one thread stands at standard input, so that nothing else happens between the waking and the write.
async fn hold_a_lock() {
    let client = client(&std::env::var("TEST_URL").unwrap());
    let lock = client.lock("r").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    lock.put("k", "mine").await.unwrap();
    tell("held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let reason = super::loss(lock.put("k", "late").await);
    let signal = lock.cancellation().is_cancelled();
    tell(format!("lost: {}, signal: {signal}", reason.as_str()));
}

#[tokio::test]
async fn a_client_is_made_as_the_environment_says() {
    if is_child() {
        return take_settings_from_the_environment().await;
    }
    let test = "child::a_client_is_made_as_the_environment_says";
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let dead = "http://127.0.0.1:1";
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("token");
    std::fs::write(&secret, "from-a-file\n").unwrap();
    let urls = format!("{dead},{}", proxy.url());
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let told = child(
        test,
        &[
            ("FENCE_URL", &urls),
            ("FENCE_OWNER", "nightly"),
            ("FENCE_AUTH_TOKEN_FILE", secret.to_str().unwrap()),
            ("TRACEPARENT", trace),
        ],
    )
    .await;
    assert_eq!(told, ["nightly"]);
    let seen = proxy.seen("POST", "/locks");
    assert_eq!(seen[0].json()["owner"], json!("nightly"));
    assert_eq!(seen[0].header("authorization"), Some("Bearer from-a-file"));
    assert!(seen[0].header("user-agent").unwrap().starts_with("fencegate-rust/"));
    assert_eq!(seen[0].header("traceparent"), Some(trace));
    // What names no span is none, and no reason to fail.
    child(test, &[("FENCE_URL", &proxy.url()), ("TRACEPARENT", "00-nonsense")]).await;
    assert_eq!(proxy.seen("POST", "/locks").last().unwrap().header("traceparent"), None);

    // What makes no sense is refused, in words.
    let url = ("FENCE_URL", &*urls);
    for (variables, why) in [
        (vec![], "FENCE_URL"),
        (vec![("FENCE_URL", "ftp://x")], "http://"),
        (vec![url, ("FENCE_AUTH_TOKEN", "a"), ("FENCE_AUTH_TOKEN_FILE", "b")], "one of them"),
        (vec![url, ("FENCE_CA_FILE", "/nowhere/ca.pem")], "/nowhere/ca.pem"),
        (vec![url, ("FENCE_CERT_FILE", "/nowhere/cert.pem")], "both or none"),
        (vec![url, ("FENCE_OWNER", "two\nlines")], "control characters"),
    ] {
        let told = child(test, &variables).await;
        assert!(told[0].starts_with("refused: ") && told[0].contains(why), "{why}: {told:?}");
    }
}

async fn take_settings_from_the_environment() {
    match Client::from_env() {
        Ok(client) => {
            client.lock("r").acquire().await.unwrap().release().await;
            tell(client.owner());
        }
        Err(error) => tell(format!("refused: {error}").replace('\n', " ")),
    }
}
