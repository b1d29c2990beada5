//! `fencegate backup`: a copy of a data directory, also beside the gateway that uses it.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use fence_core::ports::{BlobError, Blobs, Pointer, Uploads as _};
use futures::TryStreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::TaskTracker;

use super::root;
use crate::blobs::{BlobsUrl, ObjectBlobs};
use crate::config::Config;
use crate::ledger::sqlite::SqliteLedger;
use crate::mint::EmbeddedMint;
use crate::runtime;

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Pointers of the ledger that are read at a time.
const BATCH: i64 = 500;
/// How many blobs are named.
const LISTED_MAX: usize = 100;

/// What a backup has to tell.
#[derive(Debug, Default)]
pub struct Backup {
    /// The report, for people.
    pub told: String,
    /// Whether everything is in it that readers get.
    pub whole: bool,
}

/// Copies what the settings name into a directory that is new or empty.
///
/// 1. The ledger, as of one moment.
/// 2. The blobs that this copy points at: a blob stays for `rollback_horizon` after its object was replaced.
///    The other way round, blobs of writes in between would be missing.
/// 3. The mint, last: a directory without one is refused, and so is a backup that broke off. Its mark is
///    above the ledger's, which says that the ledger is an older copy. So a gateway starts on a backup only
///    after a re-fence: what was granted and written since is not in it.
/// 4. All of it is on disk before anybody is told so. The root of S3 keys is not in it: whoever can read a backup could make
///    the key of any lock.
pub async fn backup(config: &Config, to: &Path) -> anyhow::Result<Backup> {
    ensure!(
        !config.is_shared(),
        "the ledger is on Postgres, whose own means back it up: pg_basebackup and point-in-time \
         recovery; see docs/runbook.md"
    );
    let from: &Path = &config.data_dir;
    super::require_ledger(config)?;
    ensure!(EmbeddedMint::exists(from)?, "{} has a ledger but no mint", from.display());
    let to = empty_directory(to)?;
    let path = SqliteLedger::path(&to);
    copy_ledger(&SqliteLedger::path(from), &path).await?;
    let runtime = runtime::runtime(TaskTracker::new());
    let ledger = SqliteLedger::open(&path, runtime.clock, runtime.ids.uuid()).await?;
    let blobs = copy_blobs(config, &ledger, &to).await?;
    let has_root = root::strip(&ledger).await?;
    let mark = ledger.mark().await?;
    ledger.close().await?;
    let synced = File::open(&path).and_then(|ledger| ledger.sync_all());
    synced.with_context(|| format!("cannot sync {}", path.display()))?;
    EmbeddedMint::copy(from, &to, mark)?;
    if let Some(parent) = to.parent() {
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        synced.with_context(|| format!("cannot sync {}", parent.display()))?;
    }
    let root = has_root.then(|| from.join(root::FILE));
    let told = told(&to, fs::metadata(&path)?.len(), &blobs, root.as_deref())?;
    Ok(Backup { told, whole: !blobs.unread.iter().any(|(pointer, _)| pointer.current) })
}

/// Makes the directory for this user only, or takes one that is empty.
fn empty_directory(path: &Path) -> anyhow::Result<PathBuf> {
    let failed = || format!("cannot use the directory {}", path.display());
    DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(failed)?;
    let path = path.canonicalize().with_context(failed)?;
    if fs::read_dir(&path).with_context(failed)?.next().is_some() {
        bail!("{} is not empty; a backup needs a directory of its own", path.display());
    }
    Ok(path)
}

async fn copy_ledger(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copy = SqliteLedger::copy(from, to);
    tokio::pin!(copy);
    let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await;
    loop {
        tokio::select! {
            copied = &mut copy => return Ok(copied?),
            _ = tick.tick() => {
                let bytes = fs::metadata(to).map_or(0, |copy| copy.len());
                tracing::info!(bytes, "copying the ledger");
            }
        }
    }
}

/// What became of the blobs.
enum Kept {
    /// The ledger has none.
    None,
    /// They are in the backup.
    Here,
    /// They stay where they are.
    Elsewhere(BlobsUrl),
}

struct Copied {
    kept: Kept,
    count: u64,
    bytes: u64,
    /// Those that are not in the backup, and why.
    unread: Vec<(Pointer, String)>,
}

/// Copies the blobs that the copied ledger points at, unless they are in a store that the settings name: that
/// is somewhere else, and has a backup of its own.
async fn copy_blobs(config: &Config, ledger: &SqliteLedger, to: &Path) -> anyhow::Result<Copied> {
    let mut copied = Copied { kept: Kept::None, count: 0, bytes: 0, unread: Vec::new() };
    if ledger.blob_store().await?.is_none() {
        return Ok(copied);
    }
    if let Some(url) = &config.blobs {
        copied.kept = Kept::Elsewhere(url.clone());
        return Ok(copied);
    }
    copied.kept = Kept::Here;
    let source = ObjectBlobs::open(&config.blobs_url())?;
    let target = ObjectBlobs::open(&BlobsUrl::Folder(to.join("blobs")))?;
    match source.mark().await? {
        Some(mark) => target.set_mark(mark).await?,
        None => bail!("{} is not the store of this ledger's blobs", config.blobs_url()),
    }
    let (mut after, mut told_at) = (None, Instant::now());
    loop {
        let pointers = ledger.pointers(after, BATCH).await?;
        let Some(last) = pointers.last() else { return Ok(copied) };
        after = Some(last.blob);
        for pointer in pointers {
            match copy_blob(&source, &target, &pointer).await? {
                Ok(bytes) => {
                    (copied.count, copied.bytes) = (copied.count + 1, copied.bytes + bytes)
                }
                Err(why) => copied.unread.push((pointer, why)),
            }
            if told_at.elapsed() >= PROGRESS_INTERVAL {
                told_at = Instant::now();
                tracing::info!(blobs = copied.count, bytes = copied.bytes, "copying blobs");
            }
        }
    }
}

/// Copies one blob; why it could not be read, or its number of bytes.
async fn copy_blob(
    source: &ObjectBlobs,
    target: &ObjectBlobs,
    pointer: &Pointer,
) -> anyhow::Result<Result<u64, String>> {
    let size = pointer.size.unsigned_abs();
    let mut stream = match source.read(pointer.blob, 0..size).await {
        Ok(Some(stream)) => stream,
        Ok(None) => return Ok(Err("missing".into())),
        Err(BlobError(why)) => return Ok(Err(why)),
    };
    let mut sink = target.upload(pointer.blob, Some(size)).await?;
    let (mut digest, mut in_parts) = (Sha256::new(), false);
    loop {
        match stream.try_next().await {
            Ok(Some(bytes)) => {
                digest.update(&bytes);
                if !in_parts && sink.outgrows(bytes.len()) {
                    sink.begin_parts().await?;
                    in_parts = true;
                }
                sink.push(bytes).await?;
            }
            Ok(None) => break,
            Err(BlobError(why)) => {
                sink.abort().await;
                return Ok(Err(why));
            }
        }
    }
    if digest.finalize()[..] != pointer.sha256[..] {
        sink.abort().await;
        return Ok(Err("its bytes are not those that were stored".into()));
    }
    sink.finish().await?;
    Ok(Ok(size))
}

fn told(
    to: &Path,
    ledger_bytes: u64,
    blobs: &Copied,
    root: Option<&Path>,
) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    writeln!(text, "backup in {}", to.display())?;
    writeln!(text, "ledger: {ledger_bytes} bytes")?;
    match &blobs.kept {
        Kept::None => writeln!(text, "blobs:  none")?,
        Kept::Here => writeln!(text, "blobs:  {} ({} bytes)", blobs.count, blobs.bytes)?,
        Kept::Elsewhere(url) => writeln!(
            text,
            "blobs:  not in it; they are in {url}, where they stay for rollback_horizon after they \
             were replaced"
        )?,
    }
    if !blobs.unread.is_empty() {
        writeln!(text, "not in it, since they cannot be read: {}", blobs.unread.len())?;
        for (pointer, why) in blobs.unread.iter().take(LISTED_MAX) {
            writeln!(text, "  {}: {why}", super::scrub::place(pointer))?;
        }
    }
    if let Some(root) = root {
        writeln!(
            text,
            "S3:     not in it is {}, from which all access keys are derived: keep it where secrets are kept; \
             without it, keys that were made so far are nobody's",
            root.display()
        )?;
    }
    writeln!(
        text,
        "Before a gateway starts on it, all tokens must be voided:\n  \
         fencegate refence --data-dir {} --reason TEXT",
        to.display()
    )?;
    Ok(text)
}
