//! Buckets of S3: made, deleted, and made again, with the depth that their name has for ever.

use fence_core::ports::{Bucket, By, DroppedBucket, Ledger, LedgerError, MadeBucket, RulesChanged};

use super::build::*;
use crate::conformance::Operator;

async fn make(ledger: &dyn Ledger, name: &str, depth: u8) -> MadeBucket {
    ledger.make_bucket(name, depth, &By::default()).await.expect("it is decided")
}

async fn drop_it(ledger: &dyn Ledger, name: &str) -> DroppedBucket {
    ledger.drop_bucket(name, &By::default()).await.expect("it is decided")
}

async fn made(ledger: &dyn Ledger, name: &str, depth: u8) -> Bucket {
    match make(ledger, name, depth).await {
        MadeBucket::Made(bucket) => bucket,
        other => panic!("{other:?}"),
    }
}

async fn names(ledger: &dyn Ledger) -> Vec<String> {
    let all = ledger.buckets().await.expect("a list");
    all.into_iter().map(|bucket| bucket.name).collect()
}

/// Made twice, a bucket is as it was made first, and nobody makes it another depth.
pub async fn a_bucket_is_made_once(ledger: &dyn Ledger) {
    assert_eq!(ledger.buckets().await, Ok(vec![]));
    let lake = made(ledger, "lake", 2).await;
    assert_eq!((lake.name.as_str(), lake.depth), ("lake", 2));
    assert_eq!(make(ledger, "lake", 2).await, MadeBucket::Exists(lake.clone()));
    assert_eq!(make(ledger, "lake", 1).await, MadeBucket::OtherDepth(lake.clone()));
    made(ledger, "bay.x", 0).await;
    made(ledger, "lake-2", 3).await;
    assert_eq!(names(ledger).await, ["bay.x", "lake", "lake-2"], "in the order of bytes");
    assert!(ledger.buckets().await.expect("a list").contains(&lake));
}

/// A bucket that was deleted is not there, and comes back with the depth that it had.
pub async fn a_deleted_bucket_keeps_its_depth(ledger: &dyn Ledger) {
    assert_eq!(drop_it(ledger, "lake").await, DroppedBucket::Unknown);
    let first = made(ledger, "lake", 1).await;
    assert_eq!(drop_it(ledger, "lake").await, DroppedBucket::Dropped);
    assert_eq!(drop_it(ledger, "lake").await, DroppedBucket::Unknown);
    assert!(names(ledger).await.is_empty());
    assert_eq!(make(ledger, "lake", 0).await, MadeBucket::OtherDepth(first.clone()));
    assert!(names(ledger).await.is_empty(), "nothing was made");
    let again = made(ledger, "lake", 1).await;
    assert!(again.created_at >= first.created_at);
    assert_eq!(ledger.buckets().await, Ok(vec![again]));
}

/// A bucket has the objects of the resource with its name, and of those whose names go on behind a colon; no others.
pub async fn a_bucket_with_objects_is_not_deleted(ledger: &dyn Ledger) {
    made(ledger, "lake", 1).await;
    let others = ["lak", "lake-x", "lake.x:y", "lakes", "lakes:x"];
    for (number, resource) in (10..).zip(others) {
        let lock = granted(ledger, seal([resource], number)).await;
        apply(ledger, put(&lock, "k", "x")).await;
    }
    for (number, resource) in [(30, "lake"), (31, "lake:orders"), (32, "lake:a:b")] {
        let lock = granted(ledger, seal([resource], number)).await;
        apply(ledger, put(&lock, "k", "x")).await;
        assert_eq!(drop_it(ledger, "lake").await, DroppedBucket::NotEmpty, "{resource}");
        apply(ledger, delete(&lock, "k")).await;
    }
    assert_eq!(drop_it(ledger, "lake").await, DroppedBucket::Dropped, "locks do not keep it");
}

/// What older rules allowed makes and deletes no bucket (I17).
pub async fn buckets_are_held_to_the_rules_in_force(ledger: &dyn Ledger) {
    let allowed = by("ann").under(0);
    made(ledger, "lake", 0).await;
    let applied = ledger.apply_rules(rules_change("one")).await.expect("applied");
    let RulesChanged::InForce(generation) = applied else { panic!("{applied:?}") };
    assert_eq!(ledger.make_bucket("bay", 0, &allowed).await, Err(LedgerError::RulesMoved));
    assert_eq!(ledger.drop_bucket("lake", &allowed).await, Err(LedgerError::RulesMoved));
    assert_eq!(names(ledger).await, ["lake"]);
    let allowed = by("ann").under(generation);
    assert!(matches!(ledger.make_bucket("bay", 0, &allowed).await, Ok(MadeBucket::Made(_))));
    assert_eq!(ledger.drop_bucket("lake", &allowed).await, Ok(DroppedBucket::Dropped));
}

/// Many who make a bucket at once agree on one depth.
pub async fn a_bucket_that_many_make_has_one_depth(ledger: &dyn Ledger) {
    let by = By::default();
    let all = futures::future::join_all((0..8).map(|n| ledger.make_bucket("lake", n % 4, &by)));
    let verdicts: Vec<_> = all.await.into_iter().map(|made| made.expect("decided")).collect();
    let firsts = verdicts.iter().filter(|made| matches!(made, MadeBucket::Made(_)));
    assert_eq!(firsts.count(), 1, "{verdicts:?}");
    let depth = ledger.buckets().await.expect("a list")[0].depth;
    let agree = |made: &MadeBucket| match made {
        MadeBucket::Made(it) | MadeBucket::Exists(it) | MadeBucket::OtherDepth(it) => {
            it.depth == depth
        }
    };
    assert!(verdicts.iter().all(agree), "{verdicts:?}");
}

/// The database itself keeps depths as they are.
pub async fn depths_are_kept_by_the_database(ledger: &dyn Ledger, operator: &Operator) {
    made(ledger, "lake", 1).await;
    for (sql, what) in [
        ("UPDATE s3_buckets SET depth = 2", "never changed or removed"),
        ("UPDATE s3_buckets SET name = 'bay'", "never changed or removed"),
        ("DELETE FROM s3_buckets", "never changed or removed"),
    ] {
        let refusal = operator.refusal(sql).await;
        assert!(refusal.contains(what), "{sql}: {refusal}");
    }
    for name in ["ab", "Lake", "la/ke", "la:ke"] {
        let insert = format!(
            "INSERT INTO s3_buckets (name, depth, created_at) SELECT '{name}', 0, created_at FROM s3_buckets"
        );
        operator.refusal(&insert).await;
    }
    assert_eq!(names(ledger).await, ["lake"]);
}
