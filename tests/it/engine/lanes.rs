//! One principal whose rows are all blocked, beside another.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fence_core::Token;
use fence_core::ports::{Patience, Rulebook as _, WriteVerdict};
use fence_tests::conformance::ledger::build::rules_change;
use fence_tests::process::eventually;
use fence_tests::scripted::Step;
use fencegate::engine::access::{Asks, Permit, Want};
use fencegate::engine::{Acquire, Write};
use fencegate_access::{Action, ApiKey, Identity};
use tokio::sync::Notify;

use crate::engine::rig::{Rig, asking, counter, name, opened, put};

/// Rules by which these keys lock and write.
fn rules(keys: &[(&str, &ApiKey)]) -> String {
    let role = "[[roles]]\nname = \"r\"\nallow = [\"lock\", \"write\"]\nresources = [\"*\"]\n";
    let principals = keys.iter().map(|(name, key)| {
        let (id, digest) = (key.kid(), key.digest().to_hex());
        format!(
            "[[principals]]\nname = \"{name}\"\nroles = [\"r\"]\n\
             keys = [{{ id = \"{id}\", sha256 = \"{digest}\", expires = 2999-01-01T00:00:00Z }}]\n"
        )
    });
    role.to_owned() + &principals.collect::<String>()
}

/// A lock that somebody has taken: what allows a write under it, and its token.
async fn locked(rig: &Rig, key: &ApiKey, resource: &str) -> (Permit, Token) {
    let in_force = rig.engine.access().current().await.unwrap();
    let now = rig.engine.runtime().clock.now();
    let known = in_force.known(Some(Arc::new(Identity::Key(key.clone()))), now).unwrap();
    let asks = Asks::new(rig.engine.access(), in_force, known);
    for action in [Action::Lock, Action::Write] {
        asks.may(Want::On(action, name(resource))).await.unwrap();
    }
    let permit = asks.permit();
    let wish = Acquire { permit: permit.clone(), ..asking(resource) };
    let token = rig.engine.acquire(wish).await.unwrap().grant.token;
    (permit, token)
}

/// 1. All that `ann` writes waits for rows that are kept for long, in as many statements as she may have.
/// 2. A row of `bob` is kept for long, too, and comes free: he has it while all of hers still wait.
#[tokio::test(start_paused = true)]
async fn a_principal_whose_rows_are_all_blocked_leaves_a_slot_to_others() {
    let (rig, ann, bob) = (Rig::new(), ApiKey::generate().unwrap(), ApiKey::generate().unwrap());
    let text = rules(&[("ann", &ann), ("bob", &bob)]);
    rig.memory().apply_rules(rules_change(&text)).await.unwrap();
    let (kept, (stuck, mut count)) = (Arc::new(Notify::new()), counter());
    let gate = Arc::clone(&kept);
    rig.ledger.on_commit(move |items, patience| {
        let is_of_bob = |resource: &str| resource.starts_with("bob");
        let are_of_bob = items.iter().all(|item| is_of_bob(item.resource.as_str()));
        let busy = || Step::each(items.iter().map(|_| Some(WriteVerdict::Busy)).collect());
        match patience {
            Patience::Wait(time) if time > Duration::from_millis(100) && are_of_bob => Step::act(),
            Patience::Wait(time) if time > Duration::from_millis(100) => {
                count();
                busy().after(opened(&gate))
            }
            _ => busy(),
        }
    });
    // Step 1.
    let write = |resource: String, (permit, token): (Permit, Token)| {
        let engine = rig.engine.clone();
        tokio::spawn(async move { engine.write(Write { permit, ..put(&resource, token) }).await })
    };
    let mut held = Vec::new();
    for number in 0..20 {
        let resource = format!("ann:{number}");
        let lock = locked(&rig, &ann, &resource).await;
        held.push(write(resource, lock));
    }
    eventually("as many as may wait for their rows", async || {
        (stuck.load(Ordering::Relaxed) >= 3).then_some(())
    })
    .await;
    // Step 2.
    let lock = locked(&rig, &bob, "bob").await;
    let written = write("bob".to_owned(), lock).await.unwrap().unwrap();
    assert_eq!(written.applied.version, Some(1));
    assert_eq!(stuck.load(Ordering::Relaxed), 3, "and none of hers had its row");
    kept.notify_waiters();
    for one in held {
        assert!(one.await.unwrap().is_err());
    }
}
