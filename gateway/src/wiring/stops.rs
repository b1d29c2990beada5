//! What ends a gateway by itself: a failed disk, a task that has panicked, acts that it may not use any more.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fence_core::ports::Runtime;
use tokio_util::sync::CancellationToken;

use super::embedded::Embedded;
use crate::config::Config;
use crate::ledger::postgres::PgLedger;
use crate::ledger::postgres::acts::Standing;

/// How long answers may still go out once callers have been told that the ledger's disk failed under them.
/// A batcher's last word takes half of it.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How often it is looked whether the acts of this gateway are still there and allowed.
const ACTS_CHECK: Duration = Duration::from_secs(5);

/// Stops the gateway once the ledger's disk has failed, when the callers of the act that found out have been
/// told that nothing is known of it.
pub(super) fn if_disk_fails(
    runtime: &Runtime,
    config: &Config,
    files: &Arc<Embedded>,
    hard: CancellationToken,
) {
    let (clock, files) = (Arc::clone(&runtime.clock), Arc::clone(files));
    // Callers are told when their time is over.
    let told = config.request_timeout + LAST_ANSWERS;
    #[expect(clippy::disallowed_methods, reason = "must not itself be waited for")]
    tokio::spawn(async move {
        files.ledger.disk_failed().await;
        clock.sleep(told).await;
        hard.cancel();
    });
}

/// Stops the gateway once a task has panicked that others rely on: whoever supervises the process starts it again,
/// and a part that does nothing any more would be noticed by nobody.
pub(super) fn if_broken(broken: &CancellationToken, hard: CancellationToken) {
    let broken = broken.clone();
    #[expect(clippy::disallowed_methods, reason = "must not itself be waited for")]
    tokio::spawn(async move {
        broken.cancelled().await;
        hard.cancel();
    });
}

/// Stops the gateway once its acts were retired or are gone: it could do nothing. A start says why, or installs them.
pub(super) fn without_acts(
    runtime: &Runtime,
    ledger: &Arc<PgLedger>,
    stopped: Arc<OnceLock<Standing>>,
    hard: CancellationToken,
) {
    let (clock, ledger) = (Arc::clone(&runtime.clock), Arc::clone(ledger));
    #[expect(clippy::disallowed_methods, reason = "must not itself be waited for")]
    tokio::spawn(async move {
        loop {
            // A ledger that is away says nothing.
            match ledger.acts_standing().await {
                Ok(standing @ (Standing::Retired | Standing::Gone)) => {
                    let _first = stopped.set(standing);
                    return hard.cancel();
                }
                Ok(Standing::InForce) | Err(_) => clock.sleep(ACTS_CHECK).await,
            }
        }
    });
}
