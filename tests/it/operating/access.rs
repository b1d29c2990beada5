//! Rules of access, from the first key to the revocation of the last: what a command put in force holds on all gateways
//! when it has ended.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_tests::access::{Key, Rules};
use fence_tests::client::Client;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use serde_json::json;
use tempfile::TempDir;

use crate::setup::SetUp;

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";
const LOOKS: &str = "allow = [\"read\"]\nresources = [\"job:*\"]";

async fn first_key(gateway: &Gateway, home: &TempDir) -> String {
    let file = home.path().join("first.toml");
    let (code, out, log) = gateway.run(&["access", "init", file.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{out}{log}");
    let (code, _, log) = gateway.run(&["access", "init", file.to_str().unwrap()]).await;
    assert!(code == Some(1) && log.contains("cannot write"), "{log}");
    let (code, _, log) = gateway.run(&["access", "init", &format!("{}2", file.display())]).await;
    assert!(code == Some(1) && log.contains("are in force"), "{log}");
    assert!(!home.path().join("first.toml2").exists());
    out.lines().last().unwrap().to_owned()
}

#[tokio::test]
async fn rules_hold_on_all_gateways_when_the_command_has_ended() {
    let settings = SetUp::Clustered.settings().await;
    let (one, other) = (settings.clone().start().await, settings.start().await);
    let rules = Rules::new().await;
    let both = [one.client(), other.client()];
    let job = || json!({ "resource": "job:1", "ttl": "1h" });
    both[0].lock(&json!({ "resource": "job:0" })).send().await.expect(201);

    // Whoever shows nothing is nobody from now on, at the gateway that has not heard of it, too.
    let first = first_key(&one, &rules.home).await;
    for client in &both {
        client.lock(&job()).send().await.refused(401, "unauthenticated");
        client.get("/resources/job:0").send().await.refused(401, "unauthenticated");
    }
    let first = Key::known(first);
    first.by(both[1].get("/resources/job:0")).send().await.expect(200);

    let (ann, bob) = (Key::new().await, Key::new().await);
    let people = [("ann", &ann), ("bob", &bob)];
    let (code, told) = rules.apply(&one, &rules.text(WORKS, &people)).await;
    assert!(code == Some(0) && told.contains("generation 2"), "{told}");
    first.by(both[1].get("/resources/job:0")).send().await.refused(401, "unauthenticated");
    // What rules newly allow is heard of within a second or so.
    for client in &both {
        eventually("the new rules are known", async || {
            let seen = ann.by(client.get("/resources/job:0")).send().await;
            (seen.status == 200).then_some(())
        })
        .await;
    }
    let lock = ann.by(both[0].lock(&job())).send().await.expect(201).parse();
    foreign(&both[1], &bob, &lock).await;
    ann.by(both[1].put("job:1", "k", "x").under(&lock)).send().await.expect(201);
    ann.by(both[0].lock(&json!({ "resource": "other:1" })))
        .send()
        .await
        .refused(403, "permission-denied");

    // Less, and then nothing: at once, everywhere.
    let (code, told) = rules.apply(&one, &rules.text(LOOKS, &people)).await;
    assert_eq!(code, Some(0), "{told}");
    for client in &both {
        let late = client.put("job:1", "k", "late").under(&lock);
        ann.by(late).send().await.refused(403, "permission-denied");
        let seen = ann.by(client.read("job:1", "k")).send().await.expect(200);
        assert_eq!(seen.text(), "x");
    }
    let (code, told) = rules.apply(&other, &rules.text(LOOKS, &[("bob", &bob)])).await;
    assert_eq!(code, Some(0), "{told}");
    for client in &both {
        ann.by(client.read("job:1", "k")).send().await.refused(401, "unauthenticated");
        bob.by(client.read("job:1", "k")).send().await.expect(200);
    }

    let (code, told, log) = one.run(&["access", "show"]).await;
    assert!(
        code == Some(0) && told.starts_with("# generation 4\n") && told.contains("bob"),
        "{log}"
    );
    assert!(!told.contains(&bob.text), "it has digests alone");
}

/// With the right token and the right id, somebody else gets nowhere, and learns nothing.
async fn foreign(client: &Client, key: &Key, lock: &fence_core::wire::Lock) {
    let write = client.put("job:1", "k", "foreign").under(lock);
    key.by(write).send().await.refused(403, "fence-token-unknown");
    key.by(client.renew(lock, None)).send().await.refused(404, "lock-not-found");
    key.by(client.release(lock)).send().await.refused(404, "lock-not-found");
    key.by(client.lock_of(lock)).send().await.refused(404, "lock-not-found");
}

#[tokio::test]
async fn bad_rules_change_nothing() {
    let gateway = SetUp::Clustered.settings().await.start().await;
    let rules = Rules::new().await;
    let ann = Key::new().await;
    for (text, says) in [
        ("", "has a role that allows `admin`"),
        ("[[rolls]]", "unknown field"),
        (&rules.text("allow = [\"lock\"]\nresources = [\"job*\"]", &[("ann", &ann)]), "job*"),
        (&rules.text(WORKS, &[("ann", &ann), ("ann", &ann)]), "ann"),
    ] {
        let (code, told) = rules.apply(&gateway, text).await;
        assert!(code == Some(1) && told.contains(says), "{says}: {told}");
        gateway.client().lock(&json!({ "resource": "job:1" })).send().await.expect(201);
        gateway
            .client()
            .break_lock("job:1", &json!({ "reason": "again" }))
            .send()
            .await
            .expect(200);
    }
    let (_, told, _) = gateway.run(&["access", "show"]).await;
    assert!(told.contains("no rules are in force"), "{told}");
}

#[tokio::test]
async fn a_data_directory_gets_rules_while_no_gateway_uses_it() {
    let home = TempDir::new().unwrap();
    let mut gateway = SetUp::Embedded.settings().await.start().await;
    gateway.term();
    gateway.wait_for_exit().await;
    let first = Key::known(first_key(&gateway, &home).await);
    gateway.spawn();
    gateway.wait_until_ready().await;
    let client = gateway.client();
    client.lock(&json!({ "resource": "job:1" })).send().await.refused(401, "unauthenticated");
    let lock =
        first.by(client.lock(&json!({ "resource": "job:1" }))).send().await.expect(201).parse();
    first.by(client.put("job:1", "k", "x").under(&lock)).send().await.expect(201);
}
