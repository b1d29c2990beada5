//! `audit/checkpoint/`: checkpoints of the audit beside the blobs, each written once. Where the bucket lets nobody delete, no
//! administrator of it can take one back.

use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{CheckpointKept, CheckpointPlace, KeepCheckpoint};
use fencegate_audit::NOTE_BYTES_MAX;
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutMode, PutOptions, PutPayload};

use super::ObjectBlobs;

/// Each stays there for ever.
const INTERVAL: Duration = Duration::from_secs(600);

impl ObjectBlobs {
    fn checkpoints(&self) -> Path {
        self.prefix.clone().join("audit").join("checkpoint")
    }
}

#[async_trait]
impl CheckpointPlace for ObjectBlobs {
    fn name(&self) -> String {
        "the blob store".into()
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }

    /// Their names sort as they follow each other: generation, then size.
    async fn keep(&self, checkpoint: &KeepCheckpoint) -> Result<CheckpointKept, String> {
        let name = format!("{:010}-{:019}", checkpoint.generation, checkpoint.size);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let payload = PutPayload::from(checkpoint.note.clone());
        match self.objects.put_opts(&self.checkpoints().join(name), payload, options).await {
            Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(CheckpointKept::Kept),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn newest(&self) -> Result<Option<String>, String> {
        let said = |error: object_store::Error| error.to_string();
        let all = self.objects.list(Some(&self.checkpoints()));
        let newer = async |best: Option<_>, one: object_store::ObjectMeta| {
            Ok(best.max(Some((one.location.to_string(), one.size))))
        };
        let newest = all.try_fold(None, newer).await.map_err(said)?;
        let Some((path, size)) = newest else { return Ok(None) };
        if size > NOTE_BYTES_MAX as u64 {
            return Err(format!("{path} is longer than a checkpoint may be"));
        }
        let got = self.objects.get(&Path::from(path)).await.map_err(said)?;
        let bytes = got.bytes().await.map_err(said)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}
