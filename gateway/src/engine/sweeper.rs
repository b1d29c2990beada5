//! The sweeper: stores breaks that have come due and removes what has been kept long enough.

use std::sync::Arc;

use fence_core::ports::{Ledger, Runtime};
use tokio_util::sync::CancellationToken;

use super::Settings;

/// Starts the sweeper. Several gateways may sweep at once; each pass is bounded.
pub(super) fn start(
    ledger: Arc<dyn Ledger>,
    runtime: &Runtime,
    settings: &Settings,
    closing: CancellationToken,
) {
    let (clock, retention) = (Arc::clone(&runtime.clock), settings.retention.clone());
    let interval = settings.sweep_interval;
    let task = async move {
        loop {
            tokio::select! {
                () = clock.sleep(interval) => {}
                () = closing.cancelled() => return,
            }
            match ledger.sweep(&retention).await {
                Ok(0) => {}
                Ok(rows) => tracing::debug!(rows, "swept"),
                Err(error) => tracing::warn!(%error, "sweep failed; the next pass goes on"),
            }
        }
    };
    runtime.spawn.spawn("sweeper", Box::pin(task));
}
