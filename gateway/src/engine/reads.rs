//! Reads of objects, batched like everything else: many readers, one round trip.

use std::sync::Arc;

use async_trait::async_trait;
use fence_core::ports::{Ledger, LedgerError, Patience, ReadItem, ReadVerdict};

use super::batcher::Act;

/// Reads, as the act of a batcher.
pub(super) struct Read {
    pub(super) ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Act for Read {
    type Item = ReadItem;
    type Verdict = ReadVerdict;
    type Lane = ();

    const NAME: &'static str = "read";
    const DROPS_ABANDONED: bool = true;
    const GATHERS: bool = true;

    fn lane(_: &ReadItem) {}

    async fn run(
        &self,
        items: Arc<[ReadItem]>,
        _: Patience,
    ) -> Result<Vec<ReadVerdict>, LedgerError> {
        self.ledger.read(items).await
    }
}
