//! A source of keys gives the key of one lock, for ever (I18): an SDK that asks it again in the middle of a job never writes
//! under the lock of a successor.

use std::collections::HashSet;
use std::path::Path;

use fence_core::wire::Lock;
use fence_tests::process::eventually;
use serde_json::json;
use tokio::process::Command;

use super::job::Job;
use super::site::{ORDERS, Site};
use super::tools::{self, Tool};
use super::wire::{Seen, Wire};
use crate::cli;

/// Where a tool has its key from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `AWS_CONTAINER_CREDENTIALS_FULL_URI`.
    Container,
    /// `credential_process`.
    Process,
}

/// How often the SDK asks in the steps of a late writer: with the key it has, when it would like another, when it must have
/// another, as a new client.
const STEPS: [&str; 4] = ["", "ask_again", "insist", "begin_anew"];

#[tokio::test]
async fn the_address_of_a_lock_gives_no_other_key() {
    asks_again(Kind::Container).await;
}

#[tokio::test]
async fn the_process_of_a_lock_gives_no_other_key() {
    asks_again(Kind::Process).await;
}

/// A has its key from a source, and stands still until its lock has lapsed; B has the lock now. Whenever and however A asks
/// its source, it gets an error or goes on with the key it has, which writes nothing.
async fn asks_again(kind: Kind) {
    let site = Site::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (lock, key) = site.lock(ORDERS, "2s").await;
    let own = HashSet::from([key.access_key_id]);
    let source = Source { kind, asked: Wire::start(site.gateway.address().port()).await, lock };
    // 1. A writes with the key of its lock.
    let mut a = source.job(&site, &tools::REFRESHING, folder.path());
    let put = |text: &str| json!({ "do": "put", "key": "orders/total", "text": text });
    a.ask(put("from A")).await.ok();
    assert_eq!(keys_used(&site.wire.take()), own);
    assert_eq!(source.asked_for_keys().len(), 1);
    // 2. It stands still, and B has the lock.
    a.pause();
    let rival = eventually("B has the lock", async || {
        let body = json!({ "resource": ORDERS, "ttl": "10m" });
        let answer = site.client().lock(&body).send().await;
        (answer.status == 201).then(|| answer.parse::<Lock>())
    })
    .await;
    let by_rival = site.client().put(ORDERS, "total", "from B").under(&rival);
    by_rival.send().await.expect(200);
    a.resume();
    // 3. However it asks, it gets no other key.
    for step in STEPS {
        if !step.is_empty() {
            // A new client may find at once that there is no key for it.
            let _either = a.ask(json!({ "do": step })).await;
        }
        a.ask(put("from a late writer")).await.failed();
        assert!(keys_used(&site.wire.take()).is_subset(&own), "{step}: the key of another");
        let asked = source.asked_for_keys();
        let asks = step == "begin_anew" || kind == Kind::Container && !step.is_empty();
        assert_eq!(!asked.is_empty(), asks, "{step}: {asked:?}");
        assert!(asked.iter().all(|seen| seen.status == Some(409)), "{step}: {asked:?}");
    }
    assert_eq!(site.stored("total").await, "from B");
    // 4. A tool that is started now has no key at all.
    let mut late = source.job(&site, &tools::AWS_CLI, folder.path());
    let why = late.ask(put("from a late tool")).await.failed();
    assert!(why.contains("credentials"), "{why}");
    assert!(site.wire.take().is_empty(), "it has asked for something");
}

/// The keys that requests were signed with.
fn keys_used(seen: &[Seen]) -> HashSet<String> {
    let used = |seen: &Seen| {
        let shown = seen.header("authorization")?;
        Some(shown.split_once("Credential=")?.1.split_once('/')?.0.to_owned())
    };
    seen.iter().filter_map(used).collect()
}

/// The source of the key of one lock.
struct Source {
    kind: Kind,
    /// What sees that it is asked.
    asked: Wire,
    lock: Lock,
}

impl Source {
    /// Requests for keys since the last look. `fence` looks first if there is a gateway.
    fn asked_for_keys(&self) -> Vec<Seen> {
        self.asked.take().into_iter().filter(|seen| seen.target != "/status").collect()
    }

    /// A tool that has nothing else to sign with.
    fn job(&self, site: &Site, tool: &Tool, folder: &Path) -> Job {
        let mut words = tool.command().into_iter();
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        Job::start(command, &self.variables(site, folder))
    }

    fn variables(&self, site: &Site, folder: &Path) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("AWS_ENDPOINT_URL_S3", site.wire.url()),
            ("AWS_REGION", "fencegate".to_owned()),
            ("AWS_DEFAULT_REGION", "fencegate".to_owned()),
        ];
        let (asked, lock) = (self.asked.url(), self.lock.id);
        match self.kind {
            Kind::Container => {
                let url = format!("{asked}/locks/{lock}/s3?as=container");
                all.push(("AWS_CONTAINER_CREDENTIALS_FULL_URI", url));
            }
            Kind::Process => {
                let config = folder.join("config");
                let command = format!("{} s3-key {lock}", cli::binary().display());
                let text = format!("[default]\ncredential_process = {command}\n");
                std::fs::write(&config, text).unwrap();
                all.push(("AWS_CONFIG_FILE", config.to_str().unwrap().to_owned()));
                all.push(("FENCE_URL", asked));
            }
        }
        all
    }
}
