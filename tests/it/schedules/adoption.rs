//! The act that adopts a new timeline, beside others and by itself: what speaks against it, one thing at a time.
//!
//! The server of these tests is not promoted, its guards are told another timeline, and the history that Postgres would
//! have written is put in place of the file. `adoption.rs` has real promotions.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::sync::Arc;

use fence_core::ports::{Adopted, Adoption, Ledger as _, LedgerError, Line, Milestone, Place};
use fencegate::ledger::postgres::PgLedger;
use uuid::Uuid;

use crate::ledger::guard::refused;
use crate::schedules::forced::{Ground, R, put, run};

/// The timeline before, as the file has it and as the guards do.
const FORMER: (&str, &str) = ("161", "000000A1");
/// Where it ended: 16 MiB and a page, at which a record ended.
const ENDED: i64 = (16 << 20) + 8192;

/// The newest one that the mint knows.
const MILESTONE: Milestone = Milestone { number: 3, id: Uuid::from_u128(3) };

/// Has a ledger hold [`MILESTONE`].
const LEAVE: &str = "INSERT INTO fencegate.milestones
                     VALUES (3, '00000000-0000-0000-0000-000000000003', 0, now())";

/// A ledger on a timeline that its guards do not know.
async fn promoted() -> Ground {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    run(&mut ground.connect().await, &history(ENDED)).await;
    for statement in [
        LEAVE.to_owned(),
        "INSERT INTO fencegate.agreed VALUES ('failover', 'lossless')".to_owned(),
        format!("UPDATE fencegate.seal_guard SET timeline = '{}'", FORMER.1),
        format!("UPDATE fencegate.write_guard SET timeline = '{}'", FORMER.1),
    ] {
        run(&mut ground.connect().await, &statement).await;
    }
    ground
}

/// Has the history say that the former timeline ended here.
fn history(ended: i64) -> String {
    let text = format!(
        "160\t0/1000000\tno recovery target specified\n\n{}\t{:X}/{:X}\tno recovery target specified\n\
         # 161 0/FFFFFFF\n1610\t0/9000000\tof another\n",
        FORMER.0,
        ended >> 32,
        ended & 0xFFFF_FFFF
    );
    format!(
        "CREATE OR REPLACE FUNCTION fencegate.timeline_history() RETURNS text LANGUAGE plpgsql AS
         $$BEGIN RETURN '{text}'; END$$"
    )
}

fn adoption(place: &Place, witnessed: i64) -> Adoption {
    Adoption {
        line: place.line(),
        system_id: place.system_id,
        former: place.known_timeline.clone(),
        timeline: place.timeline.clone(),
        witnessed,
        milestone: MILESTONE,
    }
}

/// Asks a gateway that has seen nothing to adopt, with a witness at this position.
async fn adopted(ledger: &PgLedger, witnessed: i64) -> Adopted {
    let place = ledger.place(None).await.unwrap();
    ledger.adopt(&adoption(&place, witnessed)).await.unwrap()
}

async fn unproven(set: &str, why: &str) {
    let ground = promoted().await;
    if !set.is_empty() {
        run(&mut ground.connect().await, set).await;
    }
    let before = ground.ledger.place(None).await.unwrap();
    let Adopted::Unproven(told) = adopted(&ground.ledger, 0).await else {
        panic!("adopted: {set}")
    };
    assert!(told.contains(why), "{told}");
    assert_eq!(ground.ledger.place(None).await.unwrap().line(), before.line());
    let write = ground.ledger.commit([put(R, 1, "x")].into(), crate::schedules::forced::WAIT).await;
    assert!(matches!(write, Err(LedgerError::RefenceRequired(_))), "{write:?}");
}

#[tokio::test]
pub async fn what_was_seen_up_to_the_end_of_the_timeline_is_adopted() {
    // A record that ends with its page is followed by the header of the next one.
    for witnessed in [0, ENDED, ENDED + 24] {
        let ground = promoted().await;
        assert_eq!(adopted(&ground.ledger, witnessed).await, Adopted::Done, "{witnessed}");
        let place = ground.ledger.place(None).await.unwrap();
        assert_eq!((place.called_for.clone(), place.adoptions, place.generation), (None, 1, 0));
        assert_eq!(place.adopted_at, ENDED + 24);
        ground.written(put(R, 1, "x")).await;
        assert_eq!(adopted(&ground.ledger, witnessed).await, Adopted::Moved);
    }
}

#[tokio::test]
pub async fn what_was_seen_beyond_the_end_of_the_timeline_is_lost() {
    let ground = promoted().await;
    let Adopted::Unproven(why) = adopted(&ground.ledger, ENDED + 32).await else {
        panic!("it was adopted")
    };
    assert!(why.contains("it has lost commits"), "{why}");
    assert_eq!(ground.ledger.place(None).await.unwrap().adoptions, 0);
}

/// What this gateway has seen counts as the witness does.
#[tokio::test]
pub async fn what_a_gateway_has_seen_itself_counts() {
    let ground = Ground::new().await;
    ground.ledger.place(None).await.unwrap();
    // The position at which it was acknowledged is far beyond where the history ends.
    ground.sealed(R, 1).await;
    let mut connection = ground.connect().await;
    run(&mut connection, LEAVE).await;
    run(&mut connection, &history(ENDED)).await;
    run(&mut connection, "INSERT INTO fencegate.agreed VALUES ('failover', 'lossless')").await;
    for table in ["seal_guard", "write_guard"] {
        let set = format!("UPDATE fencegate.{table} SET timeline = '{}'", FORMER.1);
        run(&mut connection, &set).await;
    }
    let Adopted::Unproven(why) = adopted(&ground.ledger, 0).await else { panic!("it was adopted") };
    assert!(why.contains("it has lost commits"), "{why}");
    // One that has seen nothing takes it over; the first then knows better, and nobody goes on.
    let other = ground.other_ledger();
    assert_eq!(adopted(&other, 0).await, Adopted::Done);
    let place = ground.ledger.place(None).await.unwrap();
    assert!(place.called_for.is_some_and(|why| why.contains("it has lost commits")));
    let write = other.commit([put(R, 1, "x")].into(), crate::schedules::forced::WAIT).await;
    assert!(matches!(write, Err(LedgerError::RefenceRequired(_))), "{write:?}");
}

#[tokio::test]
pub async fn an_undeclared_failover_is_not_adopted() {
    unproven("UPDATE fencegate.agreed SET value = 'lossy'", "nobody has declared").await;
}

#[tokio::test]
pub async fn a_halted_ledger_is_not_adopted() {
    unproven("UPDATE fencegate.write_guard SET halted = 'it has lost commits'", "it has lost")
        .await;
    unproven("UPDATE fencegate.seal_guard SET halted = 'it has lost commits'", "it has lost").await;
}

#[tokio::test]
pub async fn another_system_is_not_adopted() {
    unproven("UPDATE fencegate.write_guard SET system_id = 7", "another database system").await;
    unproven("UPDATE fencegate.seal_guard SET system_id = 7", "another database system").await;
}

/// Its position and its history are as they should be, and what is in it is not.
#[tokio::test]
pub async fn a_ledger_without_the_milestone_is_not_adopted() {
    unproven("DELETE FROM fencegate.milestones", "lacks milestone 3").await;
    unproven("UPDATE fencegate.milestones SET id = gen_random_uuid()", "lacks milestone 3").await;
}

#[tokio::test]
pub async fn a_timeline_that_comes_from_elsewhere_is_not_adopted() {
    let both = "UPDATE fencegate.seal_guard SET timeline = '0000000A';
                UPDATE fencegate.write_guard SET timeline = '0000000A'";
    unproven(both, "does not come from timeline 0000000A").await;
    unproven("UPDATE fencegate.seal_guard SET timeline = '000000A0'", "its guards know").await;
}

/// It goes by what was read of the mint before: if somebody else has been there since, that may be old.
#[tokio::test]
pub async fn a_ledger_that_passed_on_meanwhile_is_looked_at_again() {
    let ground = promoted().await;
    let place = ground.ledger.place(None).await.unwrap();
    type Change = fn(&mut Adoption);
    let changes: [Change; 5] = [
        |it| it.line = Line { generation: 1, ..it.line },
        |it| it.line = Line { adoptions: 1, ..it.line },
        |it| it.system_id += 1,
        |it| it.former = "000000A0".into(),
        |it| it.timeline = "000000A2".into(),
    ];
    for change in changes {
        let mut asked = adoption(&place, 0);
        change(&mut asked);
        assert_eq!(ground.ledger.adopt(&asked).await.unwrap(), Adopted::Moved, "{asked:?}");
    }
    assert_eq!(ground.ledger.place(None).await.unwrap().line(), place.line());
}

/// A re-fence that comes first leaves nothing to adopt; an adoption that comes first, nothing to re-fence.
#[tokio::test]
pub async fn of_an_adoption_and_a_re_fence_the_second_finds_nothing_to_do() {
    let refence = "SELECT acts.refence(gen_random_uuid(), 0, 0, 0, 'test', false)";
    let ground = promoted().await;
    let place = ground.ledger.place(None).await.unwrap();
    let held = ground.hold(refence).await;
    let (ledger, asked) = (Arc::clone(&ground.ledger), adoption(&place, 0));
    let adopting = tokio::spawn(async move { ledger.adopt(&asked).await });
    ground.kept_waiting(&adopting, 1).await;
    held.commit().await;
    assert_eq!(adopting.await.unwrap().unwrap(), Adopted::Moved);
    let place = ground.ledger.place(None).await.unwrap();
    assert_eq!((place.generation, place.adoptions), (1, 0));

    let ground = promoted().await;
    assert_eq!(adopted(&ground.ledger, 0).await, Adopted::Done);
    run(&mut ground.connect().await, refence).await;
    let place = ground.ledger.place(None).await.unwrap();
    assert_eq!((place.generation, place.adoptions), (0, 1));
}

/// A session from before an adoption knows positions of the timeline before: its acts wait for a look.
#[tokio::test]
pub async fn a_session_that_knows_the_timeline_before_does_nothing() {
    let ground = promoted().await;
    assert_eq!(adopted(&ground.ledger, 0).await, Adopted::Done);
    let mut connection = ground.connect().await;
    run(&mut connection, &format!("SET fencegate.timeline = '{}'", FORMER.1)).await;
    for act in crate::schedules::guard::acts(0) {
        let (code, told) = refused(&mut connection, &format!("SELECT * FROM {act}")).await;
        assert_eq!(code, "FG007", "{act}: {told}");
    }
}

/// What a gateway held against the server before says nothing about the one that was adopted.
#[tokio::test]
pub async fn late_news_of_the_line_before_halts_nothing() {
    let ground = promoted().await;
    let before = ground.ledger.place(None).await.unwrap().line();
    assert_eq!(adopted(&ground.ledger, 0).await, Adopted::Done);
    ground.other_ledger().halt(before, "late news").await.unwrap();
    assert_eq!(ground.ledger.place(None).await.unwrap().called_for, None);
    ground.written(put(R, 1, "x")).await;
}
