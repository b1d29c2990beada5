//! `kill -9` of the gateway, again and again under load: what was acknowledged is there, versions are
//! gapless, the fence never fell.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fence_core::Token;
use fence_core::wire::{Lock, Written};
use fence_tests::client::{Client, resource_path};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fence_tests::survey;
use futures::future::join_all;
use futures::{StreamExt, stream};
use rand::seq::IndexedRandom;
use serde_json::json;

use crate::ledger::history::{Granted, History};
use crate::setup::{SetUp, on_both, random_id};

on_both!(acknowledged_writes_survive_kills);

const WRITERS: usize = 8;
const SHARED: &str = "shared";

/// What the writer was told of a write.
#[derive(Debug)]
pub(crate) enum Told {
    Acknowledged { version: i64, operation: String },
    Refused,
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Write {
    resource: String,
    object: String,
    /// The idempotency key, which is the body, too.
    key: String,
    /// The token that was presented.
    token: Token,
    told: Told,
}

/// What came of the work of a writer.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) writes: Vec<Write>,
    /// The locks that it was given.
    locks: Vec<Lock>,
}

pub(crate) struct Writer {
    pub(crate) number: usize,
    /// Of the gateway that is killed, and of the one that lives on, if there is one.
    pub(crate) clients: Vec<Client>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) acknowledged: Arc<AtomicUsize>,
    /// How much longer than its key each body is.
    pub(crate) length: usize,
    pub(crate) done: Work,
    pub(crate) grants: usize,
}

impl Writer {
    fn client(&self) -> &Client {
        self.clients.choose(&mut rand::rng()).expect("a client")
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(15)).await;
    }

    /// Asks for a lock until the answer is there: one, or none because somebody else has it.
    async fn acquire(&mut self, resource: &str) -> Option<Lock> {
        self.grants += 1;
        let owner = format!("w{}-{}", self.number, self.grants);
        let body = json!({ "resource": resource, "ttl": "24h", "owner": owner, "id": random_id() });
        while !self.stopped() {
            match self.client().lock(&body).try_send().await {
                Ok(answer) if answer.status.is_success() => {
                    let lock: Lock = answer.parse();
                    self.done.locks.push(lock.clone());
                    return Some(lock);
                }
                Ok(answer) if answer.status == 409 => return None,
                Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.text()),
                Err(_) => {}
            }
            self.pause().await;
        }
        None
    }

    /// Writes, and repeats the write under its key while nobody says what became of it. Whether the
    /// token is still good.
    async fn write(&mut self, resource: &str, lock: &Lock) -> bool {
        let object = format!("k{}", rand::random_range(0..3));
        let key = format!("w{}-{}", self.number, self.done.writes.len());
        let body = format!("{key}{}", " ".repeat(self.length));
        let told = loop {
            let put = self.client().put(resource, &object, body.clone());
            match put.under(lock).idempotency_key(&key).try_send().await {
                Ok(answer) if answer.status.is_success() => {
                    let Written { version, operation, .. } = answer.written();
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                    break Told::Acknowledged { version, operation: operation.to_string() };
                }
                Ok(answer) if answer.status == 412 => break Told::Refused,
                Ok(answer) => {
                    let in_progress = answer.code() == "idempotency-in-progress";
                    assert!(in_progress || answer.status == 503, "{}", answer.text());
                }
                Err(_) if rand::random_range(0..3) == 0 => break Told::Nothing,
                Err(_) => {}
            }
            if self.stopped() {
                break Told::Nothing;
            }
            self.pause().await;
        };
        let good = !matches!(told, Told::Refused);
        self.done.writes.push(Write {
            resource: resource.to_owned(),
            object,
            key,
            token: lock.token,
            told,
        });
        good
    }

    /// Takes the shared resource from whoever holds it.
    async fn take_over(&mut self) -> Option<Lock> {
        let body = json!({ "after": "0s", "reason": "my turn" });
        let _broken_or_not = self.client().break_lock(SHARED, &body).try_send().await;
        self.acquire(SHARED).await
    }

    pub(crate) async fn work(mut self) -> Work {
        let own = format!("own-{}", self.number);
        let Some(own_lock) = self.acquire(&own).await else { return self.done };
        let mut shared = None;
        while !self.stopped() {
            assert!(self.write(&own, &own_lock).await, "nobody else wants {own}");
            if let Some(lock) = &shared {
                if !self.write(SHARED, lock).await {
                    shared = None;
                }
            } else if rand::random_range(0..8) == 0 {
                shared = self.take_over().await;
            }
            self.pause().await;
        }
        self.done
    }
}

async fn acknowledged_writes_survive_kills(setup: SetUp) {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let database = postgres.database().await;
    let settings = match setup {
        SetUp::Embedded => Gateway::embedded(),
        SetUp::Clustered => Gateway::clustered(&database, &etcd.endpoint(), &etcd.prefix()),
    };
    let mut victim = settings.clone().start().await;
    let survivor = match setup {
        SetUp::Embedded => None,
        SetUp::Clustered => Some(settings.start().await),
    };
    let clients: Vec<_> = survivor.iter().chain([&victim]).map(Gateway::client).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writers = (0..WRITERS).map(|number| Writer {
        number,
        clients: clients.clone(),
        stop: Arc::clone(&stop),
        acknowledged: Arc::clone(&acknowledged),
        length: 0,
        done: Work::default(),
        grants: 0,
    });
    let load = join_all(writers.map(Writer::work));
    let kills = survey::size(8, 50);
    let killing = async {
        for _ in 0..kills {
            let seen = acknowledged.load(Ordering::SeqCst);
            eventually("writes go on after a kill", async || {
                (acknowledged.load(Ordering::SeqCst) >= seen + WRITERS).then_some(())
            })
            .await;
            let while_they_work = Duration::from_millis(rand::random_range(0..100));
            tokio::time::sleep(while_they_work).await;
            victim.kill9();
            victim.restart().await;
        }
        stop.store(true, Ordering::SeqCst);
    };
    let (work, ()) = tokio::join!(load, killing);
    let (writes, locks) = all_of(work);

    let reader = survivor.as_ref().unwrap_or(&victim).client();
    check_over_http(&reader, &writes).await;
    let history = match setup {
        SetUp::Embedded => {
            victim.kill9();
            History::of_sqlite(&victim).await
        }
        SetUp::Clustered => {
            let mut connection = postgres.connect(database_in(&database)).await;
            History::of_postgres(&mut connection).await
        }
    };
    history.check();
    check_in_ledger(&history, &writes, &locks);
    let told = |wanted: fn(&Told) -> bool| writes.iter().filter(|w| wanted(&w.told)).count();
    eprintln!(
        "{setup:?}: {kills} kills, {} writes acknowledged, {} refused, {} unknown, {} grants of \
         the shared resource",
        told(|told| matches!(told, Told::Acknowledged { .. })),
        told(|told| matches!(told, Told::Refused)),
        told(|told| matches!(told, Told::Nothing)),
        history.fences[SHARED].2,
    );
    assert!(history.fences[SHARED].2 > 1, "there was a takeover");
}

/// What all writers were told.
pub(crate) fn all_of(work: Vec<Work>) -> (Vec<Write>, Vec<Lock>) {
    let (writes, locks): (Vec<_>, Vec<_>) =
        work.into_iter().map(|work| (work.writes, work.locks)).unzip();
    (writes.into_iter().flatten().collect(), locks.into_iter().flatten().collect())
}

/// Every acknowledged write is known by its key, and each object holds the bytes of its last write.
pub(crate) async fn check_over_http(client: &Client, writes: &[Write]) {
    let known = stream::iter(writes).map(async |write| {
        let Told::Acknowledged { version, operation } = &write.told else { return };
        let path = format!("{}/operations", resource_path(&write.resource));
        let found = client.get(path).query("idempotency_key", &write.key).send().await;
        let found = &found.expect(200).json()["items"][0];
        assert_eq!(found["operation"], json!(operation), "{write:?}");
        assert_eq!((&found["outcome"], &found["version"]), (&json!("applied"), &json!(version)));
    });
    known.buffer_unordered(16).collect::<Vec<()>>().await;

    let mut objects: BTreeMap<(&str, &str), Vec<&Write>> = BTreeMap::new();
    for write in writes {
        objects.entry((&write.resource, &write.object)).or_default().push(write);
    }
    for ((resource, object), writes) in objects {
        let last = writes.iter().filter_map(|write| match write.told {
            Told::Acknowledged { version, .. } => Some((version, &write.key)),
            Told::Refused | Told::Nothing => None,
        });
        let Some((last, key)) = last.max() else { continue };
        let read = client.read(resource, object).send().await.expect(200);
        let tag = read.must_have("etag");
        let version: i64 = tag["\"g0-v".len()..tag.len() - 1].parse().expect("a version");
        if version == last {
            assert_eq!(read.text().trim_end(), *key, "{resource}/{object}");
        } else {
            assert!(version > last, "{resource}/{object} fell from {last} to {version}");
            let unknown = writes.iter().find(|write| write.key == read.text().trim_end());
            assert!(
                unknown.is_some_and(|write| matches!(write.told, Told::Nothing)),
                "{unknown:?}"
            );
        }
    }
}

/// The same in the ledger itself, and every token that was given out is a grant there.
pub(crate) fn check_in_ledger(history: &History, writes: &[Write], locks: &[Lock]) {
    let granted = |grant: &Granted| (grant.resource.clone(), grant.token);
    let granted: HashSet<(String, i64)> = history.grants.iter().map(granted).collect();
    for lock in locks {
        let grant = (lock.resources[0].as_str().to_owned(), lock.token.get());
        assert!(granted.contains(&grant), "a token that was given out is gone: {lock:?}");
    }
    let by_id = history.by_id();
    for write in writes {
        let by_key = history.keys.get(&(write.resource.clone(), write.key.clone()));
        match &write.told {
            Told::Acknowledged { version, operation } => {
                assert_eq!(by_key, Some(operation), "{write:?}");
                let stored = by_id[operation.as_str()];
                assert_eq!(stored.version, Some(*version), "{write:?}");
                assert_eq!(stored.key.as_ref(), Some(&write.object));
            }
            Told::Refused => assert_eq!(by_key, None, "refused, but applied: {write:?}"),
            Told::Nothing => {}
        }
    }
    // Each write had a key of its own: one operation for each.
    assert_eq!(history.operations.len(), history.keys.len());
    let by_key: HashMap<_, _> =
        history.keys.iter().map(|((_, key), operation)| (operation, key)).collect();
    let sent: HashMap<_, _> = writes.iter().map(|write| (&write.key, write)).collect();
    let mut newest: BTreeMap<&str, Token> = BTreeMap::new();
    for operation in &history.operations {
        let write = sent[by_key[&operation.id]];
        let newest = newest.entry(&operation.resource).or_insert(write.token);
        assert!(write.token >= *newest, "a stale write took effect: {write:?}");
        *newest = write.token;
    }
}
