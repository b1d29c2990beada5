//! A gateway that is frozen between any two steps of a large write, while another holder takes over and
//! writes: when it wakes, the old write is refused, and no reader ever sees it.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::time::Duration;

use fence_core::wire::Lock;
use fence_tests::client::{Client, resource_path};
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::raw::{RawAnswer, RawConnection};
use fence_tests::stores::Kind;
use serde_json::json;

use crate::blobs::rig::{Apart, body, head, put, seed_of};

const R: &str = "job:1";
const LENGTH: usize = 20 << 20;
const OLD: u64 = 1;
const LATE: u64 = 2;
const NEW: u64 = 3;

/// Where the write is when its gateway freezes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Its call for an intent has not reached the ledger.
    Intending,
    /// The intent is stored; nothing is uploaded yet.
    Intended,
    /// A part is uploaded.
    Uploading,
    /// All of the body but its last byte has come.
    Waiting,
    /// The store has not heard that the upload is whole.
    Finishing,
    /// The blob is stored; the commit has not reached the ledger.
    Committing,
}

const STEPS: [Step; 6] = [
    Step::Intending,
    Step::Intended,
    Step::Uploading,
    Step::Waiting,
    Step::Finishing,
    Step::Committing,
];

/// Two gateways on one ledger and one store. What the first one says passes through proxies.
struct Ground {
    apart: Apart,
    freezing: Gateway,
    other: Gateway,
}

impl Ground {
    async fn new(kind: Kind) -> Self {
        let (apart, [freezing, other]) = Apart::new(kind).await;
        Self { apart, freezing: freezing.start().await, other: other.start().await }
    }

    /// Sends as much of a late write as brings its gateway to this step; returns what is still to be
    /// sent.
    async fn bring_to(&self, step: Step, lock: &Lock, connection: &mut RawConnection) -> usize {
        let bytes = body(LATE, LENGTH);
        let before = self.apart.intents().await;
        if step == Step::Intending {
            self.apart.to_postgres.blackhole().await;
        }
        connection.send(&head(R, "k", lock, LENGTH, "")).await;
        if step == Step::Intending {
            settle().await;
            return LENGTH;
        }
        eventually("the intent is stored", async || {
            (self.apart.intents().await > before).then_some(())
        })
        .await;
        let sent = match step {
            Step::Intending | Step::Intended => 0,
            Step::Uploading => LENGTH / 2 + 1,
            Step::Waiting | Step::Finishing | Step::Committing => LENGTH - 1,
        };
        connection.send(&bytes[..sent]).await;
        settle().await;
        match (step, &self.apart.to_store) {
            (Step::Finishing, Some(to_store)) => to_store.blackhole().await,
            (Step::Committing, _) => self.apart.to_postgres.blackhole().await,
            _ => return LENGTH - sent,
        }
        connection.send(&bytes[sent..]).await;
        settle().await;
        0
    }

    /// Freezes it at this step, lets another holder take over and write, and wakes it.
    async fn run(&self, step: Step) -> RawAnswer {
        let (here, there) = (self.freezing.client(), self.other.client());
        let lock = here.acquire(R, "1s").await;
        put(&here, &lock, "k", OLD, 1 << 20).await;
        let mut connection = RawConnection::open(self.freezing.address()).await;
        let left = self.bring_to(step, &lock, &mut connection).await;
        self.freezing.pause();

        let body_of_lock = json!({ "resource": R, "ttl": "10m", "wait": "20s", "owner": "next" });
        let next: Lock = there.lock(&body_of_lock).send().await.expect(201).parse();
        assert!(next.token > lock.token);
        put(&there, &next, "k", NEW, 300_000).await;
        let versions = history(&there).await;

        self.apart.to_postgres.resume().await;
        if let Some(to_store) = &self.apart.to_store {
            to_store.resume().await;
        }
        self.freezing.resume();
        connection.send(&body(LATE, LENGTH)[LENGTH - left..]).await;
        let answer = connection.answer().await.expect("an answer");
        for client in [&here, &there] {
            assert_eq!(
                seed_of(&client.read(R, "k").send().await.expect(200).body),
                NEW,
                "{step:?}"
            );
            assert_eq!(history(client).await, versions, "{step:?}: nothing was added");
        }
        there.release(&next).send().await.expect(204);
        answer
    }
}

/// Gives what was sent the time to get where it can get.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

async fn history(client: &Client) -> serde_json::Value {
    let path = format!("{}/versions", resource_path(R));
    client.get(path).send().await.expect(200).json()["items"].clone()
}

async fn a_late_write_is_refused(kind: Kind) {
    let ground = Ground::new(kind).await;
    for step in STEPS {
        let answer = ground.run(step).await;
        let told = (answer.status, answer.code());
        // A ledger that did not answer for so long, before anything was begun, is given up.
        let given_up = step == Step::Intending && told == (503, "ledger-unavailable".into());
        let refused = told == (412, "fence-token-stale".into());
        assert!(refused || given_up, "{step:?}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_late_write_to_a_folder_is_refused() {
    a_late_write_is_refused(Kind::Folder).await;
}

#[tokio::test]
async fn a_late_write_to_s3_is_refused() {
    a_late_write_is_refused(Kind::S3).await;
}

#[tokio::test]
async fn a_late_write_to_azure_is_refused() {
    a_late_write_is_refused(Kind::Azure).await;
}
