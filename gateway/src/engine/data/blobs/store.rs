//! The blob store of this gateway, and whether it is the one that the ledger's blobs are in.

use std::sync::Arc;

use fence_core::ports::{Blobs, Ledger, StoreMark};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::engine::EngineError;

/// How a store stands to a ledger. Both carry a mark: the store says of which ledger it is, and the ledger
/// which store has its blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has the ledger's blobs.
    Ours,
    /// The ledger has no blobs, and the store is nobody else's.
    Unbound,
    /// The ledger's blobs are elsewhere.
    Other,
    /// It has the blobs of another ledger.
    Foreign,
}

/// How a store stands to a ledger now.
pub async fn store_standing(
    ledger: &dyn Ledger,
    blobs: &dyn Blobs,
) -> Result<Standing, EngineError> {
    let mark = blobs.mark().await?;
    let known = ledger.blob_store().await?;
    // Also of a ledger that must be re-fenced: the gateway has to start to do that.
    let id = ledger.place(None).await?.epoch.ledger;
    Ok(match (mark, known) {
        (Some(mark), _) if mark.ledger != id => Standing::Foreign,
        (Some(mark), Some(known)) if mark.store == known => Standing::Ours,
        (_, Some(_)) => Standing::Other,
        (_, None) => Standing::Unbound,
    })
}

/// The store of this gateway.
///
/// A gateway that is started with another folder or bucket than the others would store what they
/// cannot read, and take for deleted what it does not have. Whoever uploads first binds the two.
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
        self.blobs.as_ref().ok_or_else(elsewhere)
    }

    /// The store, if it has the ledger's blobs. A yes is for good. Calls the ledger, so not from the
    /// future of a request.
    pub async fn ours(&self) -> Result<&Arc<dyn Blobs>, EngineError> {
        let blobs = self.blobs()?;
        let check = || async {
            match store_standing(&*self.ledger, &**blobs).await? {
                Standing::Ours => Ok(()),
                Standing::Unbound | Standing::Other | Standing::Foreign => Err(elsewhere()),
            }
        };
        self.bound.get_or_try_init(check).await?;
        Ok(blobs)
    }

    /// The store, for storing: bound to the ledger from now on. The store is marked first, and the ledger
    /// decides between two stores. Calls the ledger, so not from the future of a request.
    pub async fn bind(&self, proposed: Uuid) -> Result<(), EngineError> {
        let blobs = self.blobs()?;
        let bind = || async {
            let ledger = self.ledger.epoch().await?.ledger;
            let mut mark = blobs.mark().await?;
            if mark.is_none() {
                blobs.set_mark(StoreMark { store: proposed, ledger }).await?;
                mark = blobs.mark().await?;
            }
            let mark = mark.filter(|mark| mark.ledger == ledger).ok_or_else(elsewhere)?;
            match self.ledger.bind_blob_store(mark.store).await? == mark.store {
                true => Ok(()),
                false => Err(elsewhere()),
            }
        };
        self.bound.get_or_try_init(bind).await.map(drop)
    }
}

fn elsewhere() -> EngineError {
    EngineError::BlobsUnavailable(
        "this gateway is not connected to the blob store of its ledger; give all gateways the same \
         `blobs`"
            .into(),
    )
}
