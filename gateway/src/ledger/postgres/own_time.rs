//! The ledger's own time, as calls of `schema/postgres/acts/own_time.sql`.

use std::time::Duration;

use fence_core::ports::{ClockTrusted, LedgerError, Pass, Passed};

use super::locks::busy;
use super::session::{Sessions, harmless};
use crate::ledger::time;

row! {
    /// The row that `acts.pass_time` returns.
    struct PassRow {
        pass: i64,
        at_us: i64,
        behind_us: i64,
    }
}

pub(super) async fn pass_time(sessions: &Sessions, passed: &Passed) -> Result<Pass, LedgerError> {
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let boot = passed.boot.as_ref();
    let mut session = sessions.take_for_act().await?;
    let act = concat!("SELECT * FROM ", acts!(), ".pass_time($1, $2, $3, $4, $5)");
    let call = sqlx::query_as::<_, PassRow>(act)
        .bind(session.seen)
        .bind(passed.pass)
        .bind(micros(passed.since))
        .bind(boot.map(|boot| boot.id.as_str()))
        .bind(boot.map(|boot| micros(boot.up)))
        .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    // Sent again it finds the pass that it has made.
    let row = sessions.settle_act(session, answer).await.map_err(harmless)?;
    let PassRow { pass, at_us, behind_us } = row.ok_or_else(busy)?;
    let behind = Duration::from_micros(behind_us.unsigned_abs());
    Ok(Pass { number: pass, at: time(at_us), behind })
}

row! {
    /// The row that `acts.trust_clock` returns.
    struct ClockRow {
        own_us: i64,
        clock_us: i64,
    }
}

pub(super) async fn trust_clock(
    sessions: &Sessions,
    reason: &str,
) -> Result<ClockTrusted, LedgerError> {
    let mut session = sessions.take_for_act().await?;
    let act = concat!("SELECT * FROM ", acts!(), ".trust_clock($1, $2)");
    let call = sqlx::query_as::<_, ClockRow>(act)
        .bind(session.seen)
        .bind(reason)
        .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    let row = sessions.settle_act(session, answer).await?;
    let ClockRow { own_us, clock_us } = row.ok_or_else(busy)?;
    Ok(ClockTrusted::of(time(own_us), time(clock_us)))
}
