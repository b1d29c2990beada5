//! Renewals. No mint: with it down, holders renew as ever.

use std::sync::Arc;

use async_trait::async_trait;
use fence_core::ports::{Grant, Ledger, LedgerError, Patience, RenewItem, RenewVerdict};
use fence_core::{LockId, PrincipalName, Ttl};

use super::Locks;
use crate::engine::access::Permit;
use crate::engine::batch::Act;
use crate::engine::{Engine, EngineError, metrics};

/// A lock that was renewed.
#[derive(Debug, Clone)]
pub struct Renewed {
    /// The lock.
    pub grant: Grant,
    /// For how long it had been expired, if it had.
    pub lapsed_ms: Option<i64>,
}

/// Renewals, as the act of a batcher. Run twice, it renews twice: no harm.
pub(super) struct Renew {
    pub(super) ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Act for Renew {
    type Item = RenewItem;
    type Verdict = RenewVerdict;
    type Lane = LockId;

    const NAME: &'static str = "renew";

    fn principal(item: &RenewItem) -> Option<&PrincipalName> {
        item.by.principal()
    }

    fn lane(item: &RenewItem) -> LockId {
        item.lock
    }

    async fn run(
        &self,
        items: Arc<[RenewItem]>,
        patience: Patience,
    ) -> Result<Vec<RenewVerdict>, LedgerError> {
        self.ledger.renew(items, patience).await
    }

    fn is_busy(verdict: &RenewVerdict) -> bool {
        matches!(verdict, RenewVerdict::Busy)
    }

    fn rules_moved(verdict: &RenewVerdict) -> bool {
        matches!(verdict, RenewVerdict::RulesMoved)
    }
}

impl Engine {
    /// Starts the ttl of a lock again, also of one that has expired and that nobody took over.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn renew(
        &self,
        id: LockId,
        ttl: Option<Ttl>,
        permit: Permit,
    ) -> Result<Renewed, EngineError> {
        let renewed = self.inner.locks.renew(id, ttl, &permit).await?;
        self.inner.locks.watches.poke(&id);
        self.inner.locks.sights.poke_on(&renewed.grant.resources);
        Ok(renewed)
    }
}

impl Locks {
    /// Starts the ttl of a lock again.
    async fn renew(
        &self,
        id: LockId,
        ttl: Option<Ttl>,
        permit: &Permit,
    ) -> Result<Renewed, EngineError> {
        let verdict = loop {
            match self.renewals.submit(RenewItem { lock: id, ttl, by: permit.by() }).await {
                Ok(RenewVerdict::RulesMoved) => permit.renew().await?,
                verdict => break verdict,
            }
        };
        let outcome = match verdict {
            Ok(RenewVerdict::Renewed { grant, lapsed_ms }) => Ok(Renewed { grant, lapsed_ms }),
            Ok(RenewVerdict::Ended(how)) => Err(EngineError::LockEnded(how)),
            Ok(RenewVerdict::Breaking) => Err(EngineError::LockBreaking),
            Ok(RenewVerdict::Draining) => Err(EngineError::Draining(None)),
            Ok(RenewVerdict::HoldExceeded) => Err(EngineError::HoldExceeded),
            Ok(RenewVerdict::NotFound) => Err(EngineError::LockNotFound),
            Ok(RenewVerdict::RulesMoved) => Err(EngineError::AccessUnavailable),
            Ok(RenewVerdict::Busy) => Err(EngineError::Busy),
            Err(failure) => Err(EngineError::unsent(failure, "locks")),
        };
        let word = match &outcome {
            Ok(renewed) if renewed.lapsed_ms.is_some() => "revived",
            Ok(_) => "renewed",
            Err(error) => {
                let reason = error.code().as_str();
                ::metrics::counter!(metrics::RENEW_FAILURES, "reason" => reason).increment(1);
                "failed"
            }
        };
        ::metrics::counter!(metrics::RENEWALS, "outcome" => word).increment(1);
        outcome
    }
}
