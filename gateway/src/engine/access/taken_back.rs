//! Breaks the locks of credentials that the rules in force have taken back, where whoever put these in force did not live to,
//! or a transaction kept one. Until then `guard()` lets such a lock write.

use std::time::Duration;

use fence_core::ports::{By, LedgerError, RulesInForce};
use fencegate_access::Rules;
use tokio_util::sync::CancellationToken;

use super::Access;
use super::apply::{Breaking, break_free, lost};

/// Time that is left to the request that puts rules in force to break these locks, and pause before the rest is tried again.
const PAUSE: Duration = Duration::from_secs(10);
/// The request id under which the audit has what the gateway broke by itself.
const REQUEST_ID: &str = "rules of access";

impl Access {
    /// Looks at the start, and a while after each change of the rules, until none of these locks is left.
    pub(super) async fn break_taken_back(self, closing: CancellationToken) {
        // The generation under which none is left. Under it none can come again: no lock is sealed, renewed or handed on
        // to a credential that the rules have taken back (I17).
        let mut done = 0;
        let mut pause = Duration::ZERO;
        loop {
            let due = async {
                self.moved(done).await;
                self.inner.runtime.clock.sleep(pause).await;
            };
            if closing.run_until_cancelled(due).await.is_none() {
                return;
            }
            pause = PAUSE;
            match self.break_left().await {
                Ok(Some(generation)) => done = generation,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "locks of credentials that were taken back may be left; to be tried again");
                }
            }
        }
    }

    /// Breaks what is left of them (I17). Returns the generation of the rules under which none is left then; `None` if one may
    /// be, or if these rules cannot be read.
    ///
    /// 1. The rules as the ledger has them, not as this gateway knows them: those may be older, and take back what is given
    ///    back since.
    /// 2. The locks *after* them. One that is taken later is taken under these rules or newer ones.
    /// 3. Each is broken under the generation of these rules: if others are in force by now, nothing is, and those are looked
    ///    at next. No transaction is waited for.
    async fn break_left(&self) -> Result<Option<i64>, LedgerError> {
        let ledger = &*self.inner.ledger;
        // Step 1.
        let RulesInForce { generation, text } = ledger.rules().await?;
        let Some(text) = text else { return Ok(Some(generation)) };
        let Ok(rules) = Rules::parse(&text) else { return Ok(None) };
        // Step 2.
        let mut lost = lost(ledger, &rules, false).await?;
        // Step 3.
        let reason = "its credential is revoked, or gone from the rules".to_owned();
        let request_id = REQUEST_ID.to_owned();
        let breaking = Breaking { generation, by: By::default(), reason, request_id };
        break_free(ledger, &mut lost, &breaking).await?;
        let broken = lost.iter().filter(|one| one.is_broken).count();
        if broken > 0 {
            tracing::warn!(
                broken,
                generation,
                "locks of credentials that were taken back are broken"
            );
        }
        let is_left = lost.iter().any(|one| one.is_doomed && !one.is_broken);
        Ok((!is_left).then_some(generation))
    }
}
