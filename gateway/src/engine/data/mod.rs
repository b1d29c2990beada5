//! What is under the fences: writes and commits of many, reads, large payloads, buckets of S3, the feed and the records of
//! what was written and refused.

mod audit_keep;
mod audit_tree;
mod blobs;
mod buckets;
mod commits;
mod feed;
mod follow;
mod marks;
mod reads;
mod refusals;
mod rejections;
mod s3_keys;
mod under_way;
mod writes;

pub use audit_keep::AuditPlaces;
pub(super) use audit_keep::start as start_audit_keep;
pub(super) use audit_tree::start as start_audit_tree;
pub use audit_tree::{AuditKey, Exported, Inclusion, Sealed, audit_page, hashed};
pub(super) use blobs::Parts as BlobParts;
pub use blobs::{
    Content, Fetched, Scrub, ScrubProgress, ScrubReport, Standing, Upload, UploadHead, Uploaded,
    Wanted, store_standing, upload_halves,
};
pub(super) use buckets::Buckets;
pub(super) use commits::Commits;
pub use commits::{COMMIT_STEPS_MAX, CommitFailure, CommitHead, CommitOutcome, Step, StepOutcome};
pub(super) use feed::Feed;
pub use feed::{EventReader, EventsFrom, READERS_MAX};
pub(super) use follow::Follow;
pub use follow::{Followed, Follower, RecordFrom};
pub(super) use reads::Read;
pub(super) use refusals::Refusals;
pub(super) use s3_keys::LockHolders;
pub use s3_keys::new_s3_key;
pub use writes::{InParts, PutBody, Write, WriteEffect, WriteFailure, WriteOutcome};
pub(super) use writes::{Record, Writes};
