//! The sweeper: stores breaks that have come due and removes what has been kept long enough.

use std::sync::Arc;

use fence_core::ports::{Ledger, Runtime};
use tokio_util::sync::CancellationToken;

use super::upstreams::Drains;
use super::{Settings, metrics};

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
            match ledger.sweep(&retention).await {
                Ok(0) => {}
                Ok(rows) => tracing::debug!(rows, "swept"),
                Err(error) => tracing::warn!(%error, "sweep failed; the next pass goes on"),
            }
        }
    };
    runtime.spawn.spawn("sweeper", Box::pin(task));
}
