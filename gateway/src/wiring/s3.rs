//! Keys and buckets of S3, for commands that have the ledger at hand, and for a key also the root.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use fence_core::ports::{Bucket, By, DroppedBucket, Ledger as _, MadeBucket};
use fence_core::wire;
use fencegate_s3::bucket::{BucketName, Depth};
use fencegate_s3::key::Keys;

use super::access::{self, Embedded, on_ledger};
use super::root;
use crate::config::{Config, S3Root};
use crate::engine::{self, EngineError, agreement};

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
/// There is no root, or the gateways have agreed on another one; or the ledger cannot be used.
pub async fn new_s3_key(
    config: &Config,
    rights: Option<wire::S3Rights>,
) -> anyhow::Result<wire::S3Key> {
    let root = match &config.postgres {
        Some(_) => agreed_root(config).await?,
        None => {
            let embedded = Embedded::open(config).await?;
            let root = root::in_directory(config, &embedded.ledger).await;
            embedded.ledger.close().await?;
            root?
        }
    };
    Ok(engine::new_s3_key(&*keys(&root)?, rights)?)
}

/// The root of the settings, if it is the one that the gateways on Postgres have.
async fn agreed_root(config: &Config) -> anyhow::Result<S3Root> {
    let root = config.s3_root.clone().context(S3Root::WANTED)?;
    let ledger = access::shared(config).await?;
    root::agree_on_clear(&ledger).await?;
    let place = ledger.place(None).await.context("cannot read what the gateways agreed")?;
    let agreed = place.agreed.get(agreement::S3_ROOT);
    ensure!(
        agreed.is_none_or(|agreed| *agreed == root.fingerprint()),
        "the gateways of this ledger have another s3_root: their keys would not be these"
    );
    Ok(root)
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
