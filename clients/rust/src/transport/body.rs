//! What a write sends: bytes, a file, or a stream that a function begins anew for each attempt.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// The bytes of an attempt.
pub type ByteStream = BoxStream<'static, io::Result<Bytes>>;

type Begin = dyn Fn() -> BoxFuture<'static, io::Result<ByteStream>> + Send + Sync;

type Seen = dyn Fn(u64) + Send + Sync;

/// Files up to this size are read once before, for their digest.
const FILE_DIGEST_MAX: u64 = 64 << 20;
/// Bodies of this size and more are worth a renewal before they are sent (CC27).
const LARGE: u64 = 1 << 20;

/// The bytes of an object (CC26). All but [`Body::once`] can be sent again.
#[derive(Clone)]
pub struct Body {
    source: Source,
    seen: Option<Arc<Seen>>,
}

#[derive(Clone)]
enum Source {
    Bytes(Bytes),
    File(Arc<FileBody>),
    Begun { begin: Arc<Begin>, len: Option<u64> },
    Once { stream: Arc<Mutex<Option<ByteStream>>>, len: Option<u64> },
}

/// A file, and how it looked at the first attempt: what is sent again must be the same.
struct FileBody {
    path: PathBuf,
    first: OnceLock<(u64, Option<SystemTime>)>,
    digest: OnceLock<String>,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            Source::Bytes(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Source::File(file) => write!(f, "Body({})", file.path.display()),
            Source::Begun { .. } | Source::Once { .. } => f.write_str("Body(stream)"),
        }
    }
}

/// What one attempt sends.
pub(crate) enum Sent {
    Bytes(Bytes),
    Stream { stream: ByteStream, len: Option<u64> },
}

impl From<Source> for Body {
    fn from(source: Source) -> Self {
        Self { source, seen: None }
    }
}

impl Body {
    /// A file, read as it is sent. It must not change until the write is answered.
    pub fn file(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        let file = FileBody { path, first: OnceLock::new(), digest: OnceLock::new() };
        Source::File(Arc::new(file)).into()
    }

    /// A stream that the function begins anew for each attempt, always with the same bytes. `len` is their
    /// number, if it is known.
    pub fn from_fn<F, R>(len: Option<u64>, begin: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = io::Result<ByteStream>> + Send + 'static,
    {
        Source::Begun { begin: Arc::new(move || Box::pin(begin())), len }.into()
    }

    /// A stream that can be read once. A write of it makes one attempt only, so that its outcome is unknown
    /// as soon as that goes without an answer: prefer any other body.
    pub fn once(len: Option<u64>, stream: ByteStream) -> Self {
        Source::Once { stream: Arc::new(Mutex::new(Some(stream))), len }.into()
    }

    /// Text as JSON.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn json<T: serde::Serialize>(value: &T) -> Result<Self, Error> {
        let bytes = serde_json::to_vec(value)
            .map_err(|error| Error::misuse(format!("no JSON: {error}")))?;
        Ok(bytes.into())
    }

    /// Calls the function with the number of bytes that the attempt under way has taken so far, to show progress. A
    /// further attempt begins at 0 again.
    #[must_use]
    pub fn watched(mut self, seen: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.seen = Some(Arc::new(seen));
        self
    }

    /// Whether a second attempt can send the same bytes.
    pub fn is_replayable(&self) -> bool {
        !matches!(self.source, Source::Once { .. })
    }

    /// The bytes, if they are in memory.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match &self.source {
            Source::Bytes(bytes) => Some(bytes),
            Source::File(_) | Source::Begun { .. } | Source::Once { .. } => None,
        }
    }

    /// Whether a stale holder should learn it for a hundred bytes instead.
    pub(crate) async fn is_large(&self) -> bool {
        match &self.source {
            Source::Bytes(bytes) => bytes.len() as u64 >= LARGE,
            Source::File(file) => {
                tokio::fs::metadata(&file.path).await.is_ok_and(|found| found.len() >= LARGE)
            }
            Source::Begun { len, .. } | Source::Once { len, .. } => {
                len.is_none_or(|len| len >= LARGE)
            }
        }
    }

    /// `Repr-Digest` of it, if that is cheap to know.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) async fn digest(&self) -> Result<Option<String>, Error> {
        match &self.source {
            Source::Bytes(bytes) => Ok(Some(header(&Sha256::digest(bytes)))),
            Source::File(file) => file.digest().await,
            Source::Begun { .. } | Source::Once { .. } => Ok(None),
        }
    }

    /// The bytes of one attempt.
    ///
    /// # Errors
    /// They cannot be had, or are not those of the first attempt.
    pub(crate) async fn begin(&self) -> Result<Sent, Error> {
        let sent = self.begun().await?;
        let Some(seen) = self.seen.clone() else { return Ok(sent) };
        Ok(match sent {
            Sent::Bytes(bytes) => {
                seen(bytes.len() as u64);
                Sent::Bytes(bytes)
            }
            Sent::Stream { stream, len } => {
                let mut taken = 0;
                let stream = stream.inspect_ok(move |piece| {
                    taken += piece.len() as u64;
                    seen(taken);
                });
                Sent::Stream { stream: stream.boxed(), len }
            }
        })
    }

    async fn begun(&self) -> Result<Sent, Error> {
        match &self.source {
            Source::Bytes(bytes) => Ok(Sent::Bytes(bytes.clone())),
            Source::File(file) => file.begin().await,
            Source::Begun { begin, len } => {
                let unreadable = |error| Error::misuse(format!("the body cannot be read: {error}"));
                Ok(Sent::Stream { stream: begin().await.map_err(unreadable)?, len: *len })
            }
            Source::Once { stream, len } => {
                let taken = stream.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                let stream =
                    taken.ok_or_else(|| Error::misuse("the stream has been sent already"))?;
                Ok(Sent::Stream { stream, len: *len })
            }
        }
    }
}

impl FileBody {
    fn unreadable(&self, error: &io::Error) -> Error {
        Error::misuse(format!("cannot read {}: {error}", self.path.display()))
    }

    async fn begin(&self) -> Result<Sent, Error> {
        let file =
            tokio::fs::File::open(&self.path).await.map_err(|error| self.unreadable(&error))?;
        let found = file.metadata().await.map_err(|error| self.unreadable(&error))?;
        if !found.is_file() {
            return Err(Error::misuse(format!("{} is no file", self.path.display())));
        }
        let now = (found.len(), found.modified().ok());
        if *self.first.get_or_init(|| now) != now {
            let path = self.path.display();
            return Err(Error::misuse(format!(
                "{path} changed since the first attempt to send it"
            )));
        }
        let read = tokio_util::io::ReaderStream::with_capacity(file, 64 << 10);
        Ok(Sent::Stream { stream: read.boxed(), len: Some(found.len()) })
    }

    async fn digest(&self) -> Result<Option<String>, Error> {
        if let Some(digest) = self.digest.get() {
            return Ok(Some(digest.clone()));
        }
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut file = std::fs::File::open(&path)?;
            if file.metadata()?.len() > FILE_DIGEST_MAX {
                return Ok(None);
            }
            let (mut hasher, mut piece) = (Sha256::new(), vec![0; 64 << 10]);
            loop {
                match file.read(&mut piece)? {
                    0 => break,
                    read => hasher.update(&piece[..read]),
                }
            }
            Ok(Some(header(&hasher.finalize())))
        });
        let digest = match read.await {
            Ok(read) => read.map_err(|error| self.unreadable(&error))?,
            Err(_) => None,
        };
        Ok(digest.map(|digest| self.digest.get_or_init(|| digest).clone()))
    }
}

/// `sha-256=:...:`, as RFC 9530 writes it.
pub(crate) fn header(digest: &[u8]) -> String {
    use base64::Engine as _;
    format!("sha-256=:{}:", base64::engine::general_purpose::STANDARD.encode(digest))
}

macro_rules! from {
    ($($type:ty => $bytes:expr;)+) => {$(
        impl From<$type> for Body {
            fn from(value: $type) -> Self {
                let bytes: fn($type) -> Bytes = $bytes;
                Source::Bytes(bytes(value)).into()
            }
        }
    )+};
}
from! {
    Bytes => |bytes| bytes;
    Vec<u8> => Bytes::from;
    String => Bytes::from;
    &String => |text| Bytes::copy_from_slice(text.as_bytes());
    &str => |text| Bytes::copy_from_slice(text.as_bytes());
    &[u8] => Bytes::copy_from_slice;
}
