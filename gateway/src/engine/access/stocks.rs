//! Counts again and again what principals have in the ledger, so that it can be held against their quotas: whoever asks pays
//! nothing for that, and may have what it brings in within a second beyond its quota.

use std::sync::Arc;
use std::time::Duration;

use fence_core::PrincipalName;
use fence_core::ports::{Ledger, Runtime};
use tokio_util::sync::CancellationToken;

use super::Access;

/// How often they are counted, and how many times as long as a count took there is none.
const INTERVAL: Duration = Duration::from_secs(1);
const REST: u32 = 20;
/// How many principals the ledger is asked about at a time.
const AT_A_TIME: usize = 1_000;

impl Access {
    /// Counts what those have who have asked for something since the last time.
    pub(super) async fn count_stocks(self, closing: CancellationToken) {
        let Runtime { clock, .. } = &self.inner.runtime;
        let mut failed = false;
        loop {
            let began = clock.elapsed();
            match self.count_once().await {
                Ok(()) => failed = false,
                Err(error) if failed => tracing::debug!(%error, "quotas go by an old count"),
                Err(error) => {
                    failed = true;
                    tracing::warn!(%error, "what principals have cannot be counted; quotas go by the last count");
                }
            }
            let took = clock.elapsed().saturating_sub(began);
            let pause = clock.sleep(INTERVAL.max(took * REST));
            if closing.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    async fn count_once(&self) -> Result<(), fence_core::ports::LedgerError> {
        let ledger: &Arc<dyn Ledger> = &self.inner.ledger;
        for some in self.inner.principals.came().chunks(AT_A_TIME) {
            let names: Vec<PrincipalName> = some.iter().map(|(name, _)| name.clone()).collect();
            let stocks = ledger.stocks(&names).await?;
            for (name, holdings) in some {
                holdings.has(stocks.get(name).copied().unwrap_or_default());
            }
        }
        Ok(())
    }
}
