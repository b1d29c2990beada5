//! The sweeper: stores breaks that have come due and removes what has been kept long enough.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Clock, Ledger, LedgerError, Retention, Runtime};
use tokio_util::sync::CancellationToken;

use super::upstreams::Drains;
use super::{Settings, metrics};

/// The least pause between two passes, which others may use the ledger in.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// Starts the sweeper, which also puts locks in force that nothing keeps any more, should nobody have
/// heard of it. Several gateways may sweep at once; each pass is bounded.
pub(super) fn start(
    ledger: Arc<dyn Ledger>,
    runtime: &Runtime,
    settings: &Settings,
    drains: Drains,
    closing: CancellationToken,
) {
    let (clock, retention) = (Arc::clone(&runtime.clock), settings.retention.clone());
    let interval = settings.sweep_interval;
    let task = async move {
        loop {
            tokio::select! {
                biased;
                () = closing.cancelled() => return,
                () = clock.sleep(interval) => {}
            }
            drains.pass(None).await;
            if let Ok(open) = ledger.intents_open().await {
                ::metrics::gauge!(metrics::INTENTS_OPEN).set(open as f64);
            }
            if let Err(error) = sweep(&*ledger, &*clock, &retention, &closing).await {
                tracing::warn!(%error, "sweep failed; the next pass goes on");
            }
        }
    };
    runtime.spawn.spawn_lasting("sweeper", Box::pin(task));
}

/// Passes, until one is not full: what is left behind faster than one pass in each interval removes it would stay
/// for ever. Between two of them the ledger is left to others for as long as the last one took.
async fn sweep(
    ledger: &dyn Ledger,
    clock: &dyn Clock,
    retention: &Retention,
    closing: &CancellationToken,
) -> Result<(), LedgerError> {
    let began = clock.elapsed();
    let full = u64::try_from(retention.rows_per_pass).unwrap_or(u64::MAX);
    let mut total = 0;
    loop {
        let before = clock.elapsed();
        let rows = ledger.sweep(retention).await?;
        total += rows;
        ::metrics::counter!(metrics::SWEPT).increment(rows);
        // One kind alone fills a pass; of several that are nearly full, the next pass finds less.
        if rows < full || closing.is_cancelled() {
            break;
        }
        let now = clock.elapsed();
        ::metrics::gauge!(metrics::SWEEP_BEHIND).set(now.saturating_sub(began).as_secs_f64());
        clock.sleep(now.saturating_sub(before).max(PAUSE_MIN)).await;
    }
    ::metrics::gauge!(metrics::SWEEP_BEHIND).set(0.0);
    if total > 0 {
        tracing::debug!(rows = total, "swept");
    }
    Ok(())
}
