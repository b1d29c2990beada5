//! The buckets of the ledger in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use async_trait::async_trait;

use super::MemoryLedger;
use crate::ports::{Bucket, Buckets, By, DroppedBucket, LedgerError, MadeBucket};

/// All buckets, those that were deleted too.
#[derive(Clone, Default)]
pub(super) struct BucketRows {
    rows: BTreeMap<String, BucketRow>,
}

#[derive(Clone)]
struct BucketRow {
    bucket: Bucket,
    is_deleted: bool,
}

#[async_trait]
impl Buckets for MemoryLedger {
    async fn make_bucket(&self, name: &str, depth: u8, by: &By) -> Result<MadeBucket, LedgerError> {
        let created_at = self.now().wall;
        let state = &mut *self.state();
        if state.rows.rules_moved(by) {
            return Err(LedgerError::RulesMoved);
        }
        let made = Bucket { name: name.to_owned(), depth, created_at };
        let row = match state.buckets.rows.entry(name.to_owned()) {
            Entry::Vacant(place) => {
                place.insert(BucketRow { bucket: made.clone(), is_deleted: false });
                return Ok(MadeBucket::Made(made));
            }
            Entry::Occupied(row) => row.into_mut(),
        };
        if row.bucket.depth != depth {
            return Ok(MadeBucket::OtherDepth(row.bucket.clone()));
        }
        if !row.is_deleted {
            return Ok(MadeBucket::Exists(row.bucket.clone()));
        }
        *row = BucketRow { bucket: made.clone(), is_deleted: false };
        Ok(MadeBucket::Made(made))
    }

    async fn drop_bucket(&self, name: &str, by: &By) -> Result<DroppedBucket, LedgerError> {
        let state = &mut *self.state();
        if state.rows.rules_moved(by) {
            return Err(LedgerError::RulesMoved);
        }
        let Some(row) = state.buckets.rows.get_mut(name).filter(|row| !row.is_deleted) else {
            return Ok(DroppedBucket::Unknown);
        };
        let is_of_it = |resource: &str| {
            let rest = resource.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        if state.rows.objects.keys().any(|(resource, _)| is_of_it(resource.as_str())) {
            return Ok(DroppedBucket::NotEmpty);
        }
        row.is_deleted = true;
        Ok(DroppedBucket::Dropped)
    }

    async fn buckets(&self) -> Result<Vec<Bucket>, LedgerError> {
        let state = self.state();
        let there = state.buckets.rows.values().filter(|row| !row.is_deleted);
        Ok(there.map(|row| row.bucket.clone()).collect())
    }
}
