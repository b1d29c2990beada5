//! What keys of S3 are derived from: the root of the settings, or else that of the ledger. And what commands do with keys and
//! buckets that have the ledger at hand: whoever has it has all there is.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use fence_core::ports::{Bucket, By, DroppedBucket, Ledger, MadeBucket};
use fence_core::wire;
use fencegate_s3::bucket::{BucketName, Depth};
use fencegate_s3::key::{Keys, Root};

use super::access::on_ledger;
use crate::config::{Config, S3Root};
use crate::engine::{self, EngineError, agreement};

/// The root of a gateway's keys, if S3 is on.
///
/// # Errors
/// The ledger does not answer.
pub(super) async fn root(config: &Config, ledger: &dyn Ledger) -> anyhow::Result<Option<S3Root>> {
    match config.s3_listen {
        Some(_) => root_of(config, ledger).await.map(Some),
        None => Ok(None),
    }
}

/// 1. That of the settings.
/// 2. That of the ledger; a new one, if it has none yet.
async fn root_of(config: &Config, ledger: &dyn Ledger) -> anyhow::Result<S3Root> {
    // Step 1.
    if let Some(root) = &config.s3_root {
        return Ok(root.clone());
    }
    // Step 2.
    let mut proposed = [0; 32];
    hex::decode_to_slice(new_root()?.reveal(), &mut proposed).context("a root is 32 bytes")?;
    let root = ledger.s3_root(proposed).await.context("cannot read the root of S3 keys")?;
    Ok(S3Root::from(Root::parse(&hex::encode(root)).context("the root of the ledger")?))
}

fn new_root() -> anyhow::Result<Root> {
    Root::generate().context("the system has no random bytes")
}

/// The keys that follow from a root.
///
/// # Errors
/// It is no root.
pub(super) fn keys(root: &S3Root) -> anyhow::Result<Arc<Keys>> {
    Ok(Arc::new(Keys::new(root.roots())?))
}

/// Makes a key, as gateways with these settings would: with these rights, or else of a principal.
///
/// # Errors
/// The ledger cannot be used; or its gateways have agreed on another root than this command was told.
pub async fn new_s3_key(
    config: &Config,
    rights: Option<wire::S3Rights>,
) -> anyhow::Result<wire::S3Key> {
    on_ledger(config, async |ledger| {
        let root = root_of(config, ledger).await?;
        let place = ledger.place(None).await.context("cannot read what the gateways agreed")?;
        let agreed = place.agreed.get(agreement::S3_ROOT);
        ensure!(
            agreed.is_none_or(|agreed| *agreed == root.fingerprint()),
            "the gateways of this ledger have another s3_root: their keys would not be these"
        );
        Ok(engine::new_s3_key(&*keys(&root)?, rights)?)
    })
    .await
}

/// All buckets, in the ledger itself.
///
/// # Errors
/// The ledger cannot be used.
pub async fn buckets(config: &Config) -> anyhow::Result<Vec<wire::Bucket>> {
    let buckets = on_ledger(config, async |ledger| Ok(ledger.buckets().await?)).await?;
    Ok(buckets.into_iter().map(shown).collect())
}

/// Makes a bucket, in the ledger itself.
///
/// # Errors
/// It has another depth; or the ledger cannot be used.
pub async fn make_bucket(
    config: &Config,
    name: &BucketName,
    depth: Depth,
) -> anyhow::Result<wire::Bucket> {
    let made = on_ledger(config, async |ledger| {
        let made = ledger.make_bucket(name.as_str(), depth.get(), &By::default()).await;
        made.context("whether the bucket was made is not known; the same again finds out")
    });
    match made.await? {
        MadeBucket::Made(bucket) | MadeBucket::Exists(bucket) => Ok(shown(bucket)),
        MadeBucket::OtherDepth(Bucket { depth, .. }) => {
            Err(EngineError::BucketDepthDiffers { depth }.into())
        }
    }
}

/// Deletes a bucket that is empty, in the ledger itself.
///
/// # Errors
/// It is not empty, or there is none; or the ledger cannot be used.
pub async fn drop_bucket(config: &Config, name: &BucketName) -> anyhow::Result<()> {
    let dropped = on_ledger(config, async |ledger| {
        let dropped = ledger.drop_bucket(name.as_str(), &By::default()).await;
        dropped.context("whether the bucket was deleted is not known; the same again finds out")
    });
    match dropped.await? {
        DroppedBucket::Dropped => Ok(()),
        DroppedBucket::NotEmpty => Err(EngineError::BucketNotEmpty.into()),
        DroppedBucket::Unknown => Err(EngineError::BucketNotFound.into()),
    }
}

fn shown(bucket: Bucket) -> wire::Bucket {
    let Bucket { name, depth, created_at } = bucket;
    wire::Bucket { name, depth, created_at }
}
