//! Reads of objects and lookups of idempotency keys, batched like everything else: many readers, one round trip.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ResourceName;
use fence_core::ports::{
    Clock, Ledger, LedgerError, ListingItem, ListingPage, Patience, ReadItem, ReadVerdict,
};

use crate::engine::batch::Act;
use crate::engine::{Engine, EngineError};

/// Reads, as the act of a batcher.
pub(in crate::engine) struct Read {
    pub(in crate::engine) ledger: Arc<dyn Ledger>,
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

/// Whether keys took effect, as the act of a batcher: in a line of their own, so that late writes stand in no other.
pub(super) struct KnownKey {
    pub(in crate::engine) ledger: Arc<dyn Ledger>,
    pub(super) clock: Arc<dyn Clock>,
}

/// How long a batch of keys waits, in which the next gathers: whoever asks was told before that its token is bad, and
/// the ledger is there for others.
const LATE: Duration = Duration::from_millis(10);

#[async_trait]
impl Act for KnownKey {
    type Item = (ResourceName, String);
    type Verdict = bool;
    type Lane = ();

    const NAME: &'static str = "known_keys";
    const DROPS_ABANDONED: bool = true;
    const GATHERS: bool = true;

    fn lane(_: &Self::Item) {}

    async fn run(&self, items: Arc<[Self::Item]>, _: Patience) -> Result<Vec<bool>, LedgerError> {
        self.clock.sleep(LATE).await;
        self.ledger.known_keys(&items).await
    }
}

impl Engine {
    /// Lists a bucket.
    ///
    /// # Errors
    /// What does not answer.
    pub async fn list_bucket(&self, page: ListingPage) -> Result<Vec<ListingItem>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.list_page(page).await }).await
    }
}
