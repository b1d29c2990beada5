//! The connection to Postgres is cut again and again in mid-commit: no write is applied twice, and none
//! is denied that was applied.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fence_core::wire::Lock;
use fence_tests::chaos::{ChaosProxy, Direction};
use fence_tests::client::{Answer, Client, object_path};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fence_tests::survey;
use futures::future::join_all;
use serde_json::json;

use crate::ledger::history::{History, Operation};

const WRITERS: usize = 8;

/// What a client was told of one sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// 2xx: it took effect as this version, now or before.
    Applied(i64),
    /// It took no effect: refused, or 503 without `outcome`.
    NotApplied,
    /// 503 with `outcome: unknown`.
    Unknown,
}

/// One sending of a write.
#[derive(Debug)]
struct Sent {
    object: String,
    operation: String,
    told: Told,
}

impl Sent {
    fn of(object: &str, answer: &Answer) -> Self {
        let told = match answer.status.as_u16() {
            200 | 201 => Told::Applied(answer.written().version),
            409 | 412 => Told::NotApplied,
            503 if answer.json()["outcome"] == "unknown" => Told::Unknown,
            503 => Told::NotApplied,
            other => panic!("{other}: {}", answer.text()),
        };
        let operation = answer.must_have("x-operation-id").to_owned();
        Self { object: object.to_owned(), operation, told }
    }
}

struct Writer {
    client: Client,
    resource: String,
    stale: Lock,
    lock: Lock,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    /// Operations of unknown outcome, of all writers.
    unknown: Arc<Mutex<Vec<String>>>,
}

impl Writer {
    /// Writes one object after the other, each once, until told to stop. Every second write has a
    /// key and is repeated until it is known what became of it.
    async fn work(self) -> Vec<Sent> {
        let mut sent = Vec::new();
        for n in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            let object = format!("o{n}");
            let put = self.client.put(&self.resource, &object, object.clone());
            let (put, keyed) = match n % 8 {
                // Never to be admitted, whatever happens to the connection.
                0 => (put.under(&self.stale), false),
                4 => (put.under(&self.lock).header("x-if-resource-version", "999999999"), false),
                odd if odd % 2 == 1 => (put.under(&self.lock).idempotency_key(&object), true),
                _ => (put.under(&self.lock), false),
            };
            loop {
                let attempt = Sent::of(&object, &put.clone().send().await);
                let decided = matches!(attempt.told, Told::Applied(_));
                if attempt.told == Told::Unknown {
                    self.unknown.lock().expect("no panic under it").push(attempt.operation.clone());
                }
                sent.push(attempt);
                if decided {
                    self.answered.fetch_add(1, Ordering::SeqCst);
                }
                if decided || !keyed {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        sent
    }
}

/// Cuts in one way or another, and waits until it has happened.
async fn cut(proxy: &ChaosProxy, number: usize) {
    let armed = match number % 5 {
        // The request arrives whole, and nothing or a part of its answer.
        0 => Some((Direction::FromTarget, 0)),
        1 => Some((Direction::FromTarget, rand::random_range(1..600))),
        // A part of a request arrives.
        2 => Some((Direction::ToTarget, rand::random_range(1..6000))),
        _ => None,
    };
    match armed {
        Some((direction, bytes)) => {
            proxy.cut_after_bytes(direction, bytes);
            eventually("the cut has come", async || (!proxy.armed()).then_some(())).await;
        }
        None => {
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..30))).await;
            proxy.cut();
        }
    }
    if number.is_multiple_of(10) {
        // And stays away for longer than callers wait.
        proxy.refuse().await;
        tokio::time::sleep(Duration::from_millis(1300)).await;
        proxy.resume().await;
    }
}

async fn writers(
    client: &Client,
    stop: &Arc<AtomicBool>,
    unknown: &Arc<Mutex<Vec<String>>>,
) -> (Vec<Writer>, Arc<AtomicUsize>) {
    let answered = Arc::new(AtomicUsize::new(0));
    let writer = async |number: usize| {
        let resource = format!("r{number}");
        let grant = async |owner: &str| -> Lock {
            let body = json!({ "resource": resource, "ttl": "24h", "owner": owner });
            client.lock(&body).send().await.expect(201).parse()
        };
        let stale = grant("first").await;
        client.release(&stale).send().await.expect(204);
        let lock = grant("second").await;
        let (client, resource) = (client.clone(), resource.clone());
        let (stop, answered) = (Arc::clone(stop), Arc::clone(&answered));
        Writer { client, resource, stale, lock, stop, answered, unknown: Arc::clone(unknown) }
    };
    let writers = join_all((0..WRITERS).map(writer)).await;
    (writers, answered)
}

/// Asks whether one of these operations took effect.
async fn is_one_applied(client: &Client, operations: Vec<String>) -> bool {
    let looks = operations.iter().map(async |operation| {
        let answer = client.get(format!("/operations/{operation}")).send().await;
        answer.status == 200 && answer.json()["outcome"] == "applied"
    });
    join_all(looks).await.contains(&true)
}

#[tokio::test]
async fn no_write_is_applied_twice_and_none_is_denied_that_was_applied() {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let database = postgres.database_name().await;
    let proxy = ChaosProxy::start(postgres.port()).await;
    let url = postgres.url_through(proxy.port(), &database);
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = settings.env("FENCEGATE_REQUEST_TIMEOUT", "1s").start().await;
    let client = gateway.client();
    let stop = Arc::new(AtomicBool::new(false));
    let unknown = Arc::new(Mutex::new(Vec::new()));
    let (writers, answered) = writers(&client, &stop, &unknown).await;

    let names: Vec<_> = writers.iter().map(|writer| writer.resource.clone()).collect();
    let load = join_all(writers.into_iter().map(Writer::work));
    let times = survey::size(10, 50);
    let cuts = async {
        let unknown = || unknown.lock().expect("no panic under it").clone();
        // At least one cut is in mid-commit.
        for number in 0.. {
            if number >= times && is_one_applied(&client, unknown()).await {
                break;
            }
            let seen = answered.load(Ordering::SeqCst);
            eventually("writes go on after a cut", async || {
                (answered.load(Ordering::SeqCst) >= seen + 2 * WRITERS).then_some(())
            })
            .await;
            cut(&proxy, number).await;
        }
        stop.store(true, Ordering::SeqCst);
    };
    let (sent, ()) = tokio::join!(load, cuts);

    let resolved = resolve(&client, sent.iter().flatten()).await;
    let history = History::of_postgres(&mut postgres.connect(&database).await).await;
    history.check();
    let by_id = history.by_id();
    let mut tally = [0; 3];
    for (resource, sent) in names.iter().zip(&sent) {
        let applied = |object: &str| -> Vec<&Operation> {
            let of = |o: &&Operation| o.resource == *resource && o.key.as_deref() == Some(object);
            history.operations.iter().filter(of).collect()
        };
        for attempt in sent {
            let effects = applied(&attempt.object);
            assert!(effects.len() <= 1, "applied twice: {attempt:?}: {effects:?}");
            let stored = by_id.get(attempt.operation.as_str());
            match attempt.told {
                Told::Applied(version) => {
                    tally[0] += 1;
                    let stored = stored.unwrap_or_else(|| panic!("lost: {attempt:?}"));
                    assert_eq!(stored.version, Some(version), "{attempt:?}");
                    assert_eq!(stored.key.as_ref(), Some(&attempt.object), "{attempt:?}");
                }
                Told::NotApplied => {
                    tally[1] += 1;
                    assert!(stored.is_none(), "denied, but applied: {attempt:?}");
                }
                Told::Unknown => {
                    tally[2] += 1;
                    let told_applied = resolved[&attempt.operation];
                    assert_eq!(told_applied, stored.is_some(), "{attempt:?}");
                }
            }
        }
    }
    let lost = resolved.values().filter(|applied| **applied).count();
    eprintln!(
        "{times} cuts; applied, not, unknown: {tally:?}; {lost} of the unknown went through and only \
         their answer was lost"
    );
    assert!(lost > 0, "no cut was in mid-commit");
    read_back(&client, &history).await;
}

/// Asks what became of the writes of unknown outcome: applied or not. Without a trace it is not.
async fn resolve(client: &Client, sent: impl Iterator<Item = &Sent>) -> HashMap<String, bool> {
    let unknown = sent.filter(|attempt| attempt.told == Told::Unknown);
    let resolved = unknown.map(async |attempt| {
        let mut applied = None;
        for _ in 0..150 {
            let answer = client.get(format!("/operations/{}", attempt.operation)).send().await;
            applied = match answer.json()["outcome"].as_str() {
                Some("applied") => Some(true),
                Some("not_applied") => Some(false),
                _ => None,
            };
            if applied.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        (attempt.operation.clone(), applied.unwrap_or(false))
    });
    join_all(resolved).await.into_iter().collect()
}

/// The bytes of every object that was written are there.
async fn read_back(client: &Client, history: &History) {
    for operation in &history.operations {
        let object = operation.key.as_ref().expect("all were puts");
        let path = object_path(&operation.resource, object);
        assert_eq!(client.get(path).unchecked().send().await.expect(200).text(), *object);
    }
}
