//! What a store can do, tried out at the start: better refused then than in the middle of a write.

use bytes::Bytes;
use fence_core::ports::{BlobError, BlobUpload as _};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{PutMode, PutOptions, PutPayload};
use uuid::Uuid;

use super::upload::Upload;
use super::{ObjectBlobs, failed};

const PROBE: &str = "probe";

/// What a store can do beyond what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// It can be told not to overwrite.
    pub creates_only: bool,
}

impl ObjectBlobs {
    /// Tries everything that is needed of a store, under a name that nobody else uses.
    ///
    /// # Errors
    /// What it cannot do.
    pub async fn probe(&self, name: Uuid) -> Result<Abilities, BlobError> {
        let folder = self.prefix.clone().join(PROBE);
        let path = folder.clone().join(name.to_string());
        let abilities = self.try_out(&path).await;
        // Also what an earlier probe has left that was cut short.
        let mut left = self.objects.list(Some(&folder));
        while let Some(Ok(meta)) = left.next().await {
            let _ = self.delete_at(&meta.location).await;
        }
        abilities
    }

    async fn try_out(&self, path: &Path) -> Result<Abilities, BlobError> {
        let cannot = |what: &str| BlobError(format!("it cannot {what}"));
        let step =
            |what: &'static str| move |error: BlobError| BlobError(format!("{what}: {}", error.0));

        let mut whole = Box::new(Upload::new(self.clone(), path.clone(), None));
        whole.push(Bytes::from_static(b"fencegate")).await?;
        whole.finish().await.map_err(step("storing a blob"))?;
        let part = self.bytes(path, 5..9).await.map_err(step("reading a part of a blob"))?;
        if part.as_deref() != Some(b"gate") {
            return Err(cannot("read a part of a blob"));
        }
        let creates_only = self.creates_only(path).await;
        self.delete_at(path).await.map_err(step("deleting a blob"))?;
        if self.bytes(path, 0..1).await.map_err(step("reading what is not there"))?.is_some() {
            return Err(cannot("delete a blob so that it is gone at once"));
        }

        let parts = path.clone().join("parts");
        let mut upload = Box::new(Upload::new(self.clone(), parts.clone(), None));
        upload.push(Bytes::from_static(b"fence")).await?;
        upload.part_of_its_own().await.map_err(step("storing a blob in parts"))?;
        upload.finish().await.map_err(step("storing a blob in parts"))?;
        if self.bytes(&parts, 0..5).await.map_err(step("reading a blob"))?.as_deref()
            != Some(b"fence")
        {
            return Err(cannot("store a blob in parts"));
        }
        let listed: Vec<_> = self.objects.list(Some(path)).try_collect().await.map_err(failed)?;
        if !listed.iter().any(|meta| meta.location == parts) {
            return Err(cannot("list what is there"));
        }
        self.delete_at(&parts).await.map_err(step("deleting a blob"))?;
        Ok(Abilities { creates_only })
    }

    async fn bytes(
        &self,
        path: &Path,
        range: std::ops::Range<u64>,
    ) -> Result<Option<Vec<u8>>, BlobError> {
        let Some(stream) = self.read_at(path, range).await? else { return Ok(None) };
        let chunks: Vec<Bytes> = stream.try_collect().await?;
        Ok(Some(chunks.concat()))
    }

    /// Whether a second create of the same name is refused.
    async fn creates_only(&self, path: &Path) -> bool {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let again = self.objects.put_opts(path, PutPayload::from_static(b"x"), options).await;
        matches!(again, Err(object_store::Error::AlreadyExists { .. }))
    }
}
