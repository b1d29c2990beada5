//! Locks of credentials that rules take back, between the rules that are stored and the locks that are broken: `guard()` would
//! let them write.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fence_core::LockState;
use fence_core::ports::{AuditAction, AuditFilter, Ledger as _, Rulebook as _};
use fence_tests::conformance::ledger::build::rules_change;
use fence_tests::process::eventually;
use fence_tests::scripted::Step;
use fencegate::engine::Acquire;
use fencegate::engine::access::{Asks, NewRules, Permit, Want};
use fencegate_access::{Action, ApiKey, Identity};
use futures::FutureExt as _;
use tokio::sync::Semaphore;

use crate::engine::rig::{R, Rig, asking, name};

/// Why a gateway breaks by itself what was left.
const LEFT: &str = "its credential is revoked, or gone from the rules";

/// A lock that `ann` took by a key, which other rules may take back.
struct Held {
    rig: Rig,
    text: String,
    key: ApiKey,
}

/// Each list of locks waits here.
struct Gate {
    asked: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Held {
    async fn new() -> Self {
        let (rig, key) = (Rig::new(), ApiKey::generate().unwrap());
        let text = rules(&key);
        let lists = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&lists);
        rig.ledger.on_list(move || {
            counts.fetch_add(1, Ordering::SeqCst);
            std::future::ready(()).boxed()
        });
        rig.memory().apply_rules(rules_change(&text)).await.unwrap();
        // The look of the start comes with the first rules, and finds nothing.
        eventually("the gateway has looked", async || {
            (lists.load(Ordering::SeqCst) == 1).then_some(())
        })
        .await;
        let in_force = rig.engine.access().current().await.unwrap();
        let now = rig.engine.runtime().clock.now();
        let known = in_force.known(Some(Arc::new(Identity::Key(key.clone()))), now).unwrap();
        let asks = Asks::new(rig.engine.access(), in_force, known);
        asks.may(Want::On(Action::Lock, name(R))).await.unwrap();
        rig.engine.acquire(Acquire { permit: asks.permit(), ..asking(R) }).await.unwrap();
        Self { rig, text, key }
    }

    /// The same rules, but for the key by which the lock was taken.
    fn without_the_key(&self) -> String {
        format!("revoked = [\"key:{}\"]\n{}", self.key.kid(), self.text)
    }

    /// From now on, each list waits.
    fn gated(&self) -> Gate {
        let (asked, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (asking, until) = (Arc::clone(&asked), Arc::clone(&open));
        self.rig.ledger.on_list(move || {
            asking.add_permits(1);
            let until = Arc::clone(&until);
            async move { until.acquire().await.unwrap().forget() }.boxed()
        });
        Gate { asked, open }
    }

    /// A gateway has stored rules, and was killed before it broke a lock. Nobody else is there.
    async fn killed_after_storing(&self, text: &str) {
        self.rig.engine.shutdown();
        self.rig.memory().apply_rules(rules_change(text)).await.unwrap();
    }

    /// For which reason the lock was broken.
    async fn broken_for(&self) -> Option<String> {
        let filter =
            AuditFilter { action: Some(AuditAction::Break), limit: 10, ..AuditFilter::default() };
        let entries = self.rig.ledger.audit(filter).await.unwrap();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries[0].1.reason.clone()
    }
}

/// An administrator, and `ann`, who locks.
fn rules(key: &ApiKey) -> String {
    let line = |key: &ApiKey| {
        let (id, digest) = (key.kid(), key.digest().to_hex());
        format!(
            "keys = [{{ id = \"{id}\", sha256 = \"{digest}\", expires = 2999-01-01T00:00:00Z }}]\n"
        )
    };
    let role = |name: &str, may: &str| {
        format!("[[roles]]\nname = \"{name}\"\nallow = [{may}]\nresources = [\"*\"]\n")
    };
    let principal = |name: &str, role: &str| {
        format!("[[principals]]\nname = \"{name}\"\nroles = [\"{role}\"]\n")
    };
    let boss = ApiKey::generate().unwrap();
    role("admin", "\"admin\"")
        + &role("worker", "\"lock\", \"write\"")
        + &principal("boss", "admin")
        + &line(&boss)
        + &principal("ann", "worker")
        + &line(key)
}

#[tokio::test]
async fn an_administrator_who_hangs_up_once_the_rules_are_stored_leaves_no_lock_unbroken() {
    let held = Held::new().await;
    let gate = held.gated();
    let change = NewRules {
        follows: None,
        text: held.without_the_key(),
        reason: "it was stolen".into(),
        request_id: "test".into(),
    };
    let engine = held.rig.engine.clone();
    let applied =
        tokio::spawn(async move { engine.apply_rules(&Permit::default(), change, false).await });
    // The rules are stored, and the locks are looked for.
    gate.asked.acquire().await.unwrap().forget();
    assert_eq!(held.rig.memory().rules_generation().await.unwrap(), 2);
    held.rig.until_state(R, LockState::Leased).await;
    applied.abort();
    assert!(applied.await.unwrap_err().is_cancelled());
    gate.open.add_permits(1_000);
    held.rig.until_state(R, LockState::Broken).await;
    // By what was asked for, not by a gateway that found it later.
    assert_eq!(held.broken_for().await.as_deref(), Some("it was stolen"));
}

#[tokio::test]
async fn what_a_gateway_that_was_killed_left_is_broken_by_the_next_start() {
    let held = Held::new().await;
    held.killed_after_storing(&held.without_the_key()).await;
    held.rig.until_state(R, LockState::Leased).await;
    let next = held.rig.next();
    next.until_state(R, LockState::Broken).await;
    assert_eq!(held.broken_for().await.as_deref(), Some(LEFT));
}

/// Newer rules have given back by then what these took back: the lock stays its holder's.
#[tokio::test]
async fn a_gateway_that_has_read_older_rules_breaks_nothing_by_them() {
    let held = Held::new().await;
    held.killed_after_storing(&held.without_the_key()).await;
    let gate = held.gated();
    let tried = Arc::new(Semaphore::new(0));
    let tells = Arc::clone(&tried);
    held.rig.ledger.on_break(move |items, _| {
        assert_eq!(items[0].by.rules, Some(2), "by the rules that were read");
        let tells = Arc::clone(&tells);
        Step::act().and_then(async move { tells.add_permits(1) })
    });
    let next = held.rig.next();
    // It has read the rules that take the key back.
    gate.asked.acquire().await.unwrap().forget();
    held.rig.memory().apply_rules(rules_change(&held.text)).await.unwrap();
    gate.open.add_permits(1_000);
    tried.acquire().await.unwrap().forget();
    next.until_state(R, LockState::Leased).await;
}
