//! What goes on besides the sessions: heartbeats, sweeps, numbers for events, garbage, new epochs, re-fences.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fence_core::ports::{
    BlobTimes, Intents as _, Ledger as _, LedgerError, Passed, Refence, Retention, Uploads as _,
};
use fencegate::ledger::postgres::PgLedger;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use uuid::Uuid;

use super::stage::{GATEWAYS, Stage};
use super::upstream::resolve_doubts;

/// Nothing is forgotten within a run.
const KEPT: Duration = Duration::from_secs(3600);
/// Uploads are given up while some are still being committed; blobs that were replaced stay for readers who have begun.
const TIMES: BlobTimes = BlobTimes {
    upload: Duration::from_millis(600),
    multipart: Duration::from_millis(600),
    reader_grace: Duration::from_secs(8),
    rollback_horizon: Duration::ZERO,
    versions: Duration::ZERO,
    redelete: Duration::from_millis(100),
};
/// Between two things that it does.
const PAUSE: Duration = Duration::from_millis(15);

/// Goes on until the sessions are to end. Whatever fails is done again soon.
pub async fn operate(stage: Arc<Stage>, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    for round in 1_u64.. {
        if stage.stop.load(Ordering::Relaxed) {
            return;
        }
        let gateway = rng.random_range(0..GATEWAYS);
        let ledger = stage.ledger(gateway);
        let done = match round % 32 {
            1 | 9 | 17 | 25 => beat(&stage, &ledger).await,
            2 | 10 | 18 | 26 => {
                ledger.complete_drains(stage.gateways[gateway], None).await.map(drop)
            }
            3 | 19 => forget(&ledger).await,
            4 | 12 | 20 => ledger.number_events().await.map(drop),
            5 | 21 => collect(&stage, &ledger).await,
            6 if rng.random_bool(0.15) => switch_epoch(&stage, &ledger, rng.random()).await,
            7 if rng.random_bool(0.05) => refence(&stage, &ledger, rng.random()).await,
            8 | 24 => resolve_doubts(&stage, &ledger).await,
            _ => Ok(()),
        };
        if let Err(error) = done {
            let _unknown = stage.leaves_unknown(&error);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn retention() -> Retention {
    Retention {
        keys: KEPT,
        ended_locks: KEPT,
        buried: KEPT,
        history: None,
        rejections_max: 100,
        rows_per_pass: 100,
    }
}

async fn beat(stage: &Stage, ledger: &PgLedger) -> Result<(), LedgerError> {
    for gateway in &stage.gateways {
        ledger.call_next(*gateway, Some(true), &stage.resources).await?;
    }
    Ok(())
}

/// Brings the own time to the clock: or nothing would be forgotten while this runs.
async fn catch_up(ledger: &PgLedger) -> Result<(), LedgerError> {
    let last = ledger.pass_time(&Passed::NOTHING).await?;
    let passed = Passed { pass: last.number, since: last.behind, boot: None };
    ledger.pass_time(&passed).await.map(drop)
}

/// A sweep.
async fn forget(ledger: &PgLedger) -> Result<(), LedgerError> {
    catch_up(ledger).await?;
    ledger.sweep(&retention()).await.map(drop)
}

/// Deletes what the ledger says is garbage.
async fn collect(stage: &Stage, ledger: &PgLedger) -> Result<(), LedgerError> {
    catch_up(ledger).await?;
    let tidied = ledger.tidy_blobs(TIMES, 50, true).await?;
    tidied.garbage.iter().for_each(|garbage| stage.discard(garbage.blob));
    ledger.blobs_deleted(&tidied.garbage, TIMES).await
}

/// Begins a new epoch, as if the mint had lost its place.
async fn switch_epoch(stage: &Stage, ledger: &PgLedger, nonce: u128) -> Result<(), LedgerError> {
    let epoch = ledger.epoch().await?;
    let nonce = Uuid::from_u128(nonce);
    let epoch = ledger.switch_epoch(epoch.number, nonce, 0, "a schedule").await?;
    stage.set_epoch(Some(epoch));
    ledger.open_epoch(nonce).await.map(drop)
}

/// Voids all tokens, as if commits had been lost.
async fn refence(stage: &Stage, ledger: &PgLedger, nonce: u128) -> Result<(), LedgerError> {
    let nonce = Uuid::from_u128(nonce);
    let refence = Refence {
        nonce,
        number: stage.mint(),
        known_base: 0,
        known_generation: 0,
        why: "a schedule".into(),
        forced: true,
        seen: None,
    };
    let epoch = ledger.refence(refence).await?;
    stage.set_epoch(Some(epoch));
    ledger.open_epoch(nonce).await?;
    resolve_doubts(stage, ledger).await
}
