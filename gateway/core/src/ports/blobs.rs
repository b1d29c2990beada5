//! Blobs: payloads too large for the ledger, in any object store.
//!
//! A blob is written once, under a random name that nobody else will ever use, and is seen by nobody
//! until an act of the ledger points at it. So a late upload is garbage, never an effect (I6).

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use uuid::Uuid;

use jiff::Timestamp;

/// The name of a blob: a random UUID. No name of a user becomes a path or key in a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub Uuid);

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The store did not do what it was asked. A failed upload is never an effect; a failed deletion is
/// tried again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the blob store: {0}")]
pub struct BlobError(pub String);

/// The bytes of a blob, in order.
pub type BlobStream = BoxStream<'static, Result<Bytes, BlobError>>;

/// A blob that a store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// Its name.
    pub blob: BlobId,
    /// Its number of bytes.
    pub size: u64,
    /// When it was stored, on the store's clock.
    pub stored_at: Timestamp,
}

/// Which store this is, and of which ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreMark {
    /// The store.
    pub store: Uuid,
    /// The ledger that points at its blobs.
    pub ledger: Uuid,
}

/// What a listing comes across.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// A blob.
    Blob(StoredBlob),
    /// Something that is not named like a blob; it is let be.
    Stranger(String),
}

/// A blob that is known to have at most so many bytes is sent in one piece, and held in memory until it has come whole.
pub const PIECE_BYTES_MAX: u64 = 8 << 20;

/// An object store.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Begins to store a blob. `size` is how many bytes will come, if that is known: large ones need
    /// large parts.
    async fn upload(
        &self,
        blob: BlobId,
        size: Option<u64>,
    ) -> Result<Box<dyn BlobUpload>, BlobError>;

    /// Reads these bytes of a blob; `None` if it is not there. Once the stream has begun, most stores
    /// send it to its end although the blob is deleted meanwhile; else it ends in an error.
    async fn read(&self, blob: BlobId, range: Range<u64>) -> Result<Option<BlobStream>, BlobError>;

    /// Deletes a blob, whether it is there or not, and what was uploaded of it so far under `handle`.
    async fn delete(&self, blob: BlobId, handle: Option<&str>) -> Result<(), BlobError>;

    /// Everything that is there, in no particular order.
    fn list(&self) -> BoxStream<'static, Result<Listed, BlobError>>;

    /// The number of bytes of a blob; `None` if it is not there.
    async fn size(&self, blob: BlobId) -> Result<Option<u64>, BlobError>;

    /// Its mark; `None` for a store that has none yet.
    async fn mark(&self) -> Result<Option<StoreMark>, BlobError>;

    /// Sets the mark of a store that has none. Of two at once one prevails: read it afterwards.
    async fn set_mark(&self, mark: StoreMark) -> Result<(), BlobError>;
}

/// A blob on its way into a store. Dropping it gives it up, as far as the store lets that be done
/// without waiting; the sweeper does the rest.
#[async_trait]
pub trait BlobUpload: Send {
    /// Whether, with so many more bytes, it no longer goes into the store in one piece.
    fn outgrows(&self, more: usize) -> bool;

    /// Begins to store it in parts, unless that was begun; no part is sent yet. Returns what the store
    /// needs to be told, by anybody, to forget those that will be, if there is such a thing.
    async fn begin_parts(&mut self) -> Result<Option<String>, BlobError>;

    /// Takes more bytes. Waits while the store is slower than they come: memory stays flat.
    async fn push(&mut self, bytes: Bytes) -> Result<(), BlobError>;

    /// Ends it: when this returns, the blob is stored for good.
    async fn finish(self: Box<Self>) -> Result<(), BlobError>;

    /// Gives it up.
    async fn abort(self: Box<Self>);
}
