//! Commits of a thousand operations, some of them blobs, under readers that look at all of it, while the
//! gateway is killed again and again: whole or nothing, and what was acknowledged is there.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use fence_core::wire::{Committed, Lock};
use fence_tests::client::{Client, resource_path};
use fence_tests::multipart::commit;
use fence_tests::survey;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::setup::{SetUp, on_both};

on_both!(a_thousand_operations_show_whole_or_not_at_all);

/// The objects of the large resource. The other one has the last of the thousand.
const OBJECTS: usize = 999;
/// So many of them are blobs.
const BLOBS: usize = 5;
const INLINE_MAX: usize = 1024;
const READERS: usize = 3;

/// The body that commit `number` puts into an object.
fn body(number: i64, object: usize) -> Vec<u8> {
    let text = format!("commit {number}\n");
    match object < BLOBS {
        true => text.repeat(2 * INLINE_MAX / text.len()).into_bytes(),
        false => text.into_bytes(),
    }
}

fn key(object: usize) -> String {
    format!("k{object:04}")
}

fn number_in(bytes: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(bytes);
    let number = text.lines().next().and_then(|line| line.strip_prefix("commit "));
    number.and_then(|number| number.parse().ok()).expect("a body of a commit")
}

/// The digests of what a commit puts: of a blob, and of a small body.
fn digests(number: i64) -> [String; 2] {
    [0, BLOBS].map(|object| {
        let digest = Sha256::digest(body(number, object));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    })
}

struct Shared {
    stop: AtomicBool,
    /// The commit that was acknowledged last.
    acknowledged: AtomicI64,
    looks: AtomicUsize,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Sends commits one after the other, each until it is acknowledged.
async fn write(client: Client, lock: Lock, shared: Arc<Shared>) -> i64 {
    let put = |resource: &str, key: String| {
        let body = key.clone();
        json!({ "op": "put", "resource": resource, "key": key, "body": body })
    };
    let mut operations: Vec<Value> = (0..OBJECTS).map(|object| put("large", key(object))).collect();
    operations.push(put("manifest", key(OBJECTS)));
    let list = json!({ "operations": operations });
    let names: Vec<String> = (0..=OBJECTS).map(key).collect();
    let mut number = 0;
    while !shared.stopped() {
        number += 1;
        let bodies: Vec<Vec<u8>> = (0..=OBJECTS).map(|object| body(number, object)).collect();
        let bodies: Vec<(&str, &[u8])> =
            names.iter().map(String::as_str).zip(bodies.iter().map(Vec::as_slice)).collect();
        let call = commit(&client, &list, &bodies).under(&lock).unchecked();
        let call = call.idempotency_key(&number.to_string());
        loop {
            match call.clone().try_send().await {
                Ok(answer) if answer.status == 200 => {
                    let done: Committed = answer.parse();
                    let versions: Vec<_> = done.resources.iter().map(|one| one.version).collect();
                    // Each took effect once, on both.
                    assert_eq!(versions, [Some(number), Some(number)]);
                    break;
                }
                Ok(answer) => {
                    let waits = answer.code() == "idempotency-in-progress";
                    assert!(waits || answer.status == 503, "{}", answer.text());
                }
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        shared.acknowledged.store(number, Ordering::SeqCst);
    }
    number
}

/// One statement that shows the whole resource; the commit that it shows, 0 before the first.
async fn look_at_all(client: &Client) -> Option<i64> {
    let list = client.get(format!("{}/objects", resource_path("large"))).query("limit", "1000");
    let list = list.unchecked().try_send().await.ok().filter(|answer| answer.status == 200)?;
    let items = list.json()["items"].as_array().expect("a list").clone();
    if items.is_empty() {
        return Some(0);
    }
    assert_eq!(items.len(), OBJECTS, "a part of a commit shows");
    let versions: BTreeSet<_> = items.iter().map(|item| item["version"].as_i64()).collect();
    let [Some(version)] = versions.into_iter().collect::<Vec<_>>()[..] else {
        panic!("two commits show in one list");
    };
    let digests = digests(version);
    for (object, item) in items.iter().enumerate() {
        let expected = &digests[usize::from(object >= BLOBS)];
        assert_eq!(item["sha256"].as_str(), Some(expected.as_str()), "{object} at {version}");
    }
    Some(version)
}

/// One object; the commit that it is of, which its tag must say, too.
async fn look_at_one(client: &Client, resource: &str, object: usize) -> Option<i64> {
    let read = client.read(resource, &key(object)).unchecked().try_send().await.ok()?;
    match read.status.as_u16() {
        404 => return Some(0),
        200 => {}
        _ => return None,
    }
    let number = number_in(&read.body);
    assert!(read.body == body(number, object), "{resource} {object} is torn");
    assert_eq!(read.must_have("etag"), format!("\"g0-v{number}\""));
    Some(number)
}

/// Looks at parts of both resources, one after the other: what comes later is never older, since all
/// that a commit does shows at once.
async fn read(client: Client, shared: Arc<Shared>) {
    let mut seen = 0;
    while !shared.stopped() {
        let object = rand::random_range(0..OBJECTS);
        let looks = [
            look_at_all(&client).await,
            look_at_one(&client, "manifest", OBJECTS).await,
            look_at_one(&client, "large", object).await,
            look_at_one(&client, "large", rand::random_range(0..BLOBS)).await,
            look_at_one(&client, "manifest", OBJECTS).await,
        ];
        for number in looks.into_iter().flatten() {
            assert!(number >= seen, "commit {number} shows after {seen}");
            seen = number;
        }
        shared.looks.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn a_thousand_operations_show_whole_or_not_at_all(setup: SetUp) {
    let settings = setup.settings().await.flag("--inline-bytes-max", &INLINE_MAX.to_string());
    let mut gateway = settings.start().await;
    let client = gateway.client();
    let lock = json!({ "resources": ["large", "manifest"], "owner": "writer", "ttl": "24h" });
    let lock: Lock = client.lock(&lock).send().await.expect(201).parse();
    let shared = Arc::new(Shared {
        stop: AtomicBool::new(false),
        acknowledged: AtomicI64::new(0),
        looks: AtomicUsize::new(0),
    });
    let writer = tokio::spawn(write(client.clone(), lock, Arc::clone(&shared)));
    let readers: Vec<_> =
        (0..READERS).map(|_| tokio::spawn(read(client.clone(), Arc::clone(&shared)))).collect();
    let mut partly = 0;
    let kills = survey::size(5, 20);
    for _ in 0..kills {
        let before = shared.acknowledged.load(Ordering::SeqCst);
        fence_tests::process::eventually("commits go on after a kill", async || {
            assert!(!writer.is_finished() && readers.iter().all(|reader| !reader.is_finished()));
            (shared.acknowledged.load(Ordering::SeqCst) > before).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..700))).await;
        gateway.kill9();
        let acknowledged = shared.acknowledged.load(Ordering::SeqCst);
        gateway.restart().await;
        // Other looks may already see what the writer has sent again.
        let shown = look_at_all(&client).await.expect("the gateway is ready");
        assert!(shown >= acknowledged, "commit {acknowledged} was acknowledged, {shown} shows");
        partly += i64::from(shown > acknowledged);
    }
    shared.stop.store(true, Ordering::SeqCst);
    let last = writer.await.expect("the writer saw nothing wrong");
    for reader in readers {
        reader.await.expect("a reader saw nothing wrong");
    }
    assert_eq!(look_at_all(&client).await, Some(last));
    assert_eq!(look_at_one(&client, "manifest", OBJECTS).await, Some(last));
    eprintln!(
        "{setup:?}: {kills} kills, {last} commits, {partly} of them applied around a kill without an \
         answer, {} looks",
        shared.looks.load(Ordering::SeqCst)
    );
}
