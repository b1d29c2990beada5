//! Writes that commit in another order than they began, and steps of the numbering that meet: no event
//! is skipped, none comes twice.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{EventCursor, Ledger, LedgerError, WriteVerdict};
use fencegate::ledger::postgres::{PgLedger, PgSettings};
use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinHandle;

use crate::schedules::forced::{Ground, R, WAIT, applied, commit, put, run};

/// Lets the commits of sessions that wish so wait when all is stored, before their transaction ends.
pub const PAUSE_AT_THE_END: &str = "
    DO $do$
    DECLARE
        source text := pg_get_functiondef('acts.flushed'::regproc);
    BEGIN
        ASSERT position('-- An act that' IN source) > 0;
        EXECUTE replace(source, '-- An act that', $pause$
            IF current_setting('test.pause', true) <> '' THEN
                PERFORM set_config('lock_timeout', '0', true);
                PERFORM pg_advisory_xact_lock(42, current_setting('test.pause')::int);
            END IF;
            -- An act that$pause$);
    END $do$";

/// A ledger whose commits wait for this gate.
pub fn gated(ground: &Ground, gate: u32) -> Arc<PgLedger> {
    let options: PgConnectOptions = ground.server.url(&ground.database).parse().unwrap();
    let options = options.options([("test.pause", gate.to_string())]);
    let timeout = Duration::from_secs(40);
    Arc::new(PgLedger::new(PgSettings { options, connections_max: 4, timeout }))
}

fn later(ledger: &Arc<PgLedger>, resource: &str, token: i64) -> JoinHandle<WriteVerdict> {
    let (ledger, item) = (Arc::clone(ledger), put(resource, token, "x"));
    tokio::spawn(async move { commit(&ledger, item).await })
}

/// Resource and version of all events, after a step.
async fn events(ledger: &PgLedger) -> Vec<(String, i64)> {
    assert!(ledger.number_events().await.unwrap().whole);
    seen(ledger).await
}

/// The same without a step.
async fn seen(ledger: &PgLedger) -> Vec<(String, i64)> {
    let begin = EventCursor { generation: 0, number: 0 };
    let page = ledger.events(begin, 1000).await.unwrap();
    let event = |(at, (number, event)): (usize, (i64, fence_core::ports::Applied))| {
        assert_eq!(number, at as i64 + 1, "numbers have no gaps");
        (event.resource.to_string(), event.version.unwrap())
    };
    page.events.into_iter().enumerate().map(event).collect()
}

fn named(list: &[(&str, i64)]) -> Vec<(String, i64)> {
    list.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

#[tokio::test]
pub async fn a_write_that_began_earlier_and_commits_last_is_not_skipped() {
    let ground = Ground::new().await;
    run(&mut ground.connect().await, PAUSE_AT_THE_END).await;
    for (resource, number) in ["a", "b", "c", "d"].into_iter().zip(1..) {
        ground.sealed(resource, number).await;
    }
    let first = ground.hold("SELECT pg_advisory_xact_lock(42, 1)").await;
    let second = ground.hold("SELECT pg_advisory_xact_lock(42, 2)").await;
    let a = later(&gated(&ground, 1), "a", 1);
    ground.waiting(1).await;
    let b = later(&gated(&ground, 2), "b", 2);
    ground.waiting(2).await;
    // The later ones commit first, and a reader passes them.
    applied(commit(&ground.ledger, put("c", 3, "x")).await);
    assert_eq!(events(&ground.ledger).await, named(&[("c", 1)]));
    second.let_go().await;
    applied(b.await.unwrap());
    assert_eq!(events(&ground.ledger).await, named(&[("c", 1), ("b", 1)]));
    applied(commit(&ground.ledger, put("d", 4, "x")).await);
    applied(commit(&ground.ledger, put("d", 4, "y")).await);
    let before = named(&[("c", 1), ("b", 1), ("d", 1), ("d", 2)]);
    assert_eq!(events(&ground.ledger).await, before);
    assert_eq!(events(&ground.ledger).await, before, "a step that finds nothing");
    first.let_go().await;
    applied(a.await.unwrap());
    let mut all = before;
    all.push(("a".into(), 1));
    assert_eq!(events(&ground.ledger).await, all);
    assert_eq!(events(&ground.ledger).await, all);
}

/// It has taken its transaction id before those that write the lower versions.
#[tokio::test]
pub async fn a_write_that_waited_for_its_row_comes_after_those_it_waited_for() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let waiting = ground.commit_later(put(R, 1, "second"));
    ground.waiting(1).await;
    let behind = ground.commit_later(put(R, 1, "third"));
    ground.waiting(2).await;
    assert_eq!(events(&ground.ledger).await, []);
    held.let_go().await;
    applied(waiting.await.unwrap());
    applied(behind.await.unwrap());
    assert_eq!(events(&ground.ledger).await, named(&[(R, 1), (R, 2)]));
}

#[tokio::test]
pub async fn steps_come_one_after_the_other() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    applied(commit(&ground.ledger, put(R, 1, "x")).await);
    // Another gateway is in the middle of its step.
    let mut step = ground.hold("SELECT * FROM acts.number_events(0)").await;
    applied(commit(&ground.ledger, put(R, 1, "y")).await);
    let ledger = Arc::clone(&ground.ledger);
    let other = tokio::spawn(async move { ledger.number_events().await.unwrap() });
    ground.ended_or_waiting(&other, 1).await;
    assert!(other.is_finished(), "it waits for the other step");
    let head = other.await.unwrap();
    assert_eq!((head.whole, head.last.number), (false, 0), "it neither waits nor numbers");
    assert_eq!(seen(&ground.ledger).await, []);
    // A second step within the same transaction sees the first.
    run(&mut step.connection, "SELECT * FROM acts.number_events(0)").await;
    step.commit().await;
    assert_eq!(seen(&ground.ledger).await, named(&[(R, 1), (R, 2)]));
    assert_eq!(events(&ground.ledger).await, named(&[(R, 1), (R, 2)]));
    // A step that came to nothing is made up for.
    applied(commit(&ground.ledger, put(R, 1, "z")).await);
    ground.hold("SELECT * FROM acts.number_events(0)").await.let_go().await;
    assert_eq!(seen(&ground.ledger).await.len(), 2);
    assert_eq!(events(&ground.ledger).await, named(&[(R, 1), (R, 2), (R, 3)]));
}

/// Otherwise the numbers of a restored copy would be taken for those that were given out before.
#[tokio::test]
pub async fn nothing_is_numbered_on_a_ledger_that_may_have_lost_commits() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    applied(ground.ledger.commit([put(R, 1, "x")].into(), WAIT).await.unwrap().remove(0));
    run(&mut ground.connect().await, "UPDATE fencegate.write_guard SET halted = 'lost'").await;
    let error = ground.other_ledger().number_events().await.unwrap_err();
    assert!(matches!(error, LedgerError::RefenceRequired(_)), "{error}");
    assert_eq!(seen(&ground.ledger).await, []);
}

/// Whatever was written under way while the numbering went on, many times.
#[tokio::test]
async fn writers_and_steps_at_full_speed_lose_nothing() {
    let ground = Ground::new().await;
    for writer in 0..6 {
        ground.sealed(&format!("r{writer}"), writer + 1).await;
    }
    let writers = (0..6).map(|writer| {
        let ledger = ground.other_ledger();
        tokio::spawn(async move {
            for _ in 0..60 {
                // Two resources, so that writers meet on the rows.
                for resource in [writer, (writer + 1) % 6] {
                    applied(commit(&ledger, put(&format!("r{resource}"), resource + 1, "x")).await);
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let steps = (0..2).map(|_| {
        let ledger = ground.other_ledger();
        tokio::spawn(async move {
            loop {
                ledger.number_events().await.unwrap();
            }
        })
    });
    let steps: Vec<JoinHandle<()>> = steps.collect();
    for writer in writers {
        writer.await.unwrap();
    }
    steps.iter().for_each(JoinHandle::abort);
    for step in steps {
        assert!(step.await.unwrap_err().is_cancelled());
    }
    let mut all = Vec::new();
    while all.len() < 720 {
        ground.ledger.number_events().await.unwrap();
        all = seen(&ground.ledger).await;
    }
    let mut versions = std::collections::HashMap::new();
    for (resource, version) in all {
        let last = versions.entry(resource).or_insert(0);
        *last += 1;
        assert_eq!(version, *last);
    }
    assert!(versions.values().all(|version| *version == 120), "{versions:?}");
}
