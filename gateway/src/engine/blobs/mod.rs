//! Payloads too large for the ledger: how they get into the blob store, are read from it, and leave it.

mod garbage;
mod readers;
mod reads;
mod scrub;
mod store;
mod uploads;

pub use reads::{Content, Fetched, Wanted};
pub use scrub::{Scrub, ScrubProgress, ScrubReport};
pub use uploads::{Upload, UploadHead, Uploaded};

use std::sync::Arc;

use fence_core::ports::{Blobs, Ledger, Runtime};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Settings;
use garbage::Collector;
use readers::Readers;
use store::Store;

/// What the engine has for blobs.
pub(super) struct Parts {
    store: Store,
    readers: Readers,
    /// Room for uploads.
    room: Arc<Semaphore>,
}

impl Parts {
    /// Starts the tasks that collect garbage and pin what is being read.
    pub(super) fn start(
        ledger: &Arc<dyn Ledger>,
        blobs: Option<Arc<dyn Blobs>>,
        runtime: &Runtime,
        settings: &Settings,
        closing: &CancellationToken,
    ) -> Self {
        if let Some(blobs) = &blobs {
            let (ledger, blobs) = (Arc::clone(ledger), Arc::clone(blobs));
            let collector = Collector { ledger, blobs, times: settings.blob_times };
            collector.start(runtime, settings.sweep_interval, closing.clone());
        }
        let grace = settings.blob_times.reader_grace;
        Self {
            readers: Readers::start(Arc::clone(ledger), runtime, grace, closing.clone()),
            store: Store::new(blobs, Arc::clone(ledger)),
            room: Arc::new(Semaphore::new(settings.uploads_max)),
        }
    }

    /// The store, for reading.
    pub(super) fn store(&self) -> Result<&Arc<dyn Blobs>, super::EngineError> {
        self.store.blobs()
    }
}
