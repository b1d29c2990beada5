//! `fencegate scrub`: compares the ledger with the blob store.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fence_core::ports::{Ledger, Mint, Pointer};
use fence_core::shown::escaped;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::blobs::ObjectBlobs;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::engine::{EngineError, Scrub, ScrubProgress, ScrubReport, Standing, store_standing};
use crate::ledger::postgres::{Disorder, Fall, PgLedger, PgSettings};
use crate::ledger::sqlite::SqliteLedger;
use crate::mint::{EmbeddedMint, EtcdMint};
use crate::runtime;

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// How many findings of a kind are listed.
const LISTED_MAX: usize = 100;

/// What a ledger that went back does not know of is not garbage.
const NOTHING_DELETED: &str =
    "with --fix the ledger must be known not to have gone back; no more was deleted";

/// What a scrub has to tell.
#[derive(Debug, Default)]
pub struct Scrubbed {
    /// The report, for people.
    pub told: String,
    /// The fault, if there is one: blobs are missing or damaged, or writes are not in order.
    pub wrong: Option<&'static str>,
}

/// Compares what the settings name; with `fix`, deletes orphans; with `deep`, reads every blob.
pub async fn scrub(config: &Config, fix: bool, deep: bool) -> anyhow::Result<Scrubbed> {
    let runtime = runtime::runtime(TaskTracker::new());
    // Held until the end: no gateway may use the directory meanwhile.
    let mut _data_dir = None;
    let mut witness: Option<Arc<dyn Mint>> = None;
    let mut falls = Vec::new();
    let mut rollback_horizon = config.rollback_horizon;
    let ledger: Arc<dyn Ledger> = match &config.postgres {
        Some(url) => {
            let ledger = PgLedger::new(PgSettings {
                options: super::shared::postgres_options(url)?,
                connections_max: super::shared::POSTGRES_CONNECTIONS_MAX,
                timeout: config.request_timeout,
            });
            ledger.check().await.context("cannot use the Postgres server")?;
            falls = ledger.falls().await.context("cannot read the history of the ledger")?;
            if fix {
                rollback_horizon = super::agree::horizon(config, &ledger).await?;
                let clock = Arc::clone(&runtime.clock);
                let mint = EtcdMint::connect(&super::shared::etcd_settings(config), clock)?;
                witness = Some(Arc::new(mint));
            }
            Arc::new(ledger)
        }
        None => {
            let path = SqliteLedger::path(&config.data_dir);
            super::require_ledger(config)?;
            _data_dir = Some(DataDir::lock(&config.data_dir)?);
            let clock = Arc::clone(&runtime.clock);
            let ledger = SqliteLedger::open(&path, clock, runtime.ids.uuid()).await?;
            if fix {
                not_restored(config, &ledger).await.context(NOTHING_DELETED)?;
            }
            Arc::new(ledger)
        }
    };
    let url = config.blobs_url();
    let blobs = ObjectBlobs::open(&url)?;
    let standing = store_standing(&*ledger, &blobs).await;
    match standing.with_context(|| format!("cannot use the blob store {url}"))? {
        Standing::Ours => {}
        Standing::Unbound => {
            let told = "this ledger has no blobs yet; there is nothing to compare\n";
            return Ok(Scrubbed { told: fallen(&falls)? + told, wrong: wrong(&falls, true) });
        }
        Standing::Other | Standing::Foreign => {
            bail!("the blobs of this ledger are in another store than {url}; nothing was compared")
        }
    }
    let scrub = Scrub {
        ledger,
        blobs: Arc::new(blobs),
        clock: runtime.clock,
        witness,
        rollback_horizon,
        deep,
        fix,
    };
    let mut told_at = Instant::now();
    let progress = |progress| {
        if told_at.elapsed() >= PROGRESS_INTERVAL {
            told_at = Instant::now();
            match progress {
                ScrubProgress::Listed(blobs) => {
                    tracing::info!(blobs, "looking up the store's blobs")
                }
                ScrubProgress::Followed(pointers) => {
                    tracing::info!(pointers, "following the ledger's pointers");
                }
            }
        }
    };
    let report = scrub.run(progress).await.map_err(|error| {
        let doubt = match error {
            EngineError::MintUnavailable(_) => Some("the mint does not answer"),
            EngineError::MintUnwritable(_) => Some("the mint takes nothing new"),
            EngineError::MintRegressed(_) => Some("the mint has lost its place"),
            EngineError::RefenceRequired(_) => Some("the ledger must be re-fenced"),
            _ => None,
        };
        let error = anyhow::Error::new(error);
        match doubt {
            Some(why) => error.context(why).context(NOTHING_DELETED),
            None => error.context("cannot compare the ledger with the store"),
        }
    })?;
    let wrong = wrong(&falls, report.is_whole());
    Ok(Scrubbed { wrong, told: fallen(&falls)? + &told(&report, fix, deep)? })
}

/// The faults in words.
fn wrong<T>(falls: &[T], is_whole: bool) -> Option<&'static str> {
    match (falls.is_empty(), is_whole) {
        (true, true) => None,
        (true, false) => Some("the ledger points at blobs that are missing or damaged"),
        (false, true) => Some("the ledger has writes out of order"),
        (false, false) => Some(
            "the ledger has writes out of order, and points at blobs that are missing or damaged",
        ),
    }
}

/// Refuses a ledger that is older than its mint, or the other way round: `serve` would, too.
async fn not_restored(config: &Config, ledger: &SqliteLedger) -> anyhow::Result<()> {
    if !EmbeddedMint::exists(&config.data_dir)? {
        bail!("{} has a ledger but no mint", config.data_dir.display());
    }
    let mint = EmbeddedMint::open(&config.data_dir)?;
    super::embedded::compare(&config.data_dir, ledger, &mint).await
}

/// What was admitted that must not have been, if anything.
fn fallen(falls: &[Fall]) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for (disorder, what) in [
        (Disorder::OlderToken, "writes under an older token than the write before them"),
        (Disorder::LeavesOut, "writes whose version is not the next one"),
    ] {
        let falls: Vec<_> = falls.iter().filter(|fall| fall.disorder == disorder).collect();
        if !falls.is_empty() {
            writeln!(text, "{what}: {}", falls.len())?;
        }
        for Fall { resource, version, .. } in falls.into_iter().take(LISTED_MAX) {
            writeln!(text, "  {resource}, version {version}")?;
        }
    }
    Ok(text)
}

fn told(report: &ScrubReport, fix: bool, deep: bool) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    writeln!(text, "blobs in the store:       {} ({} bytes)", report.blobs, report.bytes)?;
    writeln!(text, "pointers in the ledger:   {}", report.pointers)?;
    writeln!(text, "pointers without a blob:  {}", report.dangling.len())?;
    for pointer in report.dangling.iter().take(LISTED_MAX) {
        writeln!(text, "  {}", place(pointer))?;
    }
    writeln!(text, "blobs of another size:    {}", report.wrong_size.len())?;
    for (pointer, size) in report.wrong_size.iter().take(LISTED_MAX) {
        writeln!(text, "  {}: {} bytes, not {}", place(pointer), size, pointer.size)?;
    }
    if deep {
        writeln!(text, "blobs with other bytes than were stored: {}", report.damaged.len())?;
        for pointer in report.damaged.iter().take(LISTED_MAX) {
            writeln!(text, "  {}", place(pointer))?;
        }
    }
    writeln!(text, "blobs unknown to the ledger: {}", report.orphans.len())?;
    for orphan in report.orphans.iter().take(LISTED_MAX) {
        writeln!(text, "  {} ({} bytes, stored {})", orphan.blob, orphan.size, orphan.stored_at)?;
    }
    if fix {
        writeln!(
            text,
            "  of these deleted: {}; kept, younger than rollback_horizon: {}",
            report.deleted, report.kept
        )?;
        if report.held > 0 {
            writeln!(
                text,
                "  kept, since the ledger was re-fenced less than rollback_horizon ago: {}",
                report.held
            )?;
        }
    }
    if !report.strangers.is_empty() {
        writeln!(text, "not named like a blob, let be: {}", report.strangers.len())?;
        for name in report.strangers.iter().take(LISTED_MAX) {
            writeln!(text, "  {}", escaped(name))?;
        }
    }
    Ok(text)
}

pub(super) fn place(pointer: &Pointer) -> String {
    let Pointer { resource, key, version, blob, current, .. } = pointer;
    let what = if *current { "current" } else { "replaced" };
    escaped(&format!("{resource} {key}, version {version} ({what}), blob {blob}")).into_owned()
}
