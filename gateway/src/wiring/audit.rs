//! `fencegate audit`: the key that checkpoints are signed with, and the audit in the ledger itself.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use fence_core::ports::{CheckpointPlace, Ledger};
use tokio_util::task::TaskTracker;

use crate::blobs::ObjectBlobs;
use crate::config::Config;
use crate::engine::{AuditKey, Exported, audit_page};
use crate::files;
use crate::mint::EtcdMint;
use crate::runtime;
use crate::witness::Witness;

/// The file of the key in a data directory.
const KEY_FILE: &str = "audit.key";
/// A file that is longer has no key in it.
const KEY_BYTES_MAX: u64 = 256;

/// The key of these settings; none where none is named and there is no data directory.
///
/// # Errors
/// A file cannot be read or made, others may read it, or there is no key in it.
pub(super) fn key(config: &Config, data_dir: Option<&PathBuf>) -> anyhow::Result<Option<AuditKey>> {
    if let Some(file) = &config.audit_key_file {
        return read(file).map(Some).with_context(|| format!("audit_key_file {}", file.display()));
    }
    let Some(file) = data_dir.map(|dir| dir.join(KEY_FILE)) else { return Ok(None) };
    match file.exists() {
        false => new_key(&file)?,
        // A directory that was put back from a backup may have lost it; nobody else may enter the directory.
        true => std::fs::set_permissions(&file, Permissions::from_mode(0o600))
            .with_context(|| file.display().to_string())?,
    }
    read(&file).map(Some).with_context(|| file.display().to_string())
}

/// Writes a new key into a file that is not there yet, which only this user can read.
///
/// # Errors
/// It cannot be made.
pub fn new_key(file: &Path) -> anyhow::Result<()> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).context("no random bytes can be had")?;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let mut made = made.with_context(|| format!("cannot make {}", file.display()))?;
    writeln!(made, "{}", hex::encode(secret)).and_then(|()| made.sync_all())?;
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<AuditKey> {
    let about = std::fs::metadata(file).context("cannot be read")?;
    let mode = about.permissions().mode();
    ensure!(mode & 0o077 == 0, "others may read it: chmod 600 it, or make a new one");
    let text = files::read_text(file, KEY_BYTES_MAX).context("cannot be read")?;
    let bytes = hex::decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
    match bytes {
        Some(bytes) => Ok(AuditKey(bytes)),
        None => bail!("a key is 64 hex digits, as `fencegate audit new-key` writes them"),
    }
}

/// A page of the audit in the ledger of these settings, from this tile on.
///
/// # Errors
/// The ledger cannot be used.
pub async fn audit_in_ledger(config: &Config, tile: i64) -> anyhow::Result<Option<Exported>> {
    let key = key(config, config.postgres.is_none().then_some(&config.data_dir))?;
    let page = async |ledger: &dyn Ledger| Ok(audit_page(ledger, key.as_ref(), tile).await?);
    super::access::on_ledger(config, page).await
}

/// The witnesses of these settings.
///
/// # Errors
/// TLS cannot be set up.
pub(super) fn witnesses(config: &Config) -> anyhow::Result<Vec<Arc<dyn CheckpointPlace>>> {
    let witness = |url: &String| -> anyhow::Result<Arc<dyn CheckpointPlace>> {
        Ok(Arc::new(Witness::at(url.parse()?)?))
    };
    config.audit_witness.iter().map(witness).collect()
}

/// What a place outside of the ledger says of the audit.
#[derive(Debug)]
pub struct KeptCheckpoint {
    /// What people call the place.
    pub place: String,
    /// The newest checkpoint that it has, or why that is not known.
    pub note: Result<Option<String>, String>,
}

/// The newest checkpoints that etcd and the blob store of these settings have.
///
/// # Errors
/// The settings name a place that cannot be.
pub async fn kept_checkpoints(config: &Config) -> anyhow::Result<Vec<KeptCheckpoint>> {
    let mut places: Vec<Arc<dyn CheckpointPlace>> = Vec::new();
    if config.postgres.is_some() {
        let clock = runtime::runtime(TaskTracker::new()).clock;
        places.push(Arc::new(EtcdMint::connect(&super::shared::etcd_settings(config), clock)?));
    }
    // A folder beside other gateways is no place that all of them use.
    if config.blobs.is_some() || config.postgres.is_none() {
        places.push(Arc::new(ObjectBlobs::open(&config.blobs_url())?));
    }
    let mut all = Vec::new();
    for place in places {
        all.push(KeptCheckpoint { place: place.name(), note: place.newest().await });
    }
    Ok(all)
}
