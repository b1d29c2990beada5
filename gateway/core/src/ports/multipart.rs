//! Uploads in parts, as S3 has them: each part is a blob, and the object is the list of them.
//!
//! An upload has an intent, like any blob, and its parts share its fate (I19): the act that completes it, the one that
//! aborts it and the sweeper take that intent by one row. A part is taken in only while the intent is there. What becomes
//! of the upload later becomes of its parts: they are an object's, a replaced version's, or garbage.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::act::LedgerError;
use super::blobs::BlobId;
use super::by::By;
use super::uploads::{UploadItem, UploadVerdict};
use crate::lock::LockId;
use crate::names::{ObjectKey, ResourceName};
use crate::principal::PrincipalName;
use crate::rule::Refusal;
use crate::token::Token;

/// The most parts of an upload.
pub const PARTS_MAX: i32 = 10_000;

/// What an upload in parts becomes. It is bound to an object, and not to a token: a successor may complete what its
/// predecessor has uploaded, and the predecessor may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipart {
    /// The resource.
    pub resource: ResourceName,
    /// The object.
    pub key: ObjectKey,
    /// Its content type.
    pub content_type: String,
    /// What S3 tells of it, as JSON.
    pub about: Option<Arc<str>>,
    /// Who began it; none where no rules are in force.
    pub principal: Option<PrincipalName>,
}

/// An upload in parts that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultipartRecord {
    /// Its id.
    pub upload: BlobId,
    /// When it was begun.
    pub begun_at: Timestamp,
    /// What it becomes.
    pub multipart: Multipart,
}

/// A part of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its bytes.
    pub blob: BlobId,
    /// How many.
    pub size: i64,
    /// Their SHA-256.
    pub sha256: [u8; 32],
    /// The checksum that S3 was given of them, as text.
    pub checksum: Option<String>,
    /// When it was begun: of two under one number the one counts that was begun last.
    pub begun_at: Timestamp,
    /// When it was stored.
    pub stored_at: Timestamp,
}

/// A part that was uploaded.
#[derive(Debug, Clone)]
pub struct PartItem {
    /// The upload.
    pub upload: BlobId,
    /// The resource that the upload is for.
    pub resource: ResourceName,
    /// The token presented.
    pub token: Token,
    /// The lock id presented, if any.
    pub lock: Option<LockId>,
    /// The caller, and the rules under which the part was allowed.
    pub by: By,
    /// Its number in the upload.
    pub number: i32,
    /// Its bytes, whose intent it consumes.
    pub blob: BlobId,
    /// How many.
    pub size: i64,
    /// Their SHA-256.
    pub sha256: [u8; 32],
    /// The checksum that S3 was given of them, as text.
    pub checksum: Option<String>,
}

/// What became of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartVerdict {
    /// It is the upload's.
    Stored,
    /// One under the same number was begun later, and counts: this one is garbage.
    Overtaken,
    /// The upload was completed, aborted or given up, or never was, or is not for this resource.
    NoUpload,
    /// Its intent is gone: the part took too long, and is garbage.
    Expired,
    /// A write would be refused: nothing changed, and the part is garbage once its intent is given up.
    Refused(Refusal),
}

/// A wish to end an upload in parts.
#[derive(Debug, Clone)]
pub struct AbortItem {
    /// The upload.
    pub upload: BlobId,
    /// The resource that it is for.
    pub resource: ResourceName,
    /// The token presented.
    pub token: Token,
    /// The lock id presented, if any.
    pub lock: Option<LockId>,
    /// Who asks, and under which rules it was allowed.
    pub by: By,
}

/// What became of such a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AbortVerdict {
    /// It is garbage, and so are its parts.
    Aborted,
    /// It was completed, aborted or given up before, or never was, or is not for this resource.
    NoUpload,
    /// A write would be refused: nothing changed.
    Refused(Refusal),
}

/// Which uploads are asked for: those of resources with this name, or whose names begin with it and a colon.
#[derive(Debug, Clone)]
pub struct MultipartsPage {
    /// The bucket's name.
    pub bucket: String,
    /// Go on after this one, of this path; an upload without an id is before all of the path.
    pub after: Option<(String, Option<BlobId>)>,
    /// At most so many.
    pub limit: i64,
}

/// The side of the ledger that knows of uploads in parts.
#[async_trait]
pub trait Multiparts: Send + Sync {
    /// Begins an upload in parts, as [`Uploads::begin_upload`](super::Uploads::begin_upload) begins one of a blob.
    async fn begin_multipart(
        &self,
        item: UploadItem,
        multipart: Multipart,
    ) -> Result<UploadVerdict, LedgerError>;

    /// Makes an uploaded blob a part of an upload that goes on, under the rule, like a write, in place of the one with its
    /// number. The same again changes nothing. Not under rules that have moved since it was allowed (I17).
    async fn put_part(&self, item: PartItem) -> Result<PartVerdict, LedgerError>;

    /// Ends an upload that goes on, under the rule, like a write: it and its parts are garbage, and stay for as long as an
    /// older copy of the ledger may have it go on. Not under rules that have moved since it was allowed (I17).
    async fn abort_multipart(&self, item: AbortItem) -> Result<AbortVerdict, LedgerError>;

    /// An upload that goes on.
    async fn multipart(&self, upload: BlobId) -> Result<Option<MultipartRecord>, LedgerError>;

    /// Parts of an upload, or of the object that it became, in the order of their numbers.
    async fn parts(
        &self,
        upload: BlobId,
        after: i32,
        limit: i64,
    ) -> Result<Vec<(i32, Part)>, LedgerError>;

    /// Uploads that go on, in the order of their paths, and of their ids under one path.
    async fn multiparts(&self, page: MultipartsPage) -> Result<Vec<MultipartRecord>, LedgerError>;
}
