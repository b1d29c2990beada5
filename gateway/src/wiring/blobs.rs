//! The blob store of a gateway.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fence_core::ports::{BlobTimes, Blobs, Ledger, Runtime};
use tokio_util::sync::CancellationToken;

use crate::blobs::{BlobsUrl, LateBlobs, ObjectBlobs};
use crate::config::Config;
use crate::engine::{Standing, store_standing};

/// How long the store may take to answer at all before the gateway starts without it.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often a store that was away at the start is looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Opens the store, tries it out, and compares its mark with the ledger's. One that is away now is tried out when
/// it is there: until then this gateway has no large payloads, and all else.
///
/// A gateway beside others that was given no store has only a folder of its own. If the blobs are
/// elsewhere, it goes without: small payloads need no store.
///
/// # Errors
/// A store that is there and cannot be used.
pub(super) async fn open(
    config: &Config,
    ledger: &Arc<dyn Ledger>,
    runtime: &Runtime,
    soft: &CancellationToken,
) -> anyhow::Result<Option<Arc<dyn Blobs>>> {
    let url = config.blobs_url();
    let blobs = ObjectBlobs::open(&url)?;
    if let Some(why) = is_away(&blobs, runtime).await {
        tracing::warn!(
            %url, why,
            "the blob store is away; large payloads are refused until it is there and was tried out"
        );
        let late = LateBlobs::new(blobs);
        look_for(late.clone(), url, Arc::clone(ledger), runtime, soft.clone());
        return Ok(Some(Arc::new(late)));
    }
    match try_out(&blobs, &url, ledger, runtime).await? {
        Standing::Ours | Standing::Unbound => {}
        Standing::Other if config.is_shared() && config.blobs.is_none() => {
            tracing::warn!(
                "the blobs of this ledger are in another store than {url}; without `blobs`, which \
                 all gateways share, this one neither takes nor gives large payloads"
            );
            return Ok(None);
        }
        unusable => refuse(unusable, &url)?,
    }
    tracing::info!(%url, "blob store");
    Ok(Some(Arc::new(blobs)))
}

/// Why the store does not answer, if it does not.
async fn is_away(blobs: &ObjectBlobs, runtime: &Runtime) -> Option<String> {
    match runtime.within(ANSWER_MAX, blobs.is_away()).await {
        Some(why) => why,
        None => Some(format!("no answer for {} s", ANSWER_MAX.as_secs())),
    }
}

/// Whether it can do what is needed, and how it stands to the ledger.
async fn try_out(
    blobs: &ObjectBlobs,
    url: &BlobsUrl,
    ledger: &Arc<dyn Ledger>,
    runtime: &Runtime,
) -> anyhow::Result<Standing> {
    let cannot = || format!("cannot use the blob store {url}");
    let probed = blobs.probe(runtime.ids.uuid(), runtime.clock.now()).await;
    probed.with_context(cannot)?;
    store_standing(&**ledger, blobs).await.with_context(cannot)
}

fn refuse(standing: Standing, url: &BlobsUrl) -> anyhow::Result<()> {
    match standing {
        Standing::Ours | Standing::Unbound => Ok(()),
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
}

/// Looks for a store that was away at the start, until it can be used or `soft`.
fn look_for(
    late: LateBlobs,
    url: BlobsUrl,
    ledger: Arc<dyn Ledger>,
    runtime: &Runtime,
    soft: CancellationToken,
) {
    let used = runtime.clone();
    let look = async move {
        let mut said = None;
        loop {
            used.clock.sleep(LOOK_INTERVAL).await;
            if is_away(late.untried(), &used).await.is_some() {
                continue;
            }
            let tried = try_out(late.untried(), &url, &ledger, &used).await;
            match tried.and_then(|standing| refuse(standing, &url)) {
                Ok(()) => {
                    late.use_from_now_on();
                    return tracing::info!(%url, "the blob store is there");
                }
                // Once for each reason: it is looked at again and again.
                Err(error) => {
                    let why = format!("{error:#}");
                    if said.as_ref() != Some(&why) {
                        tracing::error!("{why}");
                        said = Some(why);
                    }
                }
            }
        }
    };
    let task = async move {
        tokio::select! {
            biased;
            () = soft.cancelled() => {}
            () = look => {}
        }
    };
    runtime.spawn.spawn_lasting("blob-store", Box::pin(task));
}

/// How long blobs stay that no object points at.
pub(super) fn times(config: &Config) -> BlobTimes {
    BlobTimes {
        upload: config.uploads_kept,
        multipart: config.multipart_kept,
        reader_grace: config.reader_grace,
        rollback_horizon: config.rollback_horizon,
        versions: config.versions_kept,
        redelete: config.redelete_after,
    }
}

/// How many uploads may be under way. Where S3 is on there is room for twice as many: its tools send the parts of one
/// object side by side.
pub(super) fn uploads_max(config: &Config) -> usize {
    config.uploads_max * if config.s3_listen.is_some() { 2 } else { 1 }
}
