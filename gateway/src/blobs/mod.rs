//! Blobs in an object store: a folder, S3 and its relatives, Azure.
//!
//! Below the prefix of its URL a store has `blobs/<2 digits>/<uuid>`, the mark `fencegate-store` that
//! tells which store it is, `audit/checkpoint/<generation>-<size>`, and `probe/` for a moment at each start.

mod checkpoints;
mod late;
mod open;
mod probe;
mod upload;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use fence_core::ports::{
    BlobError, BlobId, BlobStream, BlobUpload, Blobs, Listed, StoreMark, StoredBlob,
};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
};

pub use late::LateBlobs;
pub use open::{BlobsUrl, BlobsUrlError};

const BLOBS: &str = "blobs";
const MARK: &str = "fencegate-store";

/// An object store. Cheap to clone.
#[derive(Clone)]
pub struct ObjectBlobs {
    objects: Arc<dyn ObjectStore>,
    /// Where uploads of several parts have a handle by which others can end them.
    multipart: Option<Arc<dyn MultipartStore>>,
    /// If it is a folder: where.
    folder: Option<PathBuf>,
    prefix: Path,
}

fn failed(error: object_store::Error) -> BlobError {
    // The source says what happened; the outer text names type and path.
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    BlobError(text)
}

/// What is not there is a value, not an error.
fn found<T>(answer: object_store::Result<T>) -> Result<Option<T>, BlobError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

impl ObjectBlobs {
    fn path(&self, blob: BlobId) -> Path {
        let name = blob.to_string();
        self.prefix.clone().join(BLOBS).join(&name[..2]).join(name)
    }

    fn mark_path(&self) -> Path {
        self.prefix.clone().join(MARK)
    }

    fn listed(&self, meta: ObjectMeta) -> Listed {
        let name = meta.location.filename().unwrap_or_default();
        match name.parse().map(BlobId) {
            Ok(blob) if self.path(blob) == meta.location => Listed::Blob(StoredBlob {
                blob,
                size: meta.size,
                stored_at: Timestamp::from_second(meta.last_modified.timestamp())
                    .unwrap_or(Timestamp::MAX),
            }),
            _ => Listed::Stranger(meta.location.to_string()),
        }
    }

    async fn read_at(
        &self,
        path: &Path,
        range: Range<u64>,
    ) -> Result<Option<BlobStream>, BlobError> {
        let options = GetOptions { range: Some(range.clone().into()), ..GetOptions::default() };
        let Some(got) = found(self.objects.get_opts(path, options).await)? else { return Ok(None) };
        if got.range != range {
            let (got, range) = (got.range, range);
            return Err(BlobError(format!("{path} has only the bytes {got:?} of {range:?}")));
        }
        Ok(Some(got.into_stream().map_err(failed).boxed()))
    }

    async fn delete_at(&self, path: &Path) -> Result<(), BlobError> {
        found(self.objects.delete(path).await).map(drop)
    }

    /// What a killed process has left of an upload to a folder.
    async fn delete_unfinished(&self, path: &Path) -> Result<(), BlobError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        // A blob is uploaded once, so there is no second such file.
        let file = folder.join(format!("{path}#1"));
        match tokio::fs::remove_file(&file).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(BlobError(format!("cannot remove {}: {error}", file.display())))
            }
            _ => Ok(()),
        }
    }

    async fn abort_multipart(&self, path: &Path, handle: &str) -> Result<(), BlobError> {
        let Some(multipart) = &self.multipart else { return Ok(()) };
        match multipart.abort_multipart(path, &handle.to_owned()).await {
            // So some stores speak of an upload that has ended. If it is true, deleting fails, too.
            Err(object_store::Error::PermissionDenied { .. }) => Ok(()),
            ended => found(ended).map(drop),
        }
    }
}

#[async_trait]
impl Blobs for ObjectBlobs {
    async fn upload(
        &self,
        blob: BlobId,
        size: Option<u64>,
    ) -> Result<Box<dyn BlobUpload>, BlobError> {
        Ok(Box::new(upload::Upload::new(self.clone(), self.path(blob), size)))
    }

    async fn read(&self, blob: BlobId, range: Range<u64>) -> Result<Option<BlobStream>, BlobError> {
        self.read_at(&self.path(blob), range).await
    }

    async fn delete(&self, blob: BlobId, handle: Option<&str>) -> Result<(), BlobError> {
        let path = self.path(blob);
        if let Some(handle) = handle {
            self.abort_multipart(&path, handle).await?;
        }
        self.delete_unfinished(&path).await?;
        self.delete_at(&path).await
    }

    fn list(&self) -> BoxStream<'static, Result<Listed, BlobError>> {
        let blobs = self.clone();
        let all = self.objects.list(Some(&self.prefix.clone().join(BLOBS)));
        all.map(move |meta| meta.map(|meta| blobs.listed(meta)).map_err(failed)).boxed()
    }

    async fn size(&self, blob: BlobId) -> Result<Option<u64>, BlobError> {
        let meta = found(self.objects.head(&self.path(blob)).await)?;
        Ok(meta.map(|meta| meta.size))
    }

    async fn mark(&self) -> Result<Option<StoreMark>, BlobError> {
        let Some(got) = found(self.objects.get(&self.mark_path()).await)? else { return Ok(None) };
        let bytes = got.bytes().await.map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes);
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        match (field("store"), field("ledger")) {
            (Some(store), Some(ledger)) => Ok(Some(StoreMark { store, ledger })),
            _ => Err(BlobError(format!("{} does not hold a mark", self.mark_path()))),
        }
    }

    async fn set_mark(&self, mark: StoreMark) -> Result<(), BlobError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let payload = PutPayload::from(format!("store {}\nledger {}\n", mark.store, mark.ledger));
        match self.objects.put_opts(&self.mark_path(), payload, options).await {
            Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}
