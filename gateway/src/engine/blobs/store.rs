//! The blob store of this gateway, and whether it is the one that the ledger's blobs are in.

use std::sync::Arc;

use fence_core::ports::{Blobs, Ledger};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::engine::EngineError;

/// A store, bound to its ledger by a mark that both carry.
///
/// A gateway that is started with another folder or bucket than the others would store what they
/// cannot read. Whoever uploads first binds the two; a ledger without blobs is bound to no store.
pub struct Store {
    blobs: Option<Arc<dyn Blobs>>,
    ledger: Arc<dyn Ledger>,
    bound: OnceCell<()>,
}

impl Store {
    pub fn new(blobs: Option<Arc<dyn Blobs>>, ledger: Arc<dyn Ledger>) -> Self {
        Self { blobs, ledger, bound: OnceCell::new() }
    }

    /// The store, for reading.
    pub fn blobs(&self) -> Result<&Arc<dyn Blobs>, EngineError> {
        self.blobs.as_ref().ok_or_else(|| {
            EngineError::BlobsUnavailable(
                "this gateway is not connected to the blob store of its ledger; give all gateways \
                 the same `blobs`"
                    .into(),
            )
        })
    }

    /// The store, for storing: bound to the ledger from now on. Calls the ledger, so not from the
    /// future of a request.
    pub async fn bind(&self, proposed: Uuid) -> Result<(), EngineError> {
        let blobs = self.blobs()?;
        let bind = || async {
            let mark = match blobs.mark().await? {
                Some(mark) => mark,
                None => {
                    blobs.set_mark(proposed).await?;
                    blobs.mark().await?.unwrap_or(proposed)
                }
            };
            match self.ledger.bind_blob_store(mark).await? == mark {
                true => Ok(()),
                false => Err(EngineError::BlobsUnavailable(
                    "the blobs of this ledger are in another store".into(),
                )),
            }
        };
        self.bound.get_or_try_init(bind).await.map(drop)
    }
}
