//! Acts whose answer was lost, and that find other rules of access when they are sent again. Whoever asked may not do it
//! any more, but it may have been done.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fence_core::memory::MemoryLedger;
use fence_core::ports::{Grant, Ledger as _, Rulebook as _, RulesChanged};
use fence_core::{LockEnd, LockState};
use fence_tests::conformance::ledger::build::rules_change;
use fence_tests::scripted::{Step, lost};
use fencegate::engine::access::{Asks, Permit, Want};
use fencegate::engine::{Acquire, EngineError, Write};
use fencegate_access::{Action, ApiKey, Identity};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::engine::rig::{R, Rig, asking, counter, name, put};

/// An engine with rules in force, and what `ann` may do by them, who has a lock.
struct Ruled {
    rig: Rig,
    permit: Permit,
    grant: Grant,
}

/// Rules that allow this to `ann`.
fn rules(key: &ApiKey, may: &str) -> String {
    let (id, digest) = (key.kid(), key.digest().to_hex());
    format!(
        "[[roles]]\nname = \"r\"\nallow = [{may}]\nresources = [\"*\"]\n[[principals]]\nname = \"ann\"\nroles = [\"r\"]\n\
         keys = [{{ id = \"{id}\", sha256 = \"{digest}\", expires = 2999-01-01T00:00:00Z }}]\n"
    )
}

impl Ruled {
    async fn new() -> (Self, ApiKey) {
        let (rig, key) = (Rig::new(), ApiKey::generate().unwrap());
        let all = rules(&key, "\"lock\", \"write\", \"break\"");
        rig.memory().apply_rules(rules_change(&all)).await.unwrap();
        let in_force = rig.engine.access().current().await.unwrap();
        let now = rig.engine.runtime().clock.now();
        let identity = Arc::new(Identity::Key(key.clone()));
        let known = in_force.known(Some(identity), now).unwrap();
        let asks = Asks::new(rig.engine.access(), in_force, known);
        for action in [Action::Lock, Action::Write, Action::Break] {
            asks.may(Want::On(action, name(R))).await.unwrap();
        }
        let permit = asks.permit();
        let wish = Acquire { permit: permit.clone(), ..asking(R) };
        let grant = rig.engine.acquire(wish).await.unwrap().grant;
        (Self { rig, permit, grant }, key)
    }
}

/// Puts rules in force under which `ann` may only read.
fn take_away(memory: &Arc<MemoryLedger>, key: &ApiKey) -> BoxFuture<'static, ()> {
    let (memory, less) = (Arc::clone(memory), rules_change(&rules(key, "\"read\"")));
    async move {
        let changed = memory.apply_rules(less).await.unwrap();
        assert!(matches!(changed, RulesChanged::InForce(_)), "{changed:?}");
    }
    .boxed()
}

/// The first call is lost, whether the ledger has acted or not, and the rules move behind it. All others are the ledger's.
fn lost_once<V>(
    rig: &Rig,
    key: &ApiKey,
    acts: bool,
    mut call: impl FnMut() -> usize + Send + 'static,
) -> impl FnMut() -> Step<V> + Send + 'static {
    let (memory, key) = (rig.memory(), key.clone());
    move || match (call(), acts) {
        (0, true) => Step::act_but(lost()).and_then(take_away(&memory, &key)),
        (0, false) => Step::fail(lost()).and_then(take_away(&memory, &key)),
        _ => Step::act(),
    }
}

/// Fails unless it is told that nobody knows, after the ledger was asked once more.
#[track_caller]
fn assert_unknown<T: std::fmt::Debug>(answer: Result<T, EngineError>, calls: usize) {
    assert!(matches!(answer, Err(EngineError::OutcomeUnknown { .. })), "{answer:?}");
    assert_eq!(calls, 2, "it was sent again, and found other rules");
}

#[tokio::test]
async fn a_break_that_was_lost_before_the_rules_took_the_right_away_is_unknown() {
    for acts in [true, false] {
        let (Ruled { rig, permit, grant }, key) = Ruled::new().await;
        let (calls, call) = counter();
        let mut step = lost_once(&rig, &key, acts, call);
        rig.ledger.on_break(move |_, _| step());
        let (reason, request_id) = ("test".to_owned(), "test".to_owned());
        let broken = rig.engine.break_lock(name(R), Duration::ZERO, reason, request_id, permit);
        assert_unknown(broken.await, calls.load(Ordering::Relaxed));
        let ended = rig.lock(grant.lock).await.ended.map(|(how, _)| how);
        assert_eq!(ended, acts.then_some(LockEnd::Broken));
    }
}

#[tokio::test]
async fn a_release_that_was_lost_before_the_rules_took_the_right_away_is_unknown() {
    for acts in [true, false] {
        let (Ruled { rig, permit, grant }, key) = Ruled::new().await;
        let (calls, call) = counter();
        let mut step = lost_once(&rig, &key, acts, call);
        rig.ledger.on_release(move |_, _| step());
        let released = rig.engine.release(grant.lock, permit).await;
        assert_unknown(released, calls.load(Ordering::Relaxed));
        let ended = rig.lock(grant.lock).await.ended.map(|(how, _)| how);
        assert_eq!(ended, acts.then_some(LockEnd::Released));
    }
}

#[tokio::test]
async fn a_renewal_that_was_lost_before_the_rules_took_the_right_away_is_unknown() {
    for acts in [true, false] {
        let (Ruled { rig, permit, grant }, key) = Ruled::new().await;
        let before = rig.lock(grant.lock).await.renewed_at;
        let (calls, call) = counter();
        let mut step = lost_once(&rig, &key, acts, call);
        rig.ledger.on_renew(move |_, _| step());
        let renewed = rig.engine.renew(grant.lock, None, permit).await;
        assert_unknown(renewed, calls.load(Ordering::Relaxed));
        assert_eq!(rig.lock(grant.lock).await.renewed_at > before, acts);
        rig.until_state(R, LockState::Leased).await;
    }
}

/// A write has a name by which the ledger can be asked after it, whoever may write now: it is found, or buried.
#[tokio::test]
async fn a_write_that_was_lost_before_the_rules_took_the_right_away_is_found_or_buried() {
    for acts in [true, false] {
        let (Ruled { rig, permit, grant }, key) = Ruled::new().await;
        let (_, call) = counter();
        let mut step = lost_once(&rig, &key, acts, call);
        rig.ledger.on_commit(move |_, _| step());
        let written = rig.engine.write(Write { permit, ..put(R, grant.token) }).await;
        let version = rig.ledger.resource(&name(R)).await.unwrap().unwrap().version;
        match acts {
            true => assert_eq!((written.unwrap().applied.version, version), (Some(1), 1)),
            false => {
                let error = written.unwrap_err().error;
                assert!(!matches!(error, EngineError::OutcomeUnknown { .. }), "{error:?}");
                assert_eq!(version, 0, "{error:?}");
            }
        }
    }
}
