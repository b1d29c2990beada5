//! The guard moves while acts wait, and acts wait while the guard is to move (`safety.md` F11).

use fence_core::Refusal;
use fence_core::ports::{By, Ledger, LedgerError, Patience, RenewItem, RenewVerdict, SealVerdict};
use fence_core::{LockEnd, ports::ReleaseVerdict};
use fencegate::ledger::postgres::acts::named;

use crate::schedules::forced::{
    Ground, R, applied, commit, keyed, put, refused, release, replayed, run, sealing,
};

pub const RAISE_FLOOR: &str = "UPDATE fencegate.write_guard SET floor = 5";

#[tokio::test]
pub async fn a_write_that_waits_while_the_floor_rises_is_void() {
    let ground = Ground::new().await;
    let grant = ground.sealed(R, 1).await;
    let raising = ground.hold(RAISE_FLOOR).await;
    let write = ground.commit_later(put(R, 1, "late"));
    ground.kept_waiting(&write, 1).await;
    raising.commit().await;
    assert_eq!(refused(write.await.unwrap()), Refusal::Void);
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.operations").await, 0);
    let renewal = RenewItem { lock: grant.lock, ttl: None, by: By::default() };
    let renewal = ground.ledger.renew([renewal].into(), Patience::Skip).await.unwrap();
    assert_eq!(renewal, [RenewVerdict::Ended(LockEnd::Void)]);
    assert_eq!(release(&ground.ledger, grant.lock).await, ReleaseVerdict::AlreadyEnded);
}

#[tokio::test]
async fn a_write_that_waits_while_the_floor_does_not_rise_after_all_is_admitted() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let raising = ground.hold(RAISE_FLOOR).await;
    let write = ground.commit_later(put(R, 1, "x"));
    ground.waiting(1).await;
    raising.let_go().await;
    assert_eq!(applied(write.await.unwrap()).version, Some(1));
}

#[tokio::test]
async fn the_floor_rises_only_after_the_writes_that_passed_it() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let write = ground.commit_later(keyed("once", put(R, 1, "x")));
    ground.waiting(1).await;
    let mut operator = ground.connect().await;
    let raising = run(&mut operator, RAISE_FLOOR);
    let rest = async {
        ground.waiting(2).await;
        held.let_go().await;
        write.await.unwrap()
    };
    let ((), write) = tokio::join!(raising, rest);
    let first = applied(write);
    assert_eq!(refused(commit(&ground.ledger, put(R, 1, "y")).await), Refusal::Void);
    // What took effect stays known, whatever became of its token.
    let retry = commit(&ground.ledger, keyed("once", put(R, 1, "x"))).await;
    assert_eq!(replayed(retry), first);
}

#[tokio::test]
pub async fn a_seal_that_waits_while_the_epoch_changes_is_not_made() {
    for take in ["LOCK TABLE fencegate.seal_guard IN EXCLUSIVE MODE", "SELECT"] {
        let ground = Ground::new().await;
        ground.sealed(R, 1).await;
        let mut switch = ground.hold(take).await;
        run(&mut switch.connection, "UPDATE fencegate.seal_guard SET epoch = 1, base = 100").await;
        let seal = ground.seal_later(sealing(R, 2));
        ground.kept_waiting(&seal, 1).await;
        switch.commit().await;
        assert_eq!(seal.await.unwrap().unwrap_err(), LedgerError::EpochMoved, "{take}");
        assert_eq!(ground.number("SELECT token FROM fencegate.fences").await, 1);
        // In the new epoch the same number is worth more.
        let again = ground.ledger.seal(1, [sealing(R, 2)].into(), Patience::Skip).await.unwrap();
        let [SealVerdict::Sealed(grant, _)] = &again[..] else { panic!("{again:?}") };
        assert_eq!(grant.token.get(), 102);
    }
}

#[tokio::test]
async fn a_seal_that_waits_for_its_row_holds_the_epoch_and_not_the_writes() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    ground.sealed("other", 2).await;
    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 3));
    ground.waiting(1).await;
    let mut operator = ground.connect().await;
    let switch = run(
        &mut operator,
        "BEGIN; LOCK TABLE fencegate.seal_guard IN EXCLUSIVE MODE;
         UPDATE fencegate.seal_guard SET epoch = 1, base = 100; COMMIT",
    );
    let rest = async {
        ground.waiting(2).await;
        // A switch that waits, and a seal before it, stop no write.
        let write = ground.written(put("other", 2, "x")).await;
        held.let_go().await;
        (write, seal.await.unwrap())
    };
    let ((), (write, seal)) = tokio::join!(switch, rest);
    assert_eq!(write.version, Some(1));
    let Ok(SealVerdict::Sealed(grant, _)) = seal else { panic!("{seal:?}") };
    assert_eq!(grant.token.get(), 3, "sealed in the old epoch, before the switch");
}

#[tokio::test]
pub async fn a_floor_below_which_a_number_lies_while_the_seal_waits_makes_it_too_low() {
    for hold in ["held", "released"] {
        let ground = Ground::new().await;
        ground.sealed(R, 1).await;
        let stands = format!("UPDATE fencegate.fences SET hold = '{hold}'");
        run(&mut ground.connect().await, &stands).await;
        let raising = ground.hold("UPDATE fencegate.seal_guard SET floor = 5").await;
        let seal = ground.seal_later(sealing(R, 2));
        ground.waiting(1).await;
        raising.commit().await;
        assert_eq!(seal.await.unwrap(), Ok(SealVerdict::NumberTooLow), "{hold}");
    }
}

/// A call of each act, about nothing, by a gateway that has seen this position flushed.
pub fn acts(seen: i64) -> Vec<String> {
    let empty = |n: usize| vec!["'{}'"; n].join(", ");
    let id = uuid::Uuid::nil();
    vec![
        format!("acts.seal(0, {seen}, 0, {})", empty(20)),
        format!("acts.renew({seen}, 0, {})", empty(6)),
        format!("acts.release({seen}, 0, {})", empty(5)),
        format!("acts.break_locks({seen}, 0, {})", empty(7)),
        format!("acts.mark({seen}, 0, {})", empty(6)),
        format!("acts.join({seen}, 0, {})", empty(8)),
        format!("acts.write({seen}, 0, false, NULL, false, {}, NULL)", empty(27)),
        format!("acts.write_rounds('{{}}', {seen}, 0, false, {}, NULL)", empty(27)),
        format!("acts.open_intents({seen}, 0, {})", empty(15)),
        format!("acts.close_intents({seen}, '{{}}', '{{}}')"),
        format!("acts.complete_drains({seen}, 0, NULL)"),
        format!("acts.resolve_intent({seen}, 0, '{id}', '', '', NULL, NULL)"),
        format!("acts.resolve_doubts({seen}, 'u', '', '', NULL, NULL)"),
        format!("acts.sweep({seen}, 0, 0, 0, 0, 0, 0)"),
        format!("acts.prune({seen}, 0, 0)"),
        format!("acts.begin_upload({seen}, '{id}', 'r', 1, NULL, 'native', NULL)"),
        format!("acts.tidy_blobs({seen}, 0, 0, 0, 0, 0, 0, 0, 1, true)"),
        format!("acts.blobs_deleted({seen}, {}, 0)", empty(2)),
        format!("acts.make_bucket({seen}, 'lake', 0, NULL)"),
        format!("acts.drop_bucket({seen}, 'lake', NULL)"),
        format!("acts.number_events({seen})"),
        format!("acts.apply_rules({seen}, NULL, '', '', {}, NULL, 'r', NULL, NULL)", empty(2)),
        format!("acts.leave_milestone({seen}, 0, true)"),
        format!("acts.epoch({seen})"),
        format!("acts.open_epoch({seen}, '{id}')"),
        format!("acts.switch_epoch({seen}, 0, '{id}', 0, '')"),
    ]
}

#[tokio::test]
pub async fn acts_refuse_any_isolation_but_read_committed() {
    let ground = Ground::new().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for act in acts(0) {
            let mut connection = ground.connect().await;
            run(&mut connection, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            let call = sqlx::AssertSqlSafe(named(&format!("SELECT * FROM {act}")));
            let error = sqlx::query(call).execute(&mut connection).await.unwrap_err();
            let code = error.as_database_error().and_then(|error| error.code());
            assert_eq!(code.as_deref(), Some("FG003"), "{level}, {act}: {error}");
        }
    }
}

#[tokio::test]
async fn the_gateway_asks_for_read_committed_where_the_database_defaults_to_another() {
    let ground = Ground::new().await;
    let sql = "ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'";
    ground.server.execute("postgres", &sql.replace("{}", &ground.database)).await;
    let grant = ground.sealed(R, 1).await;
    assert_eq!(ground.written(put(R, 1, "x")).await.version, Some(1));
    let released = release(&ground.ledger, grant.lock).await;
    assert!(matches!(released, ReleaseVerdict::Released { .. }));
}
