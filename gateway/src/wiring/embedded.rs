//! The set-up that needs nothing else installed: SQLite and the embedded mint, both in the data directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use fence_core::ports::{Ledger, Mint, Runtime};
use tokio_util::sync::CancellationToken;

use super::{Parts, root};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::ledger::sqlite::SqliteLedger;
use crate::mint::EmbeddedMint;

/// How often the mark of ledger and mint is raised.
const MARK_INTERVAL: Duration = Duration::from_secs(60);

/// The files of the embedded set-up, and the right to them.
pub(super) struct Embedded {
    pub(super) ledger: Arc<SqliteLedger>,
    pub(super) mint: Arc<EmbeddedMint>,
    _data_dir: DataDir,
}

/// SQLite and the embedded mint, both in the data directory.
///
/// The two files guard each other: a ledger without its mint, or with a mint that has reserved less
/// than the ledger has sealed, means that one of them was lost or restored.
pub(super) async fn open(config: &Config, runtime: &Runtime) -> anyhow::Result<Parts> {
    let data_dir = DataDir::lock(&config.data_dir)?;
    let directory = data_dir.path();
    let path = SqliteLedger::path(directory);
    if path.exists() && !EmbeddedMint::exists(directory)? {
        bail!(
            "{} has a ledger but no mint: the directory was restored in part. Tokens could repeat; \
             put the whole directory back, or {}",
            directory.display(),
            refence_command(directory)
        );
    }
    let mint = EmbeddedMint::open(directory)?;
    let clock = Arc::clone(&runtime.clock);
    let ledger = SqliteLedger::open(&path, clock, runtime.ids.uuid()).await?;
    let ledger = ledger.keeping_versions(!config.versions_kept.is_zero());
    compare(directory, &ledger, &mint).await?;
    root::leave_ledger(directory, &ledger).await?;
    let s3_root = match config.s3_listen {
        Some(_) => Some(root::in_directory(config, &ledger).await?),
        None => None,
    };
    raise_mark(&ledger, &mint).await?;
    tracing::info!(directory = %directory.display(), "ledger on SQLite, embedded mint");
    let (ledger, mint) = (Arc::new(ledger), Arc::new(mint));
    Ok(Parts {
        kinds: ["sqlite", "embedded"],
        shared: None,
        ledger: Arc::clone(&ledger) as Arc<dyn Ledger>,
        mint: Arc::clone(&mint) as Arc<dyn Mint>,
        blobs: None,
        // One writer: a second committer would only halve the batches.
        committers: 1,
        audit_places: Vec::new(),
        s3_root,
        embedded: Some(Arc::new(Embedded { ledger, mint, _data_dir: data_dir })),
    })
}

/// Refuses to go on where the settings name a data directory without a ledger: a command in the wrong folder would speak of
/// a new one as of the gateway's own.
///
/// # Errors
/// There is none; the directory is named.
pub fn require_ledger(config: &Config) -> anyhow::Result<()> {
    let directory = &config.data_dir;
    if config.is_shared() || SqliteLedger::path(directory).exists() {
        return Ok(());
    }
    let whole = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
    bail!(
        "{} holds no ledger, and this command makes none: name the data directory of the gateway with --data-dir, or its \
         settings with --config. `fencegate serve` makes a new one",
        whole.display()
    )
}

/// Refuses a ledger and a mint if one of the two was restored from an older copy.
///
/// Both carry a mark that [`raise_mark`] raises at every start, at every clean stop, and now and then
/// in between. A copy of one of them is noticed once the other has gone on; of a copy that is younger
/// than the last mark nothing can be known.
pub(super) async fn compare(
    directory: &Path,
    ledger: &SqliteLedger,
    mint: &EmbeddedMint,
) -> anyhow::Result<()> {
    if let Some(older) = older_file(ledger, mint).await? {
        bail!(
            "the {older} in {} was restored from an older copy. Tokens could repeat or writes be \
             lost; put the newer file back, or {}",
            directory.display(),
            refence_command(directory)
        );
    }
    Ok(())
}

/// Which of the two files is older than the other, if one is.
pub(super) async fn older_file(
    ledger: &SqliteLedger,
    mint: &EmbeddedMint,
) -> anyhow::Result<Option<&'static str>> {
    let (in_ledger, in_mint) = (ledger.mark().await?, mint.mark());
    let highest = ledger.highest_token().await?;
    let base = ledger.epoch().await?.base;
    Ok(if in_ledger < in_mint {
        Some("ledger")
    } else if in_ledger > in_mint + 1 || highest > base.saturating_add(mint.reserved_until()) {
        Some("mint")
    } else {
        None
    })
}

/// What makes a directory usable whose files do not belong together.
fn refence_command(directory: &Path) -> String {
    format!(
        "take it as it is, with all tokens void, by: fencegate refence --data-dir {} --reason TEXT",
        directory.display()
    )
}

/// Raises the mark in both files, the ledger first: a crash between the two leaves it one ahead, and
/// the next time writes the same number again.
pub(super) async fn raise_mark(ledger: &SqliteLedger, mint: &EmbeddedMint) -> anyhow::Result<()> {
    let mark = mint.mark() + 1;
    ledger.record_mark(mark).await?;
    mint.record_mark(mark)
}

/// Raises the mark now and then, until `soft`.
pub(super) fn keep_marking(runtime: &Runtime, files: &Arc<Embedded>, soft: CancellationToken) {
    let (clock, files) = (Arc::clone(&runtime.clock), Arc::clone(files));
    let task = async move {
        loop {
            tokio::select! {
                () = clock.sleep(MARK_INTERVAL) => {}
                () = soft.cancelled() => return,
            }
            if let Err(error) = raise_mark(&files.ledger, &files.mint).await {
                tracing::warn!(%error, "the mark of ledger and mint could not be raised");
            }
        }
    };
    runtime.spawn.spawn_lasting("mark", Box::pin(task));
}
