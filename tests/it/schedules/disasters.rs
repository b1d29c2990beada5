//! A new epoch and a re-fence, while acts are under way and from several gateways.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use fencegate::ledger::postgres::acts::named;
use std::sync::Arc;

use fence_core::Refusal;
use fence_core::ports::{Ledger, LedgerError, Line, Patience, REFENCE_JUMP, Refence, SealVerdict};
use uuid::Uuid;

use crate::schedules::forced::{Ground, R, applied, commit, put, refused, run, sealing};

const REFENCE: &str = "SELECT acts.refence(gen_random_uuid(), 0, 0, 0, 'test', true)";

/// A line without adoptions.
fn line(generation: i64) -> Line {
    Line { generation, adoptions: 0 }
}

fn asked(forced: bool) -> Refence {
    Refence {
        nonce: Uuid::new_v4(),
        number: 0,
        known_base: 0,
        known_generation: 0,
        why: "test".into(),
        forced,
        seen: None,
    }
}

#[tokio::test]
pub async fn a_new_epoch_begins_above_the_seals_under_way_and_delays_no_write() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    ground.sealed("other", 2).await;
    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 30));
    ground.waiting(1).await;
    let other = ground.other_ledger();
    let nonce = Uuid::new_v4();
    let switch = tokio::spawn(async move { other.switch_epoch(0, nonce, 0, "test").await });
    ground.kept_waiting(&switch, 2).await;
    for version in 1..=5 {
        let write = ground.commit_later(put("other", 2, "x"));
        ground.ended_or_waiting(&write, 3).await;
        assert!(write.is_finished(), "it waits for the switch");
        assert_eq!(applied(write.await.unwrap()).version, Some(version));
    }
    held.let_go().await;
    let seal = seal.await.unwrap();
    let Ok(SealVerdict::Sealed(grant, _)) = seal else { panic!("{seal:?}") };
    assert_eq!(grant.token.get(), 30, "sealed in the old epoch, before the switch");
    let epoch = switch.await.unwrap().unwrap();
    assert_eq!((epoch.number, epoch.base, epoch.nonce, epoch.open), (1, 30, nonce, false));
}

#[tokio::test]
pub async fn a_refence_comes_after_the_writes_that_passed_and_voids_those_that_wait() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    ground.sealed("other", 2).await;
    let held = ground.hold_fence(R).await;
    let before = ground.commit_later(put(R, 1, "before"));
    ground.waiting(1).await;
    let other = ground.other_ledger();
    let refence = tokio::spawn(async move { other.refence(asked(true)).await });
    ground.kept_waiting(&refence, 2).await;
    let after = ground.commit_later(put("other", 2, "after"));
    ground.waiting(3).await;
    held.let_go().await;
    assert_eq!(applied(before.await.unwrap()).version, Some(1));
    let epoch = refence.await.unwrap().unwrap();
    assert_eq!((epoch.number, epoch.base), (1, 2 + REFENCE_JUMP));
    assert_eq!(refused(after.await.unwrap()), Refusal::Void);
    assert_eq!(refused(commit(&ground.ledger, put(R, 1, "late")).await), Refusal::Void);
}

#[tokio::test]
async fn a_seal_that_waits_for_a_refence_is_not_made() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let refence = ground.hold(REFENCE).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(1).await;
    refence.commit().await;
    assert_eq!(seal.await.unwrap().unwrap_err(), LedgerError::EpochMoved);
    let again = ground.ledger.seal(1, [sealing(R, 1)].into(), Patience::Skip).await.unwrap();
    let [SealVerdict::Sealed(grant, _)] = &again[..] else { panic!("{again:?}") };
    assert_eq!(grant.token.get(), 2 + REFENCE_JUMP);
}

#[tokio::test]
pub async fn a_halted_ledger_is_refused_by_every_gateway_until_one_refences_it() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let (one, other) = (Arc::clone(&ground.ledger), ground.other_ledger());
    for ledger in [&one, &other] {
        assert_eq!(ledger.place(None).await.unwrap().called_for, None);
    }
    // What was seen in another generation says nothing about this one.
    one.halt(line(7), "long ago").await.unwrap();
    assert_eq!(ground.written(put(R, 1, "x")).await.version, Some(1));
    one.halt(line(0), "it has lost commits").await.unwrap();
    let halted = Err(LedgerError::RefenceRequired("it has lost commits".into()));
    for ledger in [&one, &other] {
        assert_eq!(ledger.epoch().await, halted);
        assert_eq!(ledger.switch_epoch(0, Uuid::new_v4(), 0, "test").await, halted);
        let place = ledger.place(None).await.unwrap();
        assert_eq!(place.called_for.as_deref(), Some("it has lost commits"));
    }
    let epoch = other.refence(asked(false)).await.unwrap();
    assert_eq!((epoch.number, epoch.base), (1, 1 + REFENCE_JUMP));
    assert_eq!(other.epoch().await, Ok(epoch.clone()));
    // What the ledger's own guard says, no gateway holds against it any longer than that.
    assert_eq!(one.epoch().await, Ok(epoch.clone()));
    let place = one.place(None).await.unwrap();
    assert_eq!((place.called_for, place.generation), (None, 1));
    assert_eq!(one.epoch().await, Ok(epoch.clone()));
    one.halt(line(0), "late news of the old generation").await.unwrap();
    assert_eq!(one.refence(asked(false)).await, Ok(epoch), "nothing calls for it any more");
}

#[tokio::test]
async fn another_timeline_or_system_calls_for_a_refence_which_takes_it() {
    for set in ["timeline = '0000002A'", "system_id = 7", "tables = 7"] {
        for table in ["seal_guard", "write_guard"] {
            let ground = Ground::new().await;
            ground.sealed(R, 1).await;
            let mut operator = ground.connect().await;
            run(&mut operator, &format!("UPDATE fencegate.{table} SET {set}")).await;
            let called_for = ground.ledger.place(None).await.unwrap().called_for;
            assert!(called_for.is_some(), "{table}, {set}");
            ground.ledger.refence(asked(false)).await.unwrap();
            let place = ground.ledger.place(None).await.unwrap();
            assert_eq!((place.called_for, place.generation), (None, 1), "{table}, {set}");
            assert_eq!(refused(commit(&ground.ledger, put(R, 1, "late")).await), Refusal::Void);
        }
    }
}

/// What halts the ledger has to wait for the acts under way, and no longer: those that come later wait behind it,
/// and find the ledger halted. So it is not starved, however many acts overlap.
#[tokio::test]
async fn a_halt_comes_before_the_acts_that_begin_after_it() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    ground.sealed("other", 2).await;
    let held = ground.hold_fence(R).await;
    let before = ground.commit_later(put(R, 1, "before"));
    ground.waiting(1).await;
    let other = ground.other_ledger();
    let halt = tokio::spawn(async move { other.halt(line(0), "the test says so").await });
    ground.kept_waiting(&halt, 2).await;
    let patient = ground.other_ledger();
    let item = put("other", 2, "after");
    let after = tokio::spawn(async move { patient.commit(Arc::new([item]), Patience::Skip).await });
    ground.kept_waiting(&after, 3).await;
    held.let_go().await;
    assert_eq!(applied(before.await.unwrap()).version, Some(1));
    halt.await.unwrap().unwrap();
    let after = after.await.unwrap();
    assert!(matches!(after, Err(LedgerError::RefenceRequired(_))), "{after:?}");
}

/// A row that several acts share needs a multixact for each of them, of which there are not enough for long.
#[tokio::test]
async fn no_act_locks_the_row_of_a_guard() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let locked = "SELECT (SELECT xmax::text::bigint FROM fencegate.write_guard)
                       + (SELECT xmax::text::bigint FROM fencegate.seal_guard)";
    let before = ground.number(locked).await;
    let held = ground.hold_fence(R).await;
    let write = ground.commit_later(put(R, 1, "x"));
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(2).await;
    assert_eq!(ground.number(locked).await, before);
    held.let_go().await;
    applied(write.await.unwrap());
    seal.await.unwrap().unwrap();
}

/// The end of an act that has written nothing makes nothing durable. A position that it told would be behind what
/// others have inserted, and a crash may take that back without anything being lost.
#[tokio::test]
async fn an_act_that_wrote_nothing_tells_no_position() {
    let ground = Ground::new().await;
    let renewal = "SELECT max(flushed) FROM acts.renew(
                       0, 0, ARRAY[gen_random_uuid()], ARRAY[NULL::bigint], NULL, NULL, NULL, NULL)";
    assert_eq!(ground.number(renewal).await, 0);
    let release = "SELECT max(flushed) FROM acts.release(
                       0, 0, ARRAY[gen_random_uuid()], ARRAY[NULL::bigint], ARRAY[true], NULL, NULL)";
    assert!(ground.number(release).await > 0, "it has buried an id");
}

#[tokio::test]
async fn the_acts_on_disasters_refuse_any_isolation_but_read_committed() {
    let ground = Ground::new().await;
    let switch = "SELECT acts.switch_epoch(0, 0, gen_random_uuid(), 0, 'test')";
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for act in [REFENCE, switch] {
            let mut connection = ground.connect().await;
            run(&mut connection, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            let call = sqlx::AssertSqlSafe(named(act));
            let error = sqlx::query(call).execute(&mut connection).await.unwrap_err();
            let code = error.as_database_error().and_then(|error| error.code());
            assert_eq!(code.as_deref(), Some("FG003"), "{level}, {act}: {error}");
        }
    }
}
