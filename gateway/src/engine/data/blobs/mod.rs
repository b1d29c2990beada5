//! Payloads too large for the ledger: how they get into the blob store, are read from it, and leave it.

mod digests;
mod garbage;
mod multipart;
mod parts;
mod readers;
mod reads;
mod scrub;
mod store;
mod uploads;

pub use reads::{Content, Fetched, Wanted};
pub use scrub::{Scrub, ScrubProgress, ScrubReport};
pub use store::{Standing, store_standing};
pub use uploads::{Upload, UploadHead, Uploaded, upload_halves};

use std::sync::Arc;

use fence_core::ports::{Blobs, Ledger};
use tokio::sync::Semaphore;

use crate::engine::agreement::Agreement;
use crate::engine::{Base, EngineError};
use garbage::Collector;
use readers::Readers;
use store::Store;

/// What the engine has for blobs.
pub(in crate::engine) struct Parts {
    store: Arc<Store>,
    readers: Readers,
    /// Room for uploads, counted in halves.
    room: Arc<Semaphore>,
}

impl Parts {
    /// Starts the tasks that collect garbage and pin what is being read.
    pub(in crate::engine) fn start(
        base: &Base,
        blobs: Option<Arc<dyn Blobs>>,
        agreement: &Arc<Agreement>,
    ) -> Self {
        let Base { ledger, runtime, settings, closing, .. } = base;
        let store = Arc::new(Store::new(blobs, Arc::clone(ledger)));
        let collector = Collector {
            ledger: Arc::clone(ledger),
            store: Arc::clone(&store),
            agreement: Arc::clone(agreement),
        };
        collector.start(runtime, settings.sweep_interval, closing.clone());
        let grace = settings.blob_times.reader_grace;
        Self {
            readers: Readers::start(Arc::clone(ledger), runtime, grace, closing.clone()),
            store,
            room: Arc::new(Semaphore::new(2 * settings.uploads_max)),
        }
    }

    /// How the store stands to the ledger; a gateway without one is not at home.
    pub(in crate::engine) async fn standing(
        &self,
        ledger: &dyn Ledger,
    ) -> Result<Standing, EngineError> {
        store_standing(ledger, &**self.store.blobs()?).await
    }
}
