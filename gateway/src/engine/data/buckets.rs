//! Buckets of S3 as this gateway knows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ResourceName;
use fence_core::ports::{
    Bucket, By, Clock, DroppedBucket, Ledger, LedgerError, MadeBucket, Patience,
};
use fence_core::wire::BUCKETS_MAX;
use fencegate_s3::bucket::{BucketName, Depth};
use parking_lot::RwLock;

use crate::engine::access::Permit;
use crate::engine::batch::{Act, Batcher};
use crate::engine::{Base, Engine, EngineError};

/// How long it is good what is known of buckets that are there. A deleted one is taken for one that is there for no
/// longer than that; its depth it keeps anyway.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// All buckets at one moment.
struct List {
    buckets: BTreeMap<BucketName, Bucket>,
    /// When the ledger was asked.
    asked_at: Duration,
}

/// Asking for all buckets, as the act of a batcher: one question for all who ask at the same time.
struct Look {
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Act for Look {
    type Item = ();
    type Verdict = Arc<List>;
    type Lane = ();

    const NAME: &'static str = "buckets";
    const DROPS_ABANDONED: bool = true;

    fn lane((): &()) {}

    async fn run(&self, items: Arc<[()]>, _: Patience) -> Result<Vec<Arc<List>>, LedgerError> {
        let asked_at = self.clock.elapsed();
        let all = self.ledger.buckets().await?.into_iter();
        // What S3 would not call a bucket cannot be asked for either.
        let named = |bucket: Bucket| Some((BucketName::new(bucket.name.clone()).ok()?, bucket));
        let list = Arc::new(List { buckets: all.filter_map(named).collect(), asked_at });
        Ok(vec![list; items.len()])
    }
}

/// What the gateway knows of buckets.
pub(in crate::engine) struct Buckets {
    looks: Batcher<Look>,
    clock: Arc<dyn Clock>,
    known: RwLock<Option<Arc<List>>>,
}

impl Buckets {
    pub(in crate::engine) fn start(base: &Base) -> Self {
        let (ledger, clock) = (Arc::clone(&base.ledger), Arc::clone(&base.runtime.clock));
        Self {
            looks: base.batcher(Look { ledger, clock: Arc::clone(&clock) }),
            clock,
            known: RwLock::default(),
        }
    }

    /// What is known, if it is good still.
    fn known(&self) -> Option<Arc<List>> {
        let now = self.clock.elapsed();
        let known = self.known.read().clone();
        known.filter(|list| now.saturating_sub(list.asked_at) <= KNOWN_FOR)
    }

    /// All of them, as the ledger says after this call.
    async fn look(&self) -> Result<Arc<List>, EngineError> {
        let list = self.looks.submit(()).await;
        let list = list.map_err(|failure| EngineError::unread(failure, "buckets"))?;
        let mut known = self.known.write();
        if known.as_ref().is_none_or(|known| known.asked_at < list.asked_at) {
            *known = Some(Arc::clone(&list));
        }
        Ok(list)
    }

    /// One was deleted: that is not to be found out only when this is asked for anew.
    fn forget(&self) {
        *self.known.write() = None;
    }

    /// The bucket of this name. One that is known to be there is told at once; of any other the ledger is asked each
    /// time, in one question for all who ask at the same time, since it may have been made through another gateway.
    async fn named(&self, name: &BucketName) -> Result<Option<Bucket>, EngineError> {
        if let Some(known) = self.known().and_then(|list| list.buckets.get(name).cloned()) {
            return Ok(Some(known));
        }
        Ok(self.look().await?.buckets.get(name).cloned())
    }
}

/// Whether a key of this bucket can name the resource: it is the bucket's own, or has as many segments as that is deep.
fn has_resource(name: &BucketName, bucket: &Bucket, resource: &ResourceName) -> bool {
    let depth = Depth::new(bucket.depth);
    depth.is_ok_and(|depth| depth.key_of(name, resource, "key").is_some())
}

impl Engine {
    /// All buckets, in the order of their names.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn buckets(&self) -> Result<Vec<Bucket>, EngineError> {
        Ok(self.inner.buckets.look().await?.buckets.values().cloned().collect())
    }

    /// The bucket of this name, if there is one. It may have been deleted a second ago.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn bucket(&self, name: &BucketName) -> Result<Option<Bucket>, EngineError> {
        self.inner.buckets.named(name).await
    }

    /// Whether S3 is on, and a key of some bucket can name one of these resources.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn lie_in_bucket(&self, resources: &[ResourceName]) -> Result<bool, EngineError> {
        if self.s3_keys().is_none() {
            return Ok(false);
        }
        for resource in resources {
            let Some(name) = BucketName::of_resource(resource) else { continue };
            let bucket = self.bucket(&name).await?;
            if bucket.is_some_and(|bucket| has_resource(&name, &bucket, resource)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a bucket; says whether it was not there before. Doing it again is harmless.
    ///
    /// # Errors
    /// `BucketDepthDiffers`, `TooManyBuckets`; what the rules say; the outcome may be unknown.
    pub async fn make_bucket(
        &self,
        name: BucketName,
        depth: Depth,
        permit: Permit,
    ) -> Result<(Bucket, bool), EngineError> {
        let there = self.inner.buckets.look().await?;
        if there.buckets.len() >= BUCKETS_MAX && !there.buckets.contains_key(&name) {
            return Err(EngineError::TooManyBuckets);
        }
        tracing::info!(bucket = name.as_str(), depth = depth.get(), "a bucket is made");
        let made = self.change_buckets(&permit, |ledger, by| {
            let name = name.clone();
            async move { ledger.make_bucket(name.as_str(), depth.get(), &by).await }
        });
        match made.await? {
            MadeBucket::Made(bucket) => Ok((bucket, true)),
            MadeBucket::Exists(bucket) => Ok((bucket, false)),
            MadeBucket::OtherDepth(bucket) => {
                Err(EngineError::BucketDepthDiffers { depth: bucket.depth })
            }
        }
    }

    /// Deletes a bucket that is empty.
    ///
    /// # Errors
    /// `BucketNotFound`, `BucketNotEmpty`; what the rules say; the outcome may be unknown.
    pub async fn drop_bucket(&self, name: BucketName, permit: Permit) -> Result<(), EngineError> {
        tracing::info!(bucket = name.as_str(), "a bucket is deleted");
        let dropped = self.change_buckets(&permit, |ledger, by| {
            let name = name.clone();
            async move { ledger.drop_bucket(name.as_str(), &by).await }
        });
        let dropped = dropped.await;
        self.inner.buckets.forget();
        match dropped? {
            DroppedBucket::Dropped => Ok(()),
            DroppedBucket::NotEmpty => Err(EngineError::BucketNotEmpty),
            DroppedBucket::Unknown => Err(EngineError::BucketNotFound),
        }
    }

    /// Sends such a change, in a task of its own, and again only if it was refused because the rules have moved.
    async fn change_buckets<V, F>(
        &self,
        permit: &Permit,
        change: impl Fn(Arc<dyn Ledger>, By) -> F,
    ) -> Result<V, EngineError>
    where
        V: Send + 'static,
        F: Future<Output = Result<V, LedgerError>> + Send + 'static,
    {
        loop {
            let call = change(Arc::clone(&self.inner.ledger), permit.by());
            let changed = self.change(async move {
                match call.await {
                    Err(LedgerError::RulesMoved) => Ok(None),
                    answer => answer.map(Some),
                }
            });
            match changed.await? {
                Some(done) => return Ok(done),
                None => permit.renew().await?,
            }
        }
    }
}
