//! What a store can do, tried out at the start: better refused then than in the middle of a write.

use bytes::Bytes;
use fence_core::ports::{BlobError, BlobUpload as _};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use uuid::Uuid;

use super::upload::Upload;
use super::{ObjectBlobs, failed};

const PROBE: &str = "probe";

/// What is so old was left by a probe that was cut short; younger ones may be of a gateway that starts now.
const LEFT_AFTER_S: i64 = 600;

impl ObjectBlobs {
    /// Why the store does not answer, if it does not: it cannot be reached, or has trouble of its own. One that
    /// answers and refuses is there.
    pub async fn is_away(&self) -> Option<String> {
        let error = self.objects.head(&self.mark_path()).await.err()?;
        if !matches!(error, object_store::Error::Generic { .. }) {
            return None;
        }
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        let mut was_unreachable = false;
        while let Some(one) = cause {
            was_unreachable |= one.downcast_ref::<HttpError>().is_some_and(|error| {
                use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
                matches!(error.kind(), Connect | Interrupted | Request | Timeout)
            });
            cause = one.source();
        }
        let why = failed(error).0;
        // Its status is in its text alone.
        (was_unreachable || why.contains("status code: 5")).then_some(why)
    }

    /// Tries everything that is needed of a store, under a name that nobody else uses.
    ///
    /// # Errors
    /// What it cannot do.
    pub async fn probe(&self, name: Uuid, now: Timestamp) -> Result<(), BlobError> {
        let folder = self.prefix.clone().join(PROBE);
        let path = folder.clone().join(name.to_string());
        let outcome = self.try_out(&path).await;
        let mut left = self.objects.list(Some(&folder));
        while let Some(Ok(meta)) = left.next().await {
            let own = meta.location == path || meta.location.prefix_matches(&path);
            if own || meta.last_modified.timestamp() < now.as_second() - LEFT_AFTER_S {
                let _ = self.delete_at(&meta.location).await;
            }
        }
        outcome
    }

    async fn try_out(&self, path: &Path) -> Result<(), BlobError> {
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
        if !self.creates_only(path).await {
            return Err(cannot("be told not to overwrite (If-None-Match)"));
        }
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
        self.delete_at(&parts).await.map_err(step("deleting a blob"))
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
