//! What nearly all writes, seals and releases are, alone and in batches: ghosts and late comers among them.
#![expect(clippy::unwrap_used, reason = "tests may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;

use fence_core::ports::{
    Attempt, Ledger as _, Patience, ReleaseVerdict, SealItem, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{LockEnd, Refusal, Ttl};

use crate::schedules::forced::{Ground, put, run, sealing};
use crate::schedules::skipped::WAIT_LONG;

/// A lock that lasts, on a resource that is there, sealed by itself.
async fn held(ground: &Ground, resource: &str, number: i64) -> SealItem {
    let item = SealItem { ttl: Some(Ttl::from_ms(600_000)), ..sealing(resource, number) };
    let verdicts =
        ground.ledger.seal(0, [item.clone()].into(), crate::schedules::forced::WAIT).await.unwrap();
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
