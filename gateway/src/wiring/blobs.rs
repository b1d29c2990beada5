//! The blob store of a gateway.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use fence_core::ports::{BlobTimes, Blobs, Ledger, Runtime};

use crate::blobs::ObjectBlobs;
use crate::config::Config;
use crate::engine::{Standing, store_standing};

/// Opens the store, tries it out, and compares its mark with the ledger's.
///
/// A gateway beside others that was given no store has only a folder of its own. If the blobs are
/// elsewhere, it goes without: small payloads need no store.
pub(super) async fn open(
    config: &Config,
    ledger: &Arc<dyn Ledger>,
    runtime: &Runtime,
) -> anyhow::Result<Option<Arc<dyn Blobs>>> {
    let url = config.blobs_url();
    let blobs = ObjectBlobs::open(&url)?;
    let probed = blobs.probe(runtime.ids.lock().0, runtime.clock.now()).await;
    probed.with_context(|| format!("cannot use the blob store {url}"))?;
    let standing = store_standing(&**ledger, &blobs).await;
    match standing.with_context(|| format!("cannot use the blob store {url}"))? {
        Standing::Ours | Standing::Unbound => {}
        Standing::Other if config.is_shared() && config.blobs.is_none() => {
            tracing::warn!(
                "the blobs of this ledger are in another store than {url}; without `blobs`, which \
                 all gateways share, this one neither takes nor gives large payloads"
            );
            return Ok(None);
        }
        Standing::Other => bail!(
            "the blobs of this ledger are in another store than {url}; give the one that was used \
             before, or move everything that is in it, the file fencegate-store as well"
        ),
        Standing::Foreign => bail!(
            "{url} has the blobs of another ledger, which this one would take for garbage; give each \
             ledger a bucket or prefix of its own. Only if the other ledger is gone for good, remove \
             the file fencegate-store"
        ),
    }
    tracing::info!(%url, "blob store");
    Ok(Some(Arc::new(blobs)))
}

/// How long blobs stay that no object points at.
pub(super) fn times(config: &Config) -> BlobTimes {
    BlobTimes {
        upload: config.uploads_kept,
        reader_grace: config.reader_grace,
        rollback_horizon: config.rollback_horizon,
        versions: config.versions_kept,
        redelete: config.redelete_after,
    }
}
