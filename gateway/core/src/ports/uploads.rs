//! What the ledger knows of blobs: which are on their way, which objects point at which, and which are
//! garbage.
//!
//! The five rules that make deleting safe:
//! 1. An intent is committed before its upload begins.
//! 2. The act that points at a blob consumes its intent; the sweeper takes an intent away by the same
//!    row. So either the blob is an object's, or garbage, whatever anybody's clock says.
//! 3. Garbage is deleted twice, with time in between: a paused gateway may finish its upload after the
//!    first time.
//! 4. A blob stays for readers that have begun, and for as long as a failover or a restore may bring a
//!    pointer to it back: after its object was replaced, and again after the replaced version was forgotten.
//!    So does what was an upload's in parts: anybody may complete that, also in an older copy of the ledger.
//! 5. A blob whose commit has an unknown outcome is never deleted: its intent decides.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::act::LedgerError;
use super::blobs::BlobId;
use super::by::By;
use crate::lock::LockId;
use crate::names::{ObjectKey, ResourceName};
use crate::rule::Refusal;
use crate::token::Token;

/// A wish to upload a blob.
#[derive(Debug, Clone)]
pub struct UploadItem {
    /// The blob, unless the call only asks whether the write would be refused for good.
    pub blob: Option<BlobId>,
    /// The resource it is for.
    pub resource: ResourceName,
    /// The token presented.
    pub token: Token,
    /// The lock id presented, if any.
    pub lock: Option<LockId>,
    /// The idempotency key presented, if any.
    pub key: Option<String>,
    /// Who writes. Under which rules the commit looks at.
    pub by: By,
}

/// Whether an upload may begin. Nothing here admits a write: only the commit does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadVerdict {
    /// Nothing known stands in the way; the intent is stored.
    Begun,
    /// The idempotency key took effect earlier: the body is needed for its digest only.
    KnownKey,
    /// The write would be refused, now and for ever.
    Refused(Refusal),
}

/// How long blobs stay that no object points at (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobTimes {
    /// An upload that was not committed by then is given up.
    pub upload: Duration,
    /// The same of one in parts.
    pub multipart: Duration,
    /// How long a replaced blob stays for readers that have begun.
    pub reader_grace: Duration,
    /// How far back a failover or a restore may bring the ledger.
    pub rollback_horizon: Duration,
    /// How long replaced versions stay readable.
    pub versions: Duration,
    /// How long after its first deletion garbage is deleted again: longer than a request to the store
    /// can be on its way.
    pub redelete: Duration,
}

impl BlobTimes {
    /// How long a replaced version with a blob stays.
    pub fn replaced_blobs(&self) -> Duration {
        self.reader_grace.max(self.rollback_horizon).max(self.versions)
    }

    /// How long the blob of a replaced version stays once that was forgotten: a reader may have begun just
    /// before, and a failover or a restore may bring the version back.
    pub fn forgotten_blobs(&self) -> Duration {
        self.reader_grace.max(self.rollback_horizon)
    }

    /// How long garbage that was handed out is not handed out again: a minute, or less where no time is
    /// to pass between its two deletions.
    pub fn claim(&self) -> Duration {
        self.redelete.min(Duration::from_secs(60))
    }
}

/// A blob to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garbage {
    /// The blob.
    pub blob: BlobId,
    /// The store's handle of an unfinished upload.
    pub handle: Option<String>,
    /// Whether it has been deleted once already.
    pub again: bool,
}

/// What one pass found to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Uploads that were given up.
    pub uploads: u64,
    /// Replaced versions that were forgotten.
    pub versions: u64,
    /// Blobs to delete now. Nobody else is told of them for [`BlobTimes::claim`].
    pub garbage: Vec<Garbage>,
}

/// An object or a replaced version that points at a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// The blob.
    pub blob: BlobId,
    /// The resource.
    pub resource: ResourceName,
    /// The object.
    pub key: ObjectKey,
    /// Its version.
    pub version: i64,
    /// Its number of bytes.
    pub size: i64,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// Whether readers get it, or it was replaced.
    pub current: bool,
}

/// The side of the ledger that knows of blobs.
#[async_trait]
pub trait Uploads: Send + Sync {
    /// Stores the intent to upload a blob, unless the write that it is for would be refused for good.
    ///
    /// One snapshot, no lock: of what it refuses nothing can change, and it admits nothing. With a
    /// known idempotency key nothing is stored.
    async fn begin_upload(&self, item: UploadItem) -> Result<UploadVerdict, LedgerError>;

    /// Notes the store's handle of an upload; `false` if the upload was given up.
    async fn note_upload(&self, blob: BlobId, handle: &str) -> Result<bool, LedgerError>;

    /// Gives up uploads that take too long, forgets replaced versions that have been kept long enough,
    /// and, with `hand_out`, hands out garbage: at most `limit` of each. Carries the guard, so that a
    /// ledger that may have gone back deletes nothing; and for the rollback horizon after a re-fence none
    /// is handed out: what the ledger knows of blobs then may be older than the store, and whoever
    /// restored it may still decide otherwise.
    async fn tidy_blobs(
        &self,
        times: BlobTimes,
        limit: i64,
        hand_out: bool,
    ) -> Result<Tidied, LedgerError>;

    /// Notes that these were deleted: for the first time, or, if they were handed out again, for good.
    /// Of two that delete a blob for the first time, only one is noted.
    async fn blobs_deleted(&self, garbage: &[Garbage], times: BlobTimes)
    -> Result<(), LedgerError>;

    /// Keeps blobs that are being read from becoming garbage for so long.
    async fn pin_blobs(&self, blobs: &[BlobId], keep: Duration) -> Result<(), LedgerError>;

    /// Which of these blobs the ledger knows of, in whatever way.
    async fn known_blobs(&self, blobs: &[BlobId]) -> Result<Vec<bool>, LedgerError>;

    /// Whether blobs that the ledger does not know of may be deleted: not for so long after a re-fence, as
    /// with [`tidy_blobs`](Self::tidy_blobs). Carries the guard, so that a ledger that may have gone back
    /// says nothing; one that went back on its own timeline shows only by the witness in the mint.
    async fn may_delete(&self, horizon: Duration) -> Result<bool, LedgerError>;

    /// What points at blobs, in the order of the blobs, behind `after`.
    async fn pointers(
        &self,
        after: Option<BlobId>,
        limit: i64,
    ) -> Result<Vec<Pointer>, LedgerError>;

    /// Which store the blobs of this ledger are in; `None` while it has none.
    async fn blob_store(&self) -> Result<Option<Uuid>, LedgerError>;

    /// Settles which store the blobs of this ledger are in, unless that is settled. Returns which.
    async fn bind_blob_store(&self, store: Uuid) -> Result<Uuid, LedgerError>;
}
