//! The start of the server, and the milestones by which a gateway tells that it has lost nothing.
//!
//! The server of these tests is not started anew: its guards are told another start. `disasters/restores.rs` has real
//! ones.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "tests start what runs beside them")]

use std::sync::Arc;

use fence_core::ports::{
    Ledger as _, LedgerError, Line, Milestone, Place, ReadItem, Start, Unwritable,
};
use fence_core::{ObjectKey, ResourceName};
use fencegate::ledger::postgres::PgLedger;
use uuid::Uuid;

use crate::ledger::guard::refused;
use crate::schedules::forced::{Ground, R, WAIT, put, run};

const RESTARTED: LedgerError = LedgerError::Unwritable(Unwritable::Restarted);

/// A ledger whose server was started since, and the milestone that the mint knows of it.
async fn started() -> (Ground, Milestone) {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let milestone = ground.ledger.leave_milestone(0, false).await.unwrap().unwrap();
    let mut connection = ground.connect().await;
    for table in ["seal_guard", "write_guard"] {
        run(&mut connection, &format!("UPDATE fencegate.{table} SET started = 'epoch'")).await;
    }
    (ground, milestone)
}

fn start(place: &Place, milestone: Option<Milestone>) -> Start {
    Start {
        line: place.line(),
        system_id: place.system_id,
        timeline: place.timeline.clone(),
        started_us: place.started_us,
        milestone,
    }
}

async fn read(ledger: &PgLedger) -> Result<(), LedgerError> {
    let (resource, key) = (ResourceName::new(R).unwrap(), ObjectKey::new("k").unwrap());
    let item = ReadItem { resource, key, version: None };
    ledger.read([item].into()).await.map(drop)
}

#[tokio::test]
pub async fn after_a_start_all_waits_for_a_look() {
    let (ground, milestone) = started().await;
    let place = ground.ledger.place(Some(milestone)).await.unwrap();
    assert_eq!((place.restarted, place.has_milestone), (true, Some(true)));
    assert_eq!(place.called_for, None);
    let write = ground.ledger.commit([put(R, 1, "x")].into(), WAIT).await;
    assert_eq!(write, Err(RESTARTED), "nothing is written");
    let present = read(&ground.ledger).await;
    assert_eq!(present, Err(RESTARTED), "nothing is read");
    let mut connection = ground.connect().await;
    let guard = format!("SELECT fencegate.guard('{R}', 1)");
    let (code, told) = refused(&mut connection, &guard).await;
    assert_eq!(code, "FG407", "guard: {told}");
    // Any gateway may look; the others hear of it.
    let looked = start(&place, Some(milestone));
    assert!(ground.other_ledger().confirm_start(&looked).await.unwrap());
    read(&ground.ledger).await.unwrap();
    ground.written(put(R, 1, "x")).await;
    run(&mut connection, &guard).await;
    assert!(!ground.ledger.place(None).await.unwrap().restarted);
}

#[tokio::test]
pub async fn a_start_is_confirmed_by_what_was_looked_at() {
    let (ground, milestone) = started().await;
    let place = ground.ledger.place(None).await.unwrap();
    let right = start(&place, Some(milestone));
    let other = Milestone { id: Uuid::nil(), ..milestone };
    let line = Line { generation: 1, ..right.line };
    let wrong = [
        ("line", Start { line, ..right.clone() }),
        ("system", Start { system_id: 7, ..right.clone() }),
        ("timeline", Start { timeline: "0000002A".into(), ..right.clone() }),
        ("start", Start { started_us: right.started_us + 1, ..right.clone() }),
        ("milestone", Start { milestone: Some(other), ..right.clone() }),
        ("none", Start { milestone: None, ..right.clone() }),
    ];
    for (what, wrong) in wrong {
        assert!(!ground.ledger.confirm_start(&wrong).await.unwrap(), "{what}");
        assert!(ground.ledger.place(None).await.unwrap().restarted, "{what}");
    }
    run(
        &mut ground.connect().await,
        "UPDATE fencegate.write_guard SET halted = 'it has lost commits'",
    )
    .await;
    assert!(!ground.ledger.confirm_start(&right).await.unwrap(), "halted");
    run(&mut ground.connect().await, "UPDATE fencegate.write_guard SET halted = NULL").await;
    assert!(ground.ledger.confirm_start(&right).await.unwrap());
}

#[tokio::test]
async fn a_ledger_on_which_nothing_was_granted_has_lost_nothing() {
    let ground = Ground::new().await;
    let mut connection = ground.connect().await;
    for table in ["seal_guard", "write_guard"] {
        run(&mut connection, &format!("UPDATE fencegate.{table} SET started = 'epoch'")).await;
    }
    let place = ground.ledger.place(None).await.unwrap();
    assert!(ground.ledger.confirm_start(&start(&place, None)).await.unwrap());
    ground.sealed(R, 1).await;
}

/// About one a second, while something is committed; and the last one of a gateway that stops.
#[tokio::test]
async fn a_milestone_is_left_where_there_is_something_to_tell() {
    let ground = Ground::new().await;
    let ledger = &ground.ledger;
    let leave = async |known| ledger.leave_milestone(known, false).await.unwrap();
    let first = leave(0).await.unwrap();
    assert_eq!(first.number, 1);
    ground.sealed(R, 1).await;
    assert_eq!(leave(1).await, None, "one was left a moment ago");
    assert_eq!(leave(0).await, Some(first), "which another gateway can make known");
    let last = ledger.leave_milestone(1, true).await.unwrap().unwrap();
    assert_eq!(last.number, 2);
    // A day of them is kept, and the newest always; whoever asks for an older one is told nothing.
    let many = "INSERT INTO fencegate.milestones
                SELECT n, gen_random_uuid(), 0, 'epoch' FROM generate_series(100, 86600) n";
    run(&mut ground.connect().await, many).await;
    let newest = leave(86_600).await.unwrap();
    assert_eq!(newest.number, 86_601);
    assert_eq!(ground.number("SELECT min(number) FROM fencegate.milestones").await, 200);
    assert_eq!(ledger.place(Some(first)).await.unwrap().has_milestone, None);
    assert_eq!(ledger.place(Some(newest)).await.unwrap().has_milestone, Some(true));
    let unknown = Milestone { number: 86_602, id: Uuid::nil() };
    assert_eq!(ledger.place(Some(unknown)).await.unwrap().has_milestone, Some(false));
}

/// The mint takes the word of the gateway that comes first: each must have the milestone.
#[tokio::test]
async fn of_two_gateways_that_leave_a_milestone_at_once_each_has_it() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let leaves = ground.hold("SELECT acts.leave_milestone(0, 0, false)").await;
    let other = Arc::clone(&ground.ledger);
    let other = tokio::spawn(async move { other.leave_milestone(0, false).await });
    ground.kept_waiting(&other, 1).await;
    leaves.commit().await;
    let told = other.await.unwrap().unwrap().unwrap();
    let has_it = ground.ledger.place(Some(told)).await.unwrap().has_milestone;
    assert_eq!((told.number, has_it), (1, Some(true)));
}
