//! Downloads: an object in a file, whole or not at all.

use std::fs::TryLockError;
use std::future::IntoFuture;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use tokio::io::AsyncWriteExt as _;

use super::object::ObjectHead;
use super::stream::{Open, Reader};
use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Reads an object into a file: into `<path>.part` beside it, which takes the place of `path` once it is
    /// whole and on disk. If it fails, `path` is as it was.
    ///
    /// # Errors
    /// Those of [`Client::open`]; [`Error::Misuse`] if the file cannot be written, or another download is
    /// writing it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("scans:7").acquire().await?;
    /// # lock.put("1.bin", "110").await?;
    /// # let folder = tempfile::tempdir()?; let path = folder.path().join("1.bin");
    /// let head = client.download("scans:7", "1.bin", &path).await?;
    /// assert_eq!(std::fs::metadata(&path)?.len(), head.size);
    /// # Ok(()) }
    /// ```
    pub fn download(&self, resource: &str, key: &str, path: impl AsRef<Path>) -> Download {
        Download { open: self.open(resource, key), path: path.as_ref().to_owned(), seen: None }
    }
}

type Seen = Box<dyn Fn(u64, u64) + Send + Sync>;

/// An object to read into a file; made by [`Client::download`].
#[must_use = "nothing is read before it is awaited"]
pub struct Download {
    open: Open,
    path: PathBuf,
    seen: Option<Seen>,
}

impl Download {
    /// The object as the write with this version of the resource left it, while that is kept.
    pub fn version(mut self, version: i64) -> Self {
        self.open = self.open.version(version);
        self
    }

    /// Calls the function with the number of bytes that have come so far, and with that of all, to show progress.
    pub fn watched(mut self, seen: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.seen = Some(Box::new(seen));
        self
    }

    /// Reads it, unless its tag is still this one: then it is `None`, and the file is as it was.
    ///
    /// # Errors
    /// Those of [`Client::download`].
    pub async fn if_changed(self, etag: &str) -> Result<Option<ObjectHead>, Error> {
        match self.open.if_changed(etag).await? {
            Some(reader) => store(reader, self.path, self.seen).await.map(Some),
            None => Ok(None),
        }
    }
}

impl IntoFuture for Download {
    type Output = Result<ObjectHead, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let Self { open, path, seen } = self;
            store(open.await?, path, seen).await
        }
        .boxed()
    }
}

async fn store(reader: Reader, path: PathBuf, seen: Option<Seen>) -> Result<ObjectHead, Error> {
    let unwritable = |error| Error::misuse(format!("cannot write {}: {error}", path.display()));
    let part = part_of(&path).map_err(unwritable)?;
    let claimed = part.clone();
    let file = blocking(move || claim(&claimed)).await.map_err(unwritable)?;
    // It is open, and so locked, until its fate is decided.
    let mut file = tokio::fs::File::from_std(file);
    let stored = match write(reader, &mut file, seen).await {
        Ok(head) => {
            let (from, to) = (part.clone(), path.clone());
            let put = blocking(move || put_in_place(&from, &to)).await;
            put.map(|()| head).map_err(unwritable)
        }
        Err(Stopped::Reading(error)) => Err(error),
        Err(Stopped::Writing(error)) => Err(unwritable(error)),
    };
    if stored.is_err() {
        let _gone = tokio::fs::remove_file(&part).await;
    }
    stored
}

/// Why a download ended early.
enum Stopped {
    Reading(Error),
    Writing(io::Error),
}

async fn write(
    mut reader: Reader,
    file: &mut tokio::fs::File,
    seen: Option<Seen>,
) -> Result<ObjectHead, Stopped> {
    let mut come = 0;
    while let Some(piece) = reader.next().await {
        let piece = piece.map_err(Stopped::Reading)?;
        file.write_all(&piece).await.map_err(Stopped::Writing)?;
        come += piece.len() as u64;
        if let Some(seen) = &seen {
            seen(come, reader.head().size);
        }
    }
    file.flush().await.map_err(Stopped::Writing)?;
    file.sync_all().await.map_err(Stopped::Writing)?;
    Ok(reader.into_head())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn part_of(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let mut name = name.to_owned();
    name.push(".part");
    Ok(path.with_file_name(name))
}

/// The file `<path>.part`, empty, and ours alone.
fn claim(part: &Path) -> io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    loop {
        let file = options.open(part)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another download is writing it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Another download may have put it in its place before we had the lock.
        let is_same = |found: std::fs::Metadata| {
            file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (found.dev(), found.ino()))
        };
        if std::fs::metadata(part).is_ok_and(is_same) {
            file.set_len(0)?;
            return Ok(file);
        }
    }
}

fn put_in_place(part: &Path, path: &Path) -> io::Result<()> {
    std::fs::rename(part, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
