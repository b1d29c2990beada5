//! The Rust client on real gateways that are killed, stopped or slow, or behind something that loses answers.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests take their own time and start their own tasks"
)]

mod beside;
mod child;
mod credentials;
mod following;
mod locks;
mod principals;
mod proxy;
mod readme;
mod refusals;
mod renewals;
pub mod s3;
mod streams;
mod unknown;
mod waiting;
mod writes;

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use fence_core::wire::Lock as WireLock;
use fence_tests::client::{Client as Http, resource_path};
use fence_tests::gateway::binary;
use fence_tests::process::{DEADLINE, eventually, signal};
use fencegate_client::{Client, ClientBuilder, Error, Event, LossReason};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A gateway in memory. It ends with this.
pub struct Dev {
    url: String,
    pid: u32,
    _child: Child,
}

impl Dev {
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// One with these settings in its environment.
    pub async fn with(env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FENCEGATE_") {
                command.env_remove(name);
            }
        }
        command.arg("dev").envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap();
        let line: Value = serde_json::from_str(&line.expect("it says where it is")).unwrap();
        let url = line["url"].as_str().unwrap().to_owned();
        let pid = u32::try_from(line["pid"].as_u64().unwrap()).unwrap();
        Self { url, pid, _child: child }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }

    /// What looks at it past the client.
    pub fn http(&self) -> Http {
        Http::new(&self.url)
    }

    pub fn client(&self) -> Client {
        client(&self.url)
    }

    /// Stops it in its tracks: it answers nothing and closes nothing.
    pub fn pause(&self) {
        signal("STOP", &[self.pid]);
    }

    pub fn resume(&self) {
        signal("CONT", &[self.pid]);
    }
}

pub fn builder(url: &str) -> ClientBuilder {
    Client::builder(url).owner("worker")
}

pub fn client(url: &str) -> Client {
    builder(url).build().unwrap()
}

/// What the hook of a client was told.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<Event>>>);

impl Told {
    pub fn hook(&self) -> impl Fn(&Event) + Send + Sync + 'static + use<> {
        let told = self.0.clone();
        move |event| told.lock().unwrap().push(event.clone())
    }

    pub fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| is(event)).count()
    }

    /// Waits until it was told so often of such an event.
    pub async fn until(&self, what: &str, count: usize, is: impl Fn(&Event) -> bool) {
        eventually(what, async || (self.count(&is) >= count).then_some(())).await;
    }
}

/// Breaks the lock of a resource and takes it, as a rival.
pub async fn take_over(http: &Http, resource: &str) -> WireLock {
    http.break_lock(resource, &json!({ "reason": "a test" })).send().await.expect(200);
    http.acquire(resource, "10m").await
}

/// How many wait for a resource.
pub async fn until_in_line(http: &Http, resource: &str, length: i64) {
    eventually(&format!("{length} wait for {resource}"), async || {
        let answer = http.get(resource_path(resource)).try_send().await.ok()?;
        (answer.json()["queue_length"].as_i64() == Some(length)).then_some(())
    })
    .await;
}

/// What is stored.
pub async fn text(http: &Http, resource: &str, key: &str) -> String {
    http.read(resource, key).send().await.expect(200).text()
}

/// Why the lock is lost, by this error.
#[track_caller]
pub fn loss<T: std::fmt::Debug>(result: Result<T, Error>) -> LossReason {
    match result {
        Err(Error::LockLost(lost)) => lost.reason,
        other => panic!("the lock is not lost: {other:?}"),
    }
}

/// Waits, but not for ever.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("in time")
}

/// Waits until the lock of a resource is in this state.
pub async fn until_state(http: &Http, resource: &str, state: &str) {
    eventually(&format!("{resource} is {state}"), async || {
        let answer = http.get(resource_path(resource)).try_send().await.ok()?;
        (answer.json()["state"] == state).then_some(())
    })
    .await;
}
