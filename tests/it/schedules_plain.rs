//! The short ways of seal and release: what they judged before they had the row they judge again.
//!
//! The judgement of a fence is made to wait once it is made, so that somebody else can change the row between
//! it and the lock; whoever has locked the row since is skipped, and whoever has changed it is seen.
#![expect(clippy::unwrap_used, reason = "tests may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;

use fence_core::ports::{
    Attempt, Ledger as _, Patience, ReleaseVerdict, SealItem, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{LockEnd, Refusal, Ttl};

use crate::forced::{Ground, Held, put, run, sealing};
use crate::schedules_skipped::WAIT_LONG;

/// A ledger on which a judgement, once made, waits until the gate is let go.
async fn gated(judge: &str, parameters: &str, arguments: &str) -> (Ground, Held) {
    let ground = Ground::new().await;
    let mut connection = ground.connect().await;
    run(&mut connection, WAIT_LONG).await;
    run(&mut connection, &format!("ALTER FUNCTION acts.{judge} RENAME TO {judge}_in_fact")).await;
    run(
        &mut connection,
        &format!(
            "CREATE FUNCTION acts.{judge}({parameters}) RETURNS boolean LANGUAGE plpgsql AS $$
             DECLARE judged boolean := acts.{judge}_in_fact({arguments});
             BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN judged; END $$"
        ),
    )
    .await;
    let gate = ground.hold("SELECT pg_advisory_xact_lock(7)").await;
    (ground, gate)
}

/// A lock that lasts, on a resource that is there, sealed the long way.
async fn held(ground: &Ground, resource: &str, number: i64) -> SealItem {
    let item = SealItem { ttl: Some(Ttl::from_ms(600_000)), ..sealing(resource, number) };
    let verdicts = ground.ledger.seal(0, [item.clone()].into(), crate::forced::WAIT).await.unwrap();
    assert!(matches!(verdicts[..], [SealVerdict::Sealed(..)]), "{verdicts:?}");
    item
}

/// The answer to the first sending was lost, and its id was buried, before it got to its row.
#[tokio::test]
pub async fn a_write_that_was_buried_before_it_came_has_no_effect() {
    for more in [vec![], vec![put("b", 2, "x")]] {
        let ground = Ground::new().await;
        for (resource, number) in [("a", 1), ("b", 2)] {
            held(&ground, resource, number).await;
        }
        let item = put("a", 1, "x");
        let bury = WriteItem { attempt: Attempt::Bury, ..item.clone() };
        let verdicts = ground.ledger.commit([bury].into(), Patience::Skip).await.unwrap();
        assert!(matches!(verdicts[..], [WriteVerdict::Buried]), "{verdicts:?}");
        let items = [vec![item], more].concat();
        let verdicts = ground.ledger.commit(items.into(), Patience::Skip).await.unwrap();
        assert!(matches!(verdicts[0], WriteVerdict::Buried), "not buried: {verdicts:?}");
        let applied = |verdict: &WriteVerdict| matches!(verdict, WriteVerdict::Applied { .. });
        assert!(verdicts[1..].iter().all(applied), "{verdicts:?}");
    }
}

/// An id that took effect is found, and does so once.
#[tokio::test]
pub async fn a_write_that_is_sent_twice_takes_effect_once() {
    let ground = Ground::new().await;
    for (resource, number) in [("a", 1), ("b", 2)] {
        held(&ground, resource, number).await;
    }
    for items in [vec![put("a", 1, "x")], vec![put("a", 1, "x"), put("b", 2, "x")]] {
        for _ in 0..2 {
            let verdicts =
                ground.ledger.commit(items.clone().into(), Patience::Skip).await.unwrap();
            let applied = |verdict: &WriteVerdict| matches!(verdict, WriteVerdict::Applied { .. });
            assert!(verdicts.iter().all(applied), "{verdicts:?}");
        }
    }
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.operations").await, 3);
    assert_eq!(ground.number("SELECT count(version) FROM fencegate.operations").await, 3);
}

async fn gated_seals() -> (Ground, Held) {
    gated("is_free", "fence fencegate.fences, token bigint, floor bigint", "fence, token, floor")
        .await
}

/// What becomes of a seal if somebody does this after the fence was judged, and how the lock before it ended.
async fn sealed_before(change: &str) -> SealVerdict {
    let (ground, gate) = gated_seals().await;
    let item = held(&ground, "a", 1).await;
    let released = ground.ledger.release([item.lock.into()].into(), Patience::Skip).await.unwrap();
    assert!(matches!(released[..], [ReleaseVerdict::Released { .. }]), "{released:?}");
    let item = SealItem { ttl: Some(Ttl::from_ms(600_000)), ..sealing("a", 5) };
    let bury = change.replace("$lock", &item.lock.0.to_string());
    let ledger = Arc::clone(&ground.ledger);
    let seal = tokio::spawn(async move { ledger.seal(0, [item].into(), Patience::Skip).await });
    ground.kept_waiting(&seal, 1).await;
    run(&mut ground.connect().await, &bury).await;
    gate.let_go().await;
    seal.await.unwrap().unwrap().pop().unwrap()
}

#[tokio::test]
pub async fn a_seal_is_judged_by_the_row_that_it_locked() {
    let taken = "UPDATE fencegate.fences SET token = 6, hold = 'held', deadline = now() + '1 hour'";
    let verdict = sealed_before(taken).await;
    assert!(matches!(verdict, SealVerdict::Held(_)), "not held: {verdict:?}");
    let verdict = sealed_before("UPDATE fencegate.fences SET token = 6").await;
    assert!(matches!(verdict, SealVerdict::NumberTooLow), "not too low: {verdict:?}");
}

#[tokio::test]
pub async fn a_seal_that_was_buried_since_it_was_judged_has_no_effect() {
    let bury = "INSERT INTO fencegate.buried (kind, id, buried_at) VALUES ('lock', '$lock', now())";
    let verdict = sealed_before(bury).await;
    assert!(matches!(verdict, SealVerdict::Ended(LockEnd::Released)), "not buried: {verdict:?}");
}

/// The release of an id that nobody knows buries it, and lets go of it before the seal gets hold of it.
#[tokio::test]
pub async fn a_seal_sees_that_its_id_was_buried_before_it_had_it() {
    let ground = Ground::new().await;
    let item = held(&ground, "a", 1).await;
    ground.ledger.release([item.lock.into()].into(), Patience::Skip).await.unwrap();
    let mut connection = ground.connect().await;
    run(&mut connection, WAIT_LONG).await;
    run(&mut connection, "ALTER FUNCTION acts.lock_ids RENAME TO lock_ids_in_fact").await;
    run(
        &mut connection,
        "CREATE FUNCTION acts.lock_ids(ids uuid[], wait_ms int) RETURNS uuid[] LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM pg_advisory_xact_lock_shared(7);
             RETURN acts.lock_ids_in_fact(ids, wait_ms);
         END $$",
    )
    .await;
    let gate = ground.hold("SELECT pg_advisory_xact_lock(7)").await;
    let item = SealItem { ttl: Some(Ttl::from_ms(600_000)), ..sealing("a", 5) };
    let bury = format!(
        "INSERT INTO fencegate.buried (kind, id, buried_at) VALUES ('lock', '{}', now())",
        item.lock.0
    );
    let ledger = Arc::clone(&ground.ledger);
    let seal = tokio::spawn(async move { ledger.seal(0, [item].into(), Patience::Skip).await });
    ground.kept_waiting(&seal, 1).await;
    run(&mut connection, &bury).await;
    gate.let_go().await;
    let verdict = seal.await.unwrap().unwrap().pop().unwrap();
    assert!(matches!(verdict, SealVerdict::Ended(LockEnd::Released)), "not buried: {verdict:?}");
}

#[tokio::test]
pub async fn a_seal_sees_who_joined_the_line_since_it_was_judged() {
    let join = "
        INSERT INTO fencegate.gateways VALUES ('00000000-0000-0000-0000-000000000001', now(), true);
        INSERT INTO fencegate.waiters (ticket, lock_id, resources, owner, gateway)
        VALUES (1, gen_random_uuid(), '{a}', 'eve', '00000000-0000-0000-0000-000000000001');
        INSERT INTO fencegate.waiter_resources VALUES ('a', 1, 1)";
    let verdict = sealed_before(join).await;
    assert!(matches!(verdict, SealVerdict::Queued), "not queued: {verdict:?}");
}

/// A lock that is broken while its release is under way has not been released.
#[tokio::test]
pub async fn a_release_is_judged_by_the_row_that_it_locked() {
    let parameters = "fence fencegate.fences, lock uuid, floor bigint";
    let (ground, gate) = gated("is_in_force", parameters, "fence, lock, floor").await;
    let lock = held(&ground, "a", 1).await.lock;
    let ledger = Arc::clone(&ground.ledger);
    let release =
        tokio::spawn(async move { ledger.release([lock.into()].into(), Patience::Skip).await });
    ground.kept_waiting(&release, 1).await;
    let broken = "UPDATE fencegate.fences SET hold = 'broken';
                  UPDATE fencegate.locks SET ended = 'broken', ended_at = now()";
    run(&mut ground.connect().await, broken).await;
    gate.let_go().await;
    let verdicts = release.await.unwrap().unwrap();
    assert!(matches!(verdicts[..], [ReleaseVerdict::AlreadyEnded]), "{verdicts:?}");
    assert_eq!(
        ground.number("SELECT count(*) FROM fencegate.fences WHERE hold = 'broken'").await,
        1
    );
}

/// What each state of a fence says of a write, alone and in a batch.
#[tokio::test]
pub async fn what_is_refused_is_refused_alone_and_in_a_batch() {
    for (state, wanted) in [
        ("fences SET hold = 'released' WHERE resource = 'a'", Refusal::Released),
        ("fences SET hold = 'broken' WHERE resource = 'a'", Refusal::Broken),
        ("fences SET break_due = now() WHERE resource = 'a'", Refusal::Broken),
        ("fences SET hold = 'draining' WHERE resource = 'a'", Refusal::Draining),
        ("fences SET frozen = 'test' WHERE resource = 'a'", Refusal::Frozen),
        ("fences SET lock_id = gen_random_uuid() WHERE resource = 'a'", Refusal::LockIdMismatch),
        ("write_guard SET floor = 1", Refusal::Void),
    ] {
        let ground = Ground::new().await;
        let lock = held(&ground, "a", 1).await.lock;
        held(&ground, "b", 2).await;
        run(&mut ground.connect().await, &format!("UPDATE fencegate.{state}")).await;
        for more in [vec![], vec![put("b", 2, "x")]] {
            let item = WriteItem { lock: Some(lock), ..put("a", 1, "x") };
            let items = [vec![item], more].concat();
            let verdicts = ground.ledger.commit(items.into(), Patience::Skip).await.unwrap();
            assert_eq!(verdicts[0], WriteVerdict::Refused(wanted.clone()), "{state}");
            let applied = |verdict: &WriteVerdict| matches!(verdict, WriteVerdict::Applied { .. });
            assert!(verdicts[1..].iter().all(applied), "{state}: {verdicts:?}");
        }
    }
}

/// A release that comes late frees nothing of the next holder.
#[tokio::test]
pub async fn a_release_spares_the_next_holder() {
    let ground = Ground::new().await;
    let late = ground.sealed("a", 1).await.lock;
    held(&ground, "a", 2).await;
    let verdicts = ground.ledger.release([late.into()].into(), Patience::Skip).await.unwrap();
    assert!(matches!(verdicts[..], [ReleaseVerdict::AlreadyEnded]), "{verdicts:?}");
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.fences WHERE hold = 'held'").await, 1);
}

/// The sweeper hears of a blob that a small put has replaced, and the object is not new.
#[tokio::test]
pub async fn a_blob_that_a_small_put_replaces_is_kept_for_a_while() {
    for more in [vec![], vec![put("b", 2, "x")]] {
        let ground = Ground::new().await;
        for (resource, number) in [("a", 1), ("b", 2)] {
            held(&ground, resource, number).await;
        }
        let put_a = || vec![put("a", 1, "x")];
        ground.ledger.commit(put_a().into(), Patience::Skip).await.unwrap();
        let blob = "UPDATE fencegate.objects SET body = NULL, blob = gen_random_uuid()";
        run(&mut ground.connect().await, blob).await;
        let items = [put_a(), more].concat();
        let verdicts = ground.ledger.commit(items.into(), Patience::Skip).await.unwrap();
        let WriteVerdict::Applied { applied, .. } = &verdicts[0] else { panic!("{verdicts:?}") };
        assert_eq!((applied.version, applied.created), (Some(2), false));
        let kept = "SELECT count(*) FROM fencegate.replaced_versions WHERE blob IS NOT NULL";
        assert_eq!(ground.number(kept).await, 1, "it is kept");
        let here = "SELECT count(*) FROM fencegate.objects WHERE body IS NOT NULL AND blob IS NULL";
        assert_eq!(ground.number(here).await, verdicts.len() as i64);
        assert_eq!(
            ground.number("SELECT sum(objects)::bigint FROM fencegate.fences").await,
            verdicts.len() as i64
        );
    }
}
