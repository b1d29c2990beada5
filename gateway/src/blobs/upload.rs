//! One blob on its way into a store: in one piece if it is small, else in parts, of which one is sent
//! while the next one fills. So an upload takes two parts of memory, whatever its size.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use fence_core::ports::{BlobError, BlobUpload, PIECE_BYTES_MAX};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};
use tokio::task::JoinSet;

use super::{ObjectBlobs, failed};

/// The size of a part, unless the body is so large that there would be too many. S3 takes none below 5 MiB but the last, and
/// what is larger costs memory.
const PART_BYTES: u64 = 6 << 20;
/// Pieces below this are put together.
const CRUMB_BYTES: usize = 32 << 10;
/// S3 takes 10,000.
const PARTS_MAX: u64 = 9_900;

/// What was begun in the store.
enum Parts {
    /// Nothing yet.
    None,
    /// An upload with a handle by which others can end it.
    Named { store: Arc<dyn MultipartStore>, handle: String, done: Vec<Option<PartId>> },
    /// One that only this process can end.
    Own { upload: Box<dyn MultipartUpload>, sent: u64 },
}

pub(super) struct Upload {
    into: ObjectBlobs,
    path: Path,
    part_bytes: u64,
    filling: Vec<Bytes>,
    /// Small pieces, put together: what comes in crumbs must not take many times its size.
    crumbs: BytesMut,
    filled: u64,
    parts: Parts,
    /// The part that is being sent. Dropping it ends that.
    sending: JoinSet<Result<(usize, Option<PartId>), object_store::Error>>,
}

impl Upload {
    pub(super) fn new(into: ObjectBlobs, path: Path, size: Option<u64>) -> Self {
        let part_bytes = match size {
            Some(size) if size <= PIECE_BYTES_MAX => PIECE_BYTES_MAX,
            size => PART_BYTES.max(size.unwrap_or(0).div_ceil(PARTS_MAX)),
        };
        Self {
            into,
            path,
            part_bytes,
            filling: Vec::new(),
            crumbs: BytesMut::new(),
            filled: 0,
            parts: Parts::None,
            sending: JoinSet::new(),
        }
    }

    /// Sends what there is as a part, however little.
    pub(super) async fn part_of_its_own(&mut self) -> Result<(), BlobError> {
        self.send_part().await
    }

    fn sweep_up(&mut self) {
        if !self.crumbs.is_empty() {
            self.filling.push(self.crumbs.split().freeze());
        }
    }

    fn take_filled(&mut self) -> PutPayload {
        self.filled = 0;
        self.sweep_up();
        std::mem::take(&mut self.filling).into_iter().collect()
    }

    /// Sends what has filled, once the part before it has been sent.
    async fn send_part(&mut self) -> Result<(), BlobError> {
        self.begin_parts().await?;
        self.sent().await?;
        let payload = self.take_filled();
        match &mut self.parts {
            Parts::None => Err(BlobError("an upload in parts was not begun".into())),
            Parts::Named { store, handle, done } => {
                let number = done.len();
                check_number(number as u64)?;
                done.push(None);
                let (store, path, handle) = (Arc::clone(store), self.path.clone(), handle.clone());
                self.sending.spawn(async move {
                    let part = store.put_part(&path, &handle, number, payload).await?;
                    Ok((number, Some(part)))
                });
                Ok(())
            }
            Parts::Own { upload, sent } => {
                check_number(*sent)?;
                *sent += 1;
                let part = upload.put_part(payload);
                self.sending.spawn(async move { part.await.map(|()| (0, None)) });
                Ok(())
            }
        }
    }

    /// Waits until the part on its way has been sent.
    async fn sent(&mut self) -> Result<(), BlobError> {
        while let Some(ended) = self.sending.join_next().await {
            let ended = ended.map_err(|error| BlobError(error.to_string()))?;
            let (number, part) = ended.map_err(failed)?;
            if let Parts::Named { done, .. } = &mut self.parts
                && let Some(place) = done.get_mut(number)
            {
                *place = part;
            }
        }
        Ok(())
    }
}

fn check_number(sent: u64) -> Result<(), BlobError> {
    match sent < PARTS_MAX {
        true => Ok(()),
        false => Err(BlobError("too many parts; send the body with a Content-Length".into())),
    }
}

#[async_trait]
impl BlobUpload for Upload {
    fn outgrows(&self, more: usize) -> bool {
        self.filled + more as u64 > self.part_bytes
    }

    async fn begin_parts(&mut self) -> Result<Option<String>, BlobError> {
        if matches!(self.parts, Parts::None) {
            self.parts = match &self.into.multipart {
                Some(store) => {
                    let handle = store.create_multipart(&self.path).await.map_err(failed)?;
                    Parts::Named { store: Arc::clone(store), handle, done: Vec::new() }
                }
                None => {
                    let begun = self.into.objects.put_multipart(&self.path).await;
                    Parts::Own { upload: begun.map_err(failed)?, sent: 0 }
                }
            };
        }
        Ok(match &self.parts {
            Parts::Named { handle, .. } => Some(handle.clone()),
            Parts::None | Parts::Own { .. } => None,
        })
    }

    async fn push(&mut self, mut bytes: Bytes) -> Result<(), BlobError> {
        while !bytes.is_empty() {
            // Only when more comes: what fits into one part needs no parts.
            if self.filled == self.part_bytes {
                self.send_part().await?;
            }
            let room = usize::try_from(self.part_bytes - self.filled).unwrap_or(usize::MAX);
            let piece = bytes.split_to(room.min(bytes.len()));
            self.filled += piece.len() as u64;
            if piece.len() < CRUMB_BYTES {
                self.crumbs.extend_from_slice(&piece);
                if self.crumbs.len() >= CRUMB_BYTES {
                    self.sweep_up();
                }
            } else {
                self.sweep_up();
                self.filling.push(piece);
            }
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<(), BlobError> {
        if matches!(self.parts, Parts::None) {
            let payload = self.take_filled();
            return self.into.objects.put(&self.path, payload).await.map(drop).map_err(failed);
        }
        if self.filled > 0 {
            self.send_part().await?;
        }
        self.sent().await?;
        match &mut self.parts {
            Parts::None => Ok(()),
            Parts::Named { store, handle, done } => {
                let parts: Option<Vec<PartId>> = std::mem::take(done).into_iter().collect();
                let parts = parts.ok_or_else(|| BlobError("a part was not sent".into()))?;
                let completed = store.complete_multipart(&self.path, handle, parts).await;
                completed.map(drop).map_err(failed)
            }
            Parts::Own { upload, .. } => upload.complete().await.map(drop).map_err(failed),
        }
    }

    async fn abort(mut self: Box<Self>) {
        self.sending.shutdown().await;
        let ended = match &mut self.parts {
            Parts::None => Ok(()),
            Parts::Named { store, handle, .. } => store.abort_multipart(&self.path, handle).await,
            Parts::Own { upload, .. } => upload.abort().await,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, path = %self.path, "an upload is left to the sweeper");
        }
    }
}
