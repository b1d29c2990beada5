//! Retention by agreement once a shorter time was agreed: nothing goes earlier than was agreed when it was made.

use std::collections::BTreeMap;
use std::time::Duration;

use fence_core::LockId;
use fence_core::ports::{Attempt, Ledger as _, ReleaseVerdict, Retention, WriteItem};

use crate::schedules::forced::{Ground, R, applied, commit, keyed, put, refused, release, run};
use crate::setup::random_id;

/// Retention of a gateway that keeps nothing.
const NOTHING_KEPT: Retention = Retention {
    keys: Duration::ZERO,
    ended_locks: Duration::ZERO,
    buried: Duration::ZERO,
    history: Some(Duration::ZERO),
    rejections_max: 1000,
    rows_per_pass: 1000,
};

/// Times to agree on: that of keys, ended locks and burials, and that of history.
fn times(others: &str, history: &str) -> BTreeMap<String, String> {
    let others = ["keys_kept", "ended_locks_kept", "buried_kept"].map(|name| (name, others));
    let all = others.into_iter().chain([("history_kept", history)]);
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A ledger for which these times were agreed first, with a key, an ended lock, two burials and some history in it.
async fn used(first: &BTreeMap<String, String>) -> Ground {
    let ground = Ground::new().await;
    ground.ledger.agree_first(first).await.expect("agreed");
    let ann = ground.sealed(R, 1).await;
    applied(commit(&ground.ledger, keyed("once", put(R, 1, "a"))).await);
    applied(commit(&ground.ledger, put(R, 1, "b")).await);
    ground.sealed(R, 2).await;
    applied(commit(&ground.ledger, put(R, 2, "c")).await);
    release(&ground.ledger, ann.lock).await;
    let unknown = release(&ground.ledger, LockId(random_id())).await;
    assert_eq!(unknown, ReleaseVerdict::Buried);
    refused(commit(&ground.ledger, WriteItem { attempt: Attempt::Rerun, ..put(R, 1, "d") }).await);
    ground.ledger.number_events().await.expect("numbered");
    // As if all of it had leaves in the tree over the audit.
    run(&mut ground.connect().await, "UPDATE fencegate.audit_tree SET upto = 1000").await;
    ground
}

/// Keys, ended locks, burials, and rows of history that are left once so many days have passed and the sweeper has run.
async fn left_after(ground: &Ground, days: u32) -> [i64; 4] {
    let pass = format!("UPDATE fencegate.own_time SET at = at + interval '{days} days'");
    run(&mut ground.connect().await, &pass).await;
    ground.ledger.sweep(&NOTHING_KEPT).await.expect("swept");
    [
        ground.number("SELECT count(*) FROM fencegate.idempotency_keys").await,
        ground.number("SELECT count(*) FROM fencegate.locks WHERE ended_at IS NOT NULL").await,
        ground
            .number(
                "SELECT (SELECT count(*) FROM fencegate.buried)
                      + (SELECT count(*) FROM fencegate.operations WHERE kind = 'buried')",
            )
            .await,
        ground
            .number(
                "SELECT (SELECT count(*) FROM fencegate.grants) + (SELECT count(*) FROM fencegate.events)
                      + (SELECT count(*) FROM fencegate.operations WHERE kind <> 'buried')",
            )
            .await,
    ]
}

/// Two shorter times in a row: the longest counts until all that was made under it has outlived it.
#[tokio::test]
pub async fn nothing_goes_earlier_than_was_agreed_when_it_was_made() {
    let ground = used(&times("60days", "90days")).await;
    for (others, history) in [("30days", "60days"), ("1h", "1day")] {
        let changed = ground.ledger.agree(&times(others, history), "tidied up").await.unwrap();
        assert_eq!(changed.len(), 4, "{changed:?}");
    }
    let (all, history) = ([1, 1, 2, 8], [0, 0, 0, 8]);
    let mut now = 0;
    for (day, left) in [(31, all), (59, all), (61, history), (89, history), (91, [0, 0, 0, 2])] {
        assert_eq!(left_after(&ground, day - now).await, left, "after {day} days");
        now = day;
    }
    applied(commit(&ground.ledger, keyed("since", put(R, 2, "e"))).await);
    assert_eq!(left_after(&ground, 2).await[0], 0, "made since, so by what is agreed now");
}

/// Things to be kept for ever outlive no time: the owner of the tables alone can say that they may go.
#[tokio::test]
async fn what_was_kept_for_ever_goes_if_the_owner_of_the_tables_says_so() {
    let ground = used(&times("1day", "for ever")).await;
    ground.ledger.agree(&times("1day", "2days"), "room is needed").await.unwrap();
    assert_eq!(left_after(&ground, 4_000).await, [0, 0, 0, 8]);
    run(&mut ground.connect().await, "DELETE FROM fencegate.agreed_before").await;
    assert_eq!(left_after(&ground, 0).await, [0, 0, 0, 2]);
}

/// A time that nobody can read would have all removed, or nothing.
#[tokio::test]
async fn a_time_that_cannot_be_read_is_not_agreed() {
    let ground = used(&times("1day", "30days")).await;
    let agreed = "SELECT count(*) FROM fencegate.agreed WHERE value IN ('1day', '30days')";
    for (others, history) in
        [("", "30days"), ("1day", "soon"), ("1day", "11years"), ("for ever", "for ever")]
    {
        let told = ground.ledger.agree(&times(others, history), "a slip").await.unwrap_err();
        assert!(told.to_string().contains("ten years at most"), "{told}");
        assert_eq!(ground.number(agreed).await, 4);
    }
}

/// Postgres looks into the functions in SQL only when it is told to, and the acts are installed without.
#[tokio::test]
async fn functions_in_sql_say_what_they_return() {
    let ground = Ground::new().await;
    let again = "SET check_function_bodies = on;
        DO $$ DECLARE one record;
        BEGIN
            FOR one IN SELECT pg_get_functiondef(p.oid) AS text FROM pg_proc p
                       JOIN pg_namespace n ON n.oid = p.pronamespace
                       JOIN pg_language l ON l.oid = p.prolang
                       WHERE n.nspname LIKE 'fencegate%' AND l.lanname = 'sql' LOOP
                EXECUTE one.text;
            END LOOP;
        END $$";
    run(&mut ground.connect().await, again).await;
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.place()").await, 1);
}
