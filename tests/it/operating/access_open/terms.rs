//! What a role says of locks: `ttl_max`, `hold_max`, `infinite`. It counts for those that are held already.

use fence_core::wire::{Lock, RenewManyAnswer};
use fence_tests::access::{Key, Rules};
use serde_json::json;

use super::Site;
use crate::setup::{SetUp, on_both, random_id};

const ANY: &str =
    "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]\nttl_max = \"24h\"";
const SHORT: &str =
    "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]\nttl_max = \"5m\"";
const BRIEF: &str =
    "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]\nhold_max = \"10m\"";

on_both!(
    a_ttl_that_a_role_does_not_allow_is_refused_however_it_is_asked_for,
    a_lock_that_is_longer_than_newer_rules_allow_is_renewed_only_with_less,
    a_lock_that_may_be_held_longer_than_newer_rules_allow_is_not_renewed,
);

async fn site(setup: SetUp, terms: &str, ann: &Key) -> Site {
    Site::new(setup, |rules: &Rules| rules.text(terms, &[("ann", ann)])).await
}

async fn a_ttl_that_a_role_does_not_allow_is_refused_however_it_is_asked_for(setup: SetUp) {
    let ann = Key::new().await;
    let site = site(setup, SHORT, &ann).await;
    let client = site.client();
    let id = random_id();
    let ask = |ttl: &str| {
        ann.by(client.lock(&json!({ "resource": "job:1", "id": id, "ttl": ttl, "owner": "o" })))
    };
    for ttl in ["infinite", "1h", "301s"] {
        ask(ttl).send().await.refused(403, "permission-denied");
    }
    let lock: Lock = ask("5m").send().await.expect(201).parse();
    let other = json!({ "resource": "job:2", "ttl": "1m", "owner": "o" });
    let other: Lock = ann.by(client.lock(&other)).send().await.expect(201).parse();
    for ttl in ["infinite", "1h", "301s"] {
        ann.by(client.renew(&lock, Some(ttl))).send().await.refused(403, "permission-denied");
        ask(ttl).send().await.refused(403, "permission-denied");
        let many = json!({ "ids": [lock.id, other.id], "ttl": ttl });
        let many = ann.by(client.post("/locks/renew", &many)).send().await.expect(200);
        let many: RenewManyAnswer = many.parse();
        let codes: Vec<_> = many.items.iter().map(|item| item.code.as_deref()).collect();
        assert_eq!(codes, [Some("permission-denied"); 2], "{ttl}");
    }
    // Nothing of it had any effect.
    let seen: Lock = ann.by(client.lock_of(&lock)).send().await.expect(200).parse();
    assert_eq!(seen.ttl_ms, Some(300_000));
    ann.by(client.renew(&lock, Some("5m"))).send().await.expect(200);
    ask("4m").send().await.expect(200);
}

async fn a_lock_that_is_longer_than_newer_rules_allow_is_renewed_only_with_less(setup: SetUp) {
    let ann = Key::new().await;
    let site = site(setup, ANY, &ann).await;
    let client = site.client();
    let id = random_id();
    let again = json!({ "resource": "job:1", "id": id, "owner": "o" });
    let mut long = again.clone();
    long["ttl"] = json!("1h");
    let lock: Lock = ann.by(client.lock(&long)).send().await.expect(201).parse();
    site.put_in_force(&site.rules.text(SHORT, &[("ann", &ann)])).await;
    // Its ttl would start again.
    ann.by(client.renew(&lock, None)).send().await.refused(403, "permission-denied");
    ann.by(client.lock(&again)).send().await.refused(403, "permission-denied");
    ann.by(client.lock(&long)).send().await.refused(403, "permission-denied");
    let many = json!({ "ids": [lock.id] });
    let many = ann.by(client.post("/locks/renew", &many)).send().await.expect(200);
    assert_eq!(many.json()["items"][0]["code"], "permission-denied");
    // Less is allowed, and from then on what it has.
    ann.by(client.renew(&lock, Some("1m"))).send().await.expect(200);
    ann.by(client.renew(&lock, None)).send().await.expect(200);
    ann.by(client.lock(&again)).send().await.expect(200);
}

/// How long it may be held in all is settled when it is taken, so there is no less to ask for.
async fn a_lock_that_may_be_held_longer_than_newer_rules_allow_is_not_renewed(setup: SetUp) {
    let ann = Key::new().await;
    let site = site(setup, ANY, &ann).await;
    let client = site.client();
    let take = |resource: &str, hold: &str| {
        let body = json!({ "resource": resource, "ttl": "1m", "max_hold": hold, "owner": "o" });
        ann.by(client.lock(&body))
    };
    let long: Lock = take("job:1", "1h").send().await.expect(201).parse();
    let brief: Lock = take("job:2", "5m").send().await.expect(201).parse();
    let unlimited: Lock = ann
        .by(client.lock(&json!({ "resource": "job:3", "ttl": "1m", "owner": "o" })))
        .send()
        .await
        .expect(201)
        .parse();
    site.put_in_force(&site.rules.text(BRIEF, &[("ann", &ann)])).await;
    for late in [&long, &unlimited] {
        ann.by(client.renew(late, None)).send().await.refused(403, "permission-denied");
        ann.by(client.renew(late, Some("30s"))).send().await.refused(403, "permission-denied");
    }
    ann.by(client.renew(&brief, None)).send().await.expect(200);
    let many = json!({ "ids": [long.id, brief.id, unlimited.id] });
    let many = ann.by(client.post("/locks/renew", &many)).send().await.expect(200);
    let many: RenewManyAnswer = many.parse();
    let codes: Vec<_> = many.items.iter().map(|item| item.code.as_deref()).collect();
    assert_eq!(codes, [Some("permission-denied"), None, Some("permission-denied")]);
    take("job:4", "1h").send().await.refused(403, "permission-denied");
}
