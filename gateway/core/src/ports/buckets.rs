//! Buckets of S3: names under which the objects of resources can be reached, and how a key names its resource.

use async_trait::async_trait;
use jiff::Timestamp;

use super::act::LedgerError;
use super::by::By;

/// A bucket. Its objects are those of the resource with its name, and of those whose names begin with it and a colon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Its name, as S3 allows them.
    pub name: String,
    /// How many leading segments of a key name its resource: 0 to 3. Never changed, so that no object moves from one lock
    /// to another.
    pub depth: u8,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What became of making a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MadeBucket {
    /// It is there now, and was not before.
    Made(Bucket),
    /// It was there, with this depth.
    Exists(Bucket),
    /// It has another depth, or had when it was deleted: nothing changed.
    OtherDepth(Bucket),
}

/// What became of deleting a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DroppedBucket {
    /// It is not there any more. Its depth is remembered.
    Dropped,
    /// It has objects: nothing changed.
    NotEmpty,
    /// There is none.
    Unknown,
}

/// The side of the ledger that knows of buckets.
#[async_trait]
pub trait Buckets: Send + Sync {
    /// Makes a bucket, unless the rules are others than those under which that was allowed (I17). Doing it again is
    /// harmless.
    async fn make_bucket(&self, name: &str, depth: u8, by: &By) -> Result<MadeBucket, LedgerError>;

    /// Deletes a bucket that is empty, likewise. A write that comes at the same time may be in it afterwards: it is seen
    /// again when the bucket is made again, since its depth stays.
    async fn drop_bucket(&self, name: &str, by: &By) -> Result<DroppedBucket, LedgerError>;

    /// All buckets, in the order of their names.
    async fn buckets(&self) -> Result<Vec<Bucket>, LedgerError>;
}
