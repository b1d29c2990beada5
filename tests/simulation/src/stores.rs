//! The simulated mint and blob store, behind the same network.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use fence_core::memory::{MemoryBlobs, MemoryMint};
use fence_core::ports::{
    BlobError, BlobId, BlobStream, BlobUpload, Blobs, Carry, Ended, Head, Listed, Mint, MintError,
    MintItem, StoreMark, Witness,
};
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use uuid::Uuid;

use crate::network::Link;
use crate::world::{MS, SECOND, World};

/// Numbers that others have used up before the run: one that was wiped does not catch up soon.
const BEGUN_AT: i64 = 100_000;

/// The mint's server, which may go back to an older copy of itself.
pub struct MintServer(Mutex<Arc<MemoryMint>>);

impl MintServer {
    /// A mint that carries no nonce yet.
    pub fn new() -> Self {
        let mint = MemoryMint::default();
        mint.set_number(BEGUN_AT);
        Self(Mutex::new(Arc::new(mint)))
    }

    /// The mint as it is.
    pub fn memory(&self) -> Arc<MemoryMint> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// It is restored from a snapshot.
    pub fn restore(&self, snapshot: MemoryMint) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }
}

impl Default for MintServer {
    fn default() -> Self {
        Self::new()
    }
}

/// The mint as one gateway reaches it.
pub struct SimulatedMint {
    server: Arc<MintServer>,
    link: Link,
}

impl SimulatedMint {
    /// Over this edge.
    pub fn new(server: Arc<MintServer>, link: Link) -> Self {
        Self { server, link }
    }

    async fn ask<T: Send + 'static>(
        &self,
        deed: impl FnOnce(&MemoryMint) -> Result<T, MintError> + Send + 'static,
    ) -> Result<T, MintError> {
        let server = Arc::clone(&self.server);
        let answer = self.link.ask(move || deed(&server.memory())).await;
        answer.unwrap_or_else(|_| Err(MintError::Unavailable("no answer".into())))
    }
}

fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("what is in memory never waits")
}

#[async_trait]
impl Mint for SimulatedMint {
    async fn mint(
        &self,
        nonce: Uuid,
        items: &[MintItem],
        ended: &[Ended],
    ) -> Result<Vec<i64>, MintError> {
        let (items, ended) = (items.to_vec(), ended.to_vec());
        let twice = self.link.is_duplicated();
        let mint = move |mint: &MemoryMint| {
            if twice {
                now(mint.mint(nonce, &items, &ended))?;
            }
            now(mint.mint(nonce, &items, &ended))
        };
        self.ask(mint).await
    }

    async fn adopt(&self, nonce: Uuid, ledger: Uuid) -> Result<Uuid, MintError> {
        self.ask(move |mint| now(mint.adopt(nonce, ledger))).await
    }

    async fn head(&self) -> Result<Head, MintError> {
        self.ask(|mint| now(mint.head())).await
    }

    async fn replace(&self, seen: &Head, carry: &Carry) -> Result<bool, MintError> {
        let (seen, carry) = (seen.clone(), carry.clone());
        self.ask(move |mint| now(mint.replace(&seen, &carry))).await
    }

    async fn raise(&self, seen: &Head, ledger: Uuid, witness: &Witness) -> Result<bool, MintError> {
        let (seen, witness) = (seen.clone(), witness.clone());
        self.ask(move |mint| now(mint.raise(&seen, ledger, &witness))).await
    }

    async fn incarnation(&self) -> Result<Option<Uuid>, MintError> {
        self.ask(|mint| now(mint.incarnation())).await
    }
}

/// The blob store as one gateway reaches it.
#[derive(Clone)]
pub struct SimulatedBlobs {
    store: MemoryBlobs,
    link: Link,
    world: World,
}

impl SimulatedBlobs {
    /// Over this edge.
    pub fn new(store: MemoryBlobs, link: Link, world: World) -> Self {
        Self { store, link, world }
    }

    async fn ask<T: Send + 'static>(
        &self,
        deed: impl FnOnce(&MemoryBlobs) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        let store = self.store.clone();
        let answer = self.link.ask(move || deed(&store)).await;
        answer.unwrap_or_else(|_| Err(BlobError("no answer".into())))
    }
}

struct Upload {
    blob: BlobId,
    bytes: BytesMut,
    into: SimulatedBlobs,
}

#[async_trait]
impl BlobUpload for Upload {
    fn outgrows(&self, _: usize) -> bool {
        false
    }

    async fn begin_parts(&mut self) -> Result<Option<String>, BlobError> {
        Ok(None)
    }

    async fn push(&mut self, bytes: Bytes) -> Result<(), BlobError> {
        self.into.world.sleep(self.into.world.between(50, 20 * MS)).await;
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    /// The last request: it may arrive after its sender has given up.
    async fn finish(self: Box<Self>) -> Result<(), BlobError> {
        let (blob, bytes) = (self.blob, self.bytes.freeze());
        let deed = move |store: &MemoryBlobs| {
            let mut upload = now(store.upload(blob, None))?;
            now(upload.push(bytes))?;
            now(upload.finish())
        };
        self.into.ask(deed).await
    }

    async fn abort(self: Box<Self>) {}
}

#[async_trait]
impl Blobs for SimulatedBlobs {
    async fn upload(&self, blob: BlobId, _: Option<u64>) -> Result<Box<dyn BlobUpload>, BlobError> {
        Ok(Box::new(Upload { blob, bytes: BytesMut::new(), into: self.clone() }))
    }

    /// In two pieces, with time in between in which the blob may go.
    async fn read(&self, blob: BlobId, range: Range<u64>) -> Result<Option<BlobStream>, BlobError> {
        let middle = range.start.midpoint(range.end);
        let first = range.start..middle;
        let found = self.ask(move |store| now(store.read(blob, first))).await?;
        let Some(first) = found else { return Ok(None) };
        let this = self.clone();
        let second = async move {
            let pause = match this.world.chance(0.1) {
                true => this.world.between(MS, 3 * SECOND),
                false => this.world.between(50, 2 * MS),
            };
            this.world.sleep(pause).await;
            let found = this.ask(move |store| now(store.read(blob, middle..range.end))).await?;
            found.ok_or_else(|| BlobError("it was deleted meanwhile".into()))
        };
        let second = stream::once(second).flat_map(|rest| match rest {
            Ok(rest) => rest,
            Err(error) => stream::once(async move { Err(error) }).boxed(),
        });
        Ok(Some(first.chain(second).boxed()))
    }

    async fn delete(&self, blob: BlobId, handle: Option<&str>) -> Result<(), BlobError> {
        let handle = handle.map(str::to_owned);
        self.ask(move |store| now(store.delete(blob, handle.as_deref()))).await
    }

    fn list(&self) -> BoxStream<'static, Result<Listed, BlobError>> {
        self.store.list()
    }

    async fn size(&self, blob: BlobId) -> Result<Option<u64>, BlobError> {
        self.ask(move |store| now(store.size(blob))).await
    }

    async fn mark(&self) -> Result<Option<StoreMark>, BlobError> {
        self.ask(|store| now(store.mark())).await
    }

    async fn set_mark(&self, mark: StoreMark) -> Result<(), BlobError> {
        self.ask(move |store| now(store.set_mark(mark))).await
    }
}
