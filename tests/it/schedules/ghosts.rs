//! Ghosts: acts whose caller has gone, stopped before they got their row. What became of their ids
//! since binds them when they wake (`acts.md`, all acts, 7).
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::ports::{
    Attempt, Ledger, OperationRecord, ReleaseVerdict, SealItem, SealVerdict, WriteItem,
    WriteVerdict,
};
use fence_core::{LockEnd, Refusal};
use fence_tests::process::{eventually, signal};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::schedules::forced::{
    Ground, Held, R, applied, commit, if_match, put, refused, release, run, seal, sealing,
};

/// A stopped backend on the server that waits for the row of [`R`], and that nobody listens to.
struct Ghost {
    pid: u32,
}

impl Ghost {
    /// Stops the one backend that waits for a lock, hangs up on it, and lets the row go.
    async fn make<T>(ground: &Ground, held: Held, caller: JoinHandle<T>) -> Self {
        let pid = u32::try_from(ground.waiting(1).await[0]).unwrap();
        signal("STOP", &[pid]);
        caller.abort();
        assert!(caller.await.is_err(), "the caller had no answer");
        held.let_go().await;
        Self { pid }
    }

    /// Wakes it and waits until it has done what it was sent for.
    async fn wake(&self, ground: &Ground) {
        let mut connection = ground.connect().await;
        let query = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
        let pid = i32::try_from(self.pid).unwrap();
        signal("CONT", &[self.pid]);
        eventually("the ghost has ended", async || {
            let left = sqlx::query_scalar(query).bind(pid).fetch_one(&mut connection).await;
            let left: i64 = left.unwrap();
            (left == 0).then_some(())
        })
        .await;
    }
}

impl Drop for Ghost {
    fn drop(&mut self) {
        signal("CONT", &[self.pid]);
    }
}

/// A write that stopped before its row: it demands that the object be at version 2, which it is not
/// yet.
async fn ghost_write(ground: &Ground) -> (Ghost, WriteItem) {
    ground.sealed(R, 1).await;
    ground.written(put(R, 1, "one")).await;
    let item = if_match(2, put(R, 1, "ghost"));
    let held = ground.hold_fence(R).await;
    let caller = ground.commit_later(item.clone());
    (Ghost::make(ground, held, caller).await, item)
}

fn rerun(item: &WriteItem) -> WriteItem {
    WriteItem { attempt: Attempt::Rerun, ..item.clone() }
}

/// The bodies of all objects.
async fn bodies(ground: &Ground) -> Vec<Vec<u8>> {
    let query = "SELECT body FROM fencegate.objects ORDER BY resource, key";
    sqlx::query_scalar(query).fetch_all(&mut ground.connect().await).await.unwrap()
}

#[tokio::test]
async fn a_ghost_write_that_nobody_buried_takes_effect_late() {
    let ground = Ground::new().await;
    let (ghost, item) = ghost_write(&ground).await;
    assert_eq!(ground.ledger.operation(item.operation).await.unwrap(), None);
    ground.written(put(R, 1, "two")).await;
    ghost.wake(&ground).await;
    // Absent was not "not applied": without this, the tests below would prove nothing.
    let record = ground.ledger.operation(item.operation).await.unwrap();
    assert!(matches!(record, Some(OperationRecord::Applied(_))), "{record:?}");
    assert_eq!(bodies(&ground).await, [b"ghost"]);
}

#[tokio::test]
pub async fn a_rerun_that_is_refused_buries_the_ghost() {
    let ground = Ground::new().await;
    let (ghost, item) = ghost_write(&ground).await;
    assert_eq!(refused(commit(&ground.ledger, rerun(&item)).await), Refusal::VersionMismatch);
    // What the ghost demands comes true.
    assert_eq!(ground.written(put(R, 1, "two")).await.version, Some(2));
    ghost.wake(&ground).await;
    let record = ground.ledger.operation(item.operation).await.unwrap();
    assert_eq!(record, Some(OperationRecord::Buried));
    assert_eq!(bodies(&ground).await, [b"two"]);
    assert_eq!(
        ground.number("SELECT coalesce(max(version), 0) FROM fencegate.operations").await,
        2
    );
    assert_eq!(ground.number("SELECT count(version) FROM fencegate.operations").await, 2);
    // And it stays so for every later sending.
    assert_eq!(commit(&ground.ledger, rerun(&item)).await, WriteVerdict::Buried);
    assert_eq!(commit(&ground.ledger, item).await, WriteVerdict::Buried);
}

#[tokio::test]
pub async fn a_rerun_that_was_given_up_buries_the_ghost() {
    let ground = Ground::new().await;
    let (ghost, item) = ghost_write(&ground).await;
    let given_up = WriteItem { attempt: Attempt::Bury, ..item.clone() };
    assert_eq!(commit(&ground.ledger, given_up).await, WriteVerdict::Buried);
    ground.written(put(R, 1, "two")).await;
    ghost.wake(&ground).await;
    let record = ground.ledger.operation(item.operation).await.unwrap();
    assert_eq!(record, Some(OperationRecord::Buried));
    assert_eq!(bodies(&ground).await, [b"two"]);
}

#[tokio::test]
pub async fn a_rerun_that_takes_effect_leaves_the_ghost_nothing_to_do() {
    let ground = Ground::new().await;
    let (ghost, item) = ghost_write(&ground).await;
    ground.written(put(R, 1, "two")).await;
    let done = applied(commit(&ground.ledger, rerun(&item)).await);
    assert_eq!((done.operation, done.version), (item.operation, Some(3)));
    ground.written(put(R, 1, "four")).await;
    ghost.wake(&ground).await;
    assert_eq!(bodies(&ground).await, [b"four"]);
    assert_eq!(
        ground.number("SELECT coalesce(max(version), 0) FROM fencegate.operations").await,
        4
    );
    let again = applied(commit(&ground.ledger, rerun(&item)).await);
    assert_eq!((again.operation, again.version), (item.operation, Some(3)));
}

/// A seal that stopped before its row.
async fn ghost_seal(ground: &Ground) -> (Ghost, SealItem) {
    ghost_seal_behind(ground, "held").await
}

/// The same, behind a lock that has expired (`held`), or was given back.
async fn ghost_seal_behind(ground: &Ground, first: &str) -> (Ghost, SealItem) {
    ground.sealed(R, 1).await;
    let stands = format!("UPDATE fencegate.fences SET hold = '{first}'");
    run(&mut ground.connect().await, &stands).await;
    let item = sealing(R, 2);
    let held = ground.hold_fence(R).await;
    let caller = ground.seal_later(item.clone());
    (Ghost::make(ground, held, caller).await, item)
}

#[tokio::test]
async fn a_ghost_seal_that_nobody_buried_takes_effect_late() {
    let ground = Ground::new().await;
    let (ghost, item) = ghost_seal(&ground).await;
    assert_eq!(ground.ledger.lock(item.lock).await.unwrap(), None);
    ghost.wake(&ground).await;
    let record = ground.ledger.lock(item.lock).await.unwrap().unwrap();
    assert_eq!((record.grant.token.get(), record.ended), (2, None));
}

#[tokio::test]
pub async fn a_release_of_an_unknown_id_buries_its_ghost() {
    for first in ["held", "released"] {
        let ground = Ground::new().await;
        let (ghost, item) = ghost_seal_behind(&ground, first).await;
        assert_eq!(release(&ground.ledger, item.lock).await, ReleaseVerdict::Buried);
        ghost.wake(&ground).await;
        assert_eq!(ground.ledger.lock(item.lock).await.unwrap(), None);
        assert_eq!(ground.number("SELECT token FROM fencegate.fences").await, 1);
        let again = seal(&ground.ledger, item).await.unwrap();
        assert_eq!(again, SealVerdict::Ended(LockEnd::Released), "{first}");
    }
}

#[tokio::test]
pub async fn a_rerun_of_a_seal_that_is_refused_buries_the_ghost() {
    let ground = Ground::new().await;
    let (ghost, item) = ghost_seal(&ground).await;
    let rerun = SealItem { attempt: Attempt::Rerun, number: None, ..item.clone() };
    assert_eq!(seal(&ground.ledger, rerun).await.unwrap(), SealVerdict::NumberTooLow);
    ghost.wake(&ground).await;
    assert_eq!(ground.ledger.lock(item.lock).await.unwrap(), None);
    assert_eq!(ground.number("SELECT token FROM fencegate.fences").await, 1);
}

#[tokio::test]
pub async fn a_release_of_an_id_that_is_just_being_sealed_leaves_no_lock_behind() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    // Stops the seal after it has looked for its id among the buried ones, and before it is done:
    // it waits to see what becomes of a row with the key that it is about to use.
    let held = ground
        .hold(
            "INSERT INTO fencegate.grants (resource, token, lock_id, owner, ordinal, at)
             VALUES ('r', 2, gen_random_uuid(), 'nobody', 9, now())",
        )
        .await;
    let item = sealing(R, 2);
    let seal = ground.seal_later(item.clone());
    ground.waiting(1).await;
    // As the engine does: what is busy is tried again.
    let is_answered = Notify::new();
    let releasing = eventually("the lock is released", async || {
        let verdict = release(&ground.ledger, item.lock).await;
        is_answered.notify_one();
        (verdict != ReleaseVerdict::Busy).then_some(verdict)
    });
    let rest = async {
        // A release waits for the seal; one that does not has missed it by then.
        tokio::select! {
            _ = ground.waiting(2) => {}
            () = is_answered.notified() => {}
        }
        held.let_go().await;
        seal.await.unwrap()
    };
    let (released, sealed) = tokio::join!(releasing, rest);
    let record = ground.ledger.lock(item.lock).await.unwrap();
    let live = record.is_some_and(|record| record.ended.is_none());
    assert!(!live, "sealed: {sealed:?}; released: {released:?}; and still there");
}
