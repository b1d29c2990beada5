//! Waiters in line.

use fence_core::wire::{Lock, Resource};
use fence_tests::access::{Key, principal, role};
use fence_tests::client::resource_path;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Pending, Site, begin};
use crate::setup::{SetUp, on_both, random_id};

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";
const READS: &str = "allow = [\"read\"]\nresources = [\"job:*\"]";

on_both!(
    a_waiter_whose_right_is_taken_away_leaves_the_line_at_once,
    a_waiter_whose_key_is_given_to_another_principal_gets_nothing,
    a_waiter_whose_key_ends_leaves_the_line,
);

/// How long a key is good that ends while its holder waits: longer than it takes to get into line.
const GOOD_FOR_S: i64 = 20;

/// Longer than anything here takes: who hears of its refusal only when its wait ends is told another code.
fn wants(owner: &str) -> Value {
    json!({ "resource": "job:1", "ttl": "1h", "owner": owner, "wait": "50s" })
}

/// Stands in line behind so many others, as `seer` sees it.
async fn in_line(site: &Site, key: &Key, body: &Value, before: i64, seer: &Key) -> Pending {
    let waiting = begin(key.by(site.client().lock(body)));
    site.until_in_line(seer, "job:1", before + 1).await;
    waiting
}

async fn a_waiter_whose_right_is_taken_away_leaves_the_line_at_once(setup: SetUp) {
    let [ann, bob, carl] = [Key::new().await, Key::new().await, Key::new().await];
    let all = [("ann", &ann), ("bob", &bob), ("carl", &carl)];
    let site = Site::new(setup, |rules| rules.text(WORKS, &all)).await;
    let held = site.locked(&ann, "job:1").await;
    let denied = in_line(&site, &bob, &wants("bob"), 0, &ann).await;
    let next = in_line(&site, &carl, &wants("carl"), 1, &ann).await;

    let readers = role("reader", READS) + &principal("bob", "reader", &[&bob]);
    let less = site.rules.text(WORKS, &[("ann", &ann), ("carl", &carl)]) + &readers;
    site.put_in_force(&less).await;
    // The resource is held, and its wait goes on for long: nothing else would make it hear.
    denied.await.unwrap().refused(403, "permission-denied");
    site.until_in_line(&ann, "job:1", 1).await;
    assert!(!next.is_finished());
    ann.by(site.client().release(&held)).send().await.expect(204);
    let lock: Lock = next.await.unwrap().expect(201).parse();
    assert_eq!(lock.owner, "carl");
}

/// Its other calls are refused by then; so is this one, and the next in line gets the lock.
async fn a_waiter_whose_key_ends_leaves_the_line(setup: SetUp) {
    let [ann, mut bob, carl] = [Key::new().await, Key::new().await, Key::new().await];
    let others = [("ann", &ann), ("carl", &carl)];
    let site = Site::new(setup, |rules| rules.text(WORKS, &others)).await;
    let held = site.locked(&ann, "job:1").await;
    let ends = Timestamp::now() + SignedDuration::from_secs(GOOD_FOR_S);
    let (before, _) = bob.line.split_once("expires = ").unwrap();
    bob.line = format!("{before}expires = {ends:.0} }}");
    let all = [("ann", &ann), ("bob", &bob), ("carl", &carl)];
    site.put_in_force(&site.rules.text(WORKS, &all)).await;
    let ending = in_line(&site, &bob, &wants("bob"), 0, &ann).await;
    let next = in_line(&site, &carl, &wants("carl"), 1, &ann).await;
    ending.await.unwrap().refused(401, "credential-expired");
    ann.by(site.client().release(&held)).send().await.expect(204);
    let lock: Lock = next.await.unwrap().expect(201).parse();
    assert_eq!(lock.owner, "carl");
}

/// What was begun as one principal does not end as another: the lock would be the former one's, for whoever has the key
/// now.
async fn a_waiter_whose_key_is_given_to_another_principal_gets_nothing(setup: SetUp) {
    let [ann, bob] = [Key::new().await, Key::new().await];
    let site = Site::new(setup, |rules| rules.text(WORKS, &[("ann", &ann), ("bob", &bob)])).await;
    let held = site.locked(&ann, "job:1").await;
    let id = random_id();
    let mut body = wants("bob");
    body["id"] = json!(id);
    let waiting = in_line(&site, &bob, &body, 0, &ann).await;
    site.put_in_force(&site.rules.text(WORKS, &[("ann", &ann), ("eve", &bob)])).await;
    waiting.await.unwrap().refused(401, "unauthenticated");

    ann.by(site.client().release(&held)).send().await.expect(204);
    // Whoever has the key now does not find a lock under the id.
    bob.by(site.client().get(format!("/locks/{id}"))).send().await.refused(404, "lock-not-found");
    let next = json!({ "resource": "job:1", "owner": "ann", "wait": "50s" });
    let next: Lock = ann.by(site.client().lock(&next)).send().await.expect(201).parse();
    assert_eq!(next.owner, "ann");
    let seen = ann.by(site.client().get(resource_path("job:1"))).send().await.expect(200);
    assert_eq!(seen.parse::<Resource>().owner, "ann");
}
