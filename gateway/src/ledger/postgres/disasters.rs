//! Disasters, as calls of `schema/postgres/acts/disasters.sql`.

use std::collections::BTreeMap;

use fence_core::ports::{
    Adopted, Adoption, Epoch, LedgerError, Line, Milestone, Place, Refence, Start,
};
use uuid::Uuid;

use super::locks::{EpochRow, busy};
use super::session::{Sessions, Stood, harmless};

pub(super) async fn switch_epoch(
    sessions: &Sessions,
    expected: i64,
    nonce: Uuid,
    above: i64,
    why: &str,
) -> Result<Epoch, LedgerError> {
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, EpochRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".switch_epoch($1, $2, $3, $4, $5)"
    ))
    .bind(session.seen)
    .bind(expected)
    .bind(nonce)
    .bind(above)
    .bind(why)
    .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    // Sent again it finds the epoch that it made.
    let row = sessions.settle_act(session, answer).await.map_err(harmless)?;
    row.map(Epoch::from).ok_or_else(busy)
}

/// Not an act like the others: it is for a ledger on which those are refused.
pub(super) async fn refence(sessions: &Sessions, refence: &Refence) -> Result<Epoch, LedgerError> {
    let mut session = sessions.take().await?;
    let act = concat!("SELECT * FROM ", acts!(), ".refence($1, $2, $3, $4, $5, $6, $7, $8, $9)");
    let call = sqlx::query_as::<_, EpochRow>(act)
        .bind(refence.nonce)
        .bind(refence.number)
        .bind(refence.known_base)
        // What this gateway has seen, too: the ledger may have forgotten it.
        .bind(refence.known_generation.max(sessions.line().map_or(0, |line| line.generation)))
        .bind(&refence.why)
        .bind(refence.forced)
        .bind(refence.seen.as_ref().map(|seen| seen.generation))
        .bind(refence.seen.as_ref().map(|seen| seen.system_id))
        .bind(refence.seen.as_ref().map(|seen| &seen.timeline))
        .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    // Sent again it finds that nothing calls for it any more; forced, it raises the floor once more.
    let row = sessions.settle(session, answer).map_err(harmless)?;
    // From here on this gateway takes the ledger as it is.
    place(sessions, None).await?;
    Ok(row.into())
}

row! {
    struct PlaceRow {
        generation: i64,
        adoptions: i64,
        adopted_at: i64,
        left_at: Option<i64>,
        floor: i64,
        highest: i64,
        system_id: i64,
        timeline: String,
        known_timeline: String,
        inserted: i64,
        flushed: i64,
        called_for: Option<String>,
        halted: Option<String>,
        started: i64,
        restarted: bool,
        has_milestone: Option<bool>,
        standbys: String,
        agreed: String,
        ..epoch: EpochRow,
    }
}

/// Where the ledger stands. If the ledger was re-fenced since, this gateway also forgets what it knew against
/// it. If it was not, and the gateway could not tell the others yet what it knows, it tells them.
pub(super) async fn place(
    sessions: &Sessions,
    milestone: Option<Milestone>,
) -> Result<Place, LedgerError> {
    let mut session = sessions.take().await?;
    let before = session.line;
    let call =
        sqlx::query_as::<_, PlaceRow>(concat!("SELECT * FROM ", acts!(), ".place($1, $2, $3)"))
            .bind(before.map(|line| line.adoptions))
            .bind(milestone.map(|one| one.number))
            .bind(milestone.map(|one| one.id))
            .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    let row = sessions.settle(session, answer).map_err(harmless)?;
    let mut called_for = row.called_for;
    let agreed: BTreeMap<String, String> = serde_json::from_str(&row.agreed)
        .map_err(|error| LedgerError::Defect(format!("what is agreed: {error}")))?;
    let line = Line { generation: row.generation, adoptions: row.adoptions };
    let stood = Stood {
        line,
        timeline: &row.known_timeline,
        left_at: row.left_at,
        called_for: called_for.is_some(),
    };
    let untold = sessions.stands(before, &stood);
    // Another gateway may have found it out.
    sessions.tells(line, row.halted);
    sessions.waits_for(row.standbys);
    if let Some(why) = untold {
        sessions.tell_others(line, &why).await;
        called_for = Some(why);
    }
    // What calls for a re-fence says more than a start does.
    sessions.started(row.started, row.restarted && called_for.is_none());
    Ok(Place {
        epoch: row.epoch.into(),
        generation: row.generation,
        adoptions: row.adoptions,
        adopted_at: row.adopted_at,
        floor: row.floor,
        highest: row.highest,
        system_id: row.system_id,
        timeline: row.timeline,
        known_timeline: row.known_timeline,
        inserted: row.inserted,
        flushed: row.flushed,
        started_us: row.started,
        restarted: row.restarted,
        has_milestone: row.has_milestone,
        called_for,
        agreed,
    })
}

pub(super) async fn leave_milestone(
    sessions: &Sessions,
    known: i64,
    last: bool,
) -> Result<Option<Milestone>, LedgerError> {
    let mut session = sessions.take_for_act().await?;
    let act = concat!("SELECT number, id FROM ", acts!(), ".leave_milestone($1, $2, $3)");
    let call = sqlx::query_as::<_, (i64, Uuid)>(act)
        .bind(session.seen)
        .bind(known)
        .bind(last)
        .fetch_optional(&mut session.connection);
    let answer = sessions.answer(call).await;
    // One whose answer was lost is never made known, and the next one is above it.
    let row = sessions.settle_act(session, answer).await.map_err(harmless)?;
    Ok(row.flatten().map(|(number, id)| Milestone { number, id }))
}

/// Not an act like the others: it is for a ledger on which those are refused. Sent again it takes note once more.
pub(super) async fn confirm_start(sessions: &Sessions, start: &Start) -> Result<bool, LedgerError> {
    let mut session = sessions.take().await?;
    let act = concat!("SELECT ", acts!(), ".confirm_start($1, $2, $3, $4, $5, $6, $7)");
    let call = sqlx::query_scalar::<_, bool>(act)
        .bind(start.line.generation)
        .bind(start.line.adoptions)
        .bind(start.system_id)
        .bind(&start.timeline)
        .bind(start.started_us)
        .bind(start.milestone.map(|one| one.number))
        .bind(start.milestone.map(|one| one.id))
        .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    let is_known = sessions.settle(session, answer).map_err(harmless)?;
    if is_known {
        sessions.started(start.started_us, false);
    }
    Ok(is_known)
}

pub(super) async fn halt(sessions: &Sessions, line: Line, why: &str) -> Result<(), LedgerError> {
    // First here: a primary that was cut off from its synchronous standby cannot store it any more.
    sessions.doubt(line, why);
    let mut session = sessions.take().await?;
    let call = sqlx::query(concat!("SELECT ", acts!(), ".halt_at($1, $2, $3)"))
        .bind(line.generation)
        .bind(line.adoptions)
        .bind(why)
        .execute(&mut session.connection);
    let answer = sessions.answer(call).await;
    sessions.settle(session, answer.map(drop)).map_err(harmless)
}

/// Not an act like the others: it is for a ledger on which those are refused. Sent again it finds that nothing calls
/// for it any more.
pub(super) async fn adopt(
    sessions: &Sessions,
    adoption: &Adoption,
) -> Result<Adopted, LedgerError> {
    let mut session = sessions.take().await?;
    // What was seen on another line says nothing of the timeline that is left here.
    let seen = if session.line == Some(adoption.line) { sessions.seen() } else { 0 };
    let act =
        concat!("SELECT verdict, why FROM ", acts!(), ".adopt($1, $2, $3, $4, $5, $6, $7, $8, $9)");
    let call = sqlx::query_as::<_, (String, Option<String>)>(act)
        .bind(seen)
        .bind(adoption.witnessed)
        .bind(adoption.line.generation)
        .bind(adoption.line.adoptions)
        .bind(adoption.system_id)
        .bind(&adoption.former)
        .bind(&adoption.timeline)
        .bind(adoption.milestone.number)
        .bind(adoption.milestone.id)
        .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    let (verdict, why) = sessions.settle(session, answer).map_err(harmless)?;
    match verdict.as_str() {
        "adopted" => Ok(Adopted::Done),
        "moved" => Ok(Adopted::Moved),
        _ => Ok(Adopted::Unproven(why.unwrap_or(verdict))),
    }
}
