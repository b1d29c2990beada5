//! Who is reading from which blob. A blob that is read from for long is pinned in the ledger, so that no
//! gateway deletes it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{BlobId, BlobStream, Ledger, Runtime};
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The readers of this gateway.
#[derive(Clone, Default)]
pub struct Readers {
    open: Arc<Mutex<HashMap<BlobId, usize>>>,
}

/// One of them; leaves when it is dropped.
pub struct Reader {
    blob: BlobId,
    of: Readers,
}

impl Readers {
    /// Pins what is being read, three times in each `grace`, for as long as it is.
    ///
    /// A blob stays for the grace after it was replaced; a pin comes before that is over.
    pub fn start(
        ledger: Arc<dyn Ledger>,
        runtime: &Runtime,
        grace: Duration,
        closing: CancellationToken,
    ) -> Self {
        let readers = Self::default();
        if grace.is_zero() {
            return readers;
        }
        let (clock, open) = (Arc::clone(&runtime.clock), readers.clone());
        let task = async move {
            let mut before: Vec<BlobId> = Vec::new();
            loop {
                if closing.run_until_cancelled(clock.sleep(grace / 3)).await.is_none() {
                    return;
                }
                let now = open.blobs();
                // Short reads end within the grace by themselves.
                let long: Vec<BlobId> =
                    now.iter().filter(|blob| before.contains(blob)).copied().collect();
                before = now;
                if !long.is_empty()
                    && let Err(error) = ledger.pin_blobs(&long, grace).await
                {
                    tracing::warn!(%error, "blobs that are being read could not be pinned");
                }
            }
        };
        runtime.spawn.spawn_lasting("pins", Box::pin(task));
        readers
    }

    fn blobs(&self) -> Vec<BlobId> {
        self.open.lock().keys().copied().collect()
    }

    /// Somebody begins to read.
    pub fn enter(&self, blob: BlobId) -> Reader {
        *self.open.lock().entry(blob).or_default() += 1;
        Reader { blob, of: self.clone() }
    }
}

impl Reader {
    /// Stays as long as the stream does.
    pub fn guard(self, stream: BlobStream) -> BlobStream {
        stream
            .map(move |chunk| {
                let _reading = &self;
                chunk
            })
            .boxed()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        if let Some(count) = open.get_mut(&self.blob) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.blob);
            }
        }
    }
}
