//! The sweeper: stores breaks that have come due and removes what has been kept long enough.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Clock, Ledger, LedgerError, Retention, Runtime};
use tokio_util::sync::CancellationToken;

use super::agreement::Agreement;
use super::locks::Drains;
use super::metrics;

/// The least pause between two passes, which others may use the ledger in.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// What the sweeper works with.
pub(super) struct Sweeping {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) agreement: Arc<Agreement>,
    pub(super) interval: Duration,
    pub(super) drains: Drains,
}

impl Sweeping {
    /// Starts the sweeper, which also puts locks in force that nothing keeps any more, should nobody have
    /// heard of it. Several gateways may sweep at once; each pass is bounded.
    pub(super) fn start(self, runtime: &Runtime, closing: CancellationToken) {
        let Self { ledger, agreement, interval, drains } = self;
        let clock = Arc::clone(&runtime.clock);
        let task =
            async move {
                let mut pause = interval;
                let mut behind_since = None;
                loop {
                    tokio::select! {
                        biased;
                        () = closing.cancelled() => return,
                        () = clock.sleep(pause) => {}
                    }
                    drains.pass(None).await;
                    if let Ok(open) = ledger.intents_open().await {
                        ::metrics::gauge!(metrics::INTENTS_OPEN).set(open.count as f64);
                        let oldest_s = open.oldest_age_ms as f64 / 1000.0;
                        ::metrics::gauge!(metrics::INTENT_OLDEST).set(oldest_s);
                    }
                    let began = clock.elapsed();
                    let has_caught_up =
                        match sweep(&*ledger, &*clock, &agreement.retention(), began + interval)
                            .await
                        {
                            Ok(has_caught_up) => has_caught_up,
                            Err(error) => {
                                tracing::warn!(%error, "sweep failed; the next pass goes on");
                                true
                            }
                        };
                    // What is left is gone on with at once, but for the rest of what the sweeper sees to.
                    (pause, behind_since) = match has_caught_up {
                        true => (interval, None),
                        false => (PAUSE_MIN, behind_since.or(Some(began))),
                    };
                    let behind =
                        behind_since.map_or(Duration::ZERO, |since| clock.elapsed() - since);
                    ::metrics::gauge!(metrics::SWEEP_BEHIND).set(behind.as_secs_f64());
                }
            };
        runtime.spawn.spawn_lasting("sweeper", Box::pin(task));
    }
}

/// Passes, until one is not full, or until a time on the clock of this process; says whether nothing is left. What is
/// left behind faster than one pass in each interval removes it would stay for ever. Between two of them the ledger
/// is left to others for as long as the last one took.
pub(super) async fn sweep(
    ledger: &dyn Ledger,
    clock: &dyn Clock,
    retention: &Retention,
    until: Duration,
) -> Result<bool, LedgerError> {
    let full = u64::try_from(retention.rows_per_pass).unwrap_or(u64::MAX);
    loop {
        let before = clock.elapsed();
        let rows = ledger.sweep(retention).await?;
        ::metrics::counter!(metrics::SWEPT).increment(rows);
        if rows > 0 {
            tracing::debug!(rows, "swept");
        }
        // One kind alone fills a pass; of several that are nearly full, the next pass finds less.
        if rows < full {
            return Ok(true);
        }
        let now = clock.elapsed();
        if now >= until {
            return Ok(false);
        }
        clock.sleep(now.saturating_sub(before).max(PAUSE_MIN)).await;
    }
}
