//! The root of S3 keys, and where it is kept. Never in the ledger, which has a digest: whoever reads a dump, a replica or a
//! backup of it could make the key of any lock (I18). Beside Postgres it is a setting, in a data directory a file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use fencegate_s3::key::Root;

use crate::config::{Config, S3Root};
use crate::engine::agreement;
use crate::files;
use crate::ledger::postgres::PgLedger;
use crate::ledger::sqlite::SqliteLedger;

/// The file of the root in a data directory.
pub(super) const FILE: &str = "s3.root";
/// The name of that file until it is whole.
const TEMPORARY: &str = "s3.root.new";
/// A file that is longer has no root in it.
const FILE_BYTES_MAX: u64 = 256;
const UNREADABLE: &str = "cannot read what the ledger has of the root of S3 keys";

/// The root of the settings, or a new one for a gateway that keeps nothing.
///
/// # Errors
/// The system has no random bytes.
pub(super) fn in_memory(config: &Config) -> anyhow::Result<S3Root> {
    match &config.s3_root {
        Some(root) => Ok(root.clone()),
        None => new().map(S3Root::from),
    }
}

/// The root of a data directory, which this process has locked.
///
/// 1. That of the settings.
/// 2. That of the file. If the ledger has a digest and there is no file, the file was lost.
/// 3. A new one, if there has been none.
///
/// The ledger has the digest of what is in the file, so that a file or a ledger from elsewhere is noticed.
///
/// # Errors
/// The file was lost or is from elsewhere, or cannot be read or made; or the ledger cannot be used.
pub(super) async fn in_directory(config: &Config, ledger: &SqliteLedger) -> anyhow::Result<S3Root> {
    // Step 1.
    if let Some(root) = &config.s3_root {
        return Ok(root.clone());
    }
    // Step 2.
    let file = config.data_dir.join(FILE);
    let root = match read(&file)? {
        Some(root) => root,
        None if ledger.s3_root_digest().await.context(UNREADABLE)?.is_some() => bail!(
            "{} is missing, from which all access keys of S3 are derived. Put it back: it is not in a backup of the \
             ledger. Or give the gateway another root as s3_root (`openssl rand -hex 32` makes one): then all keys \
             that were made before are nobody's",
            file.display()
        ),
        // Step 3.
        None => {
            let root = new()?;
            write(&config.data_dir, &root)?;
            root
        }
    };
    let root = S3Root::from(root);
    note(ledger, &root).await.with_context(|| file.display().to_string())?;
    Ok(root)
}

/// Moves a root that an older gateway left in the ledger of a data directory into the file.
///
/// 1. The file has it, and the disk has the file and its name.
/// 2. The ledger has the digest of it.
/// 3. The ledger has no byte of it any more.
///
/// After a crash in between it is in both places, and the next start does the same again.
///
/// # Errors
/// The file has another root, or cannot be read or made; or the ledger cannot be used.
pub(super) async fn leave_ledger(directory: &Path, ledger: &SqliteLedger) -> anyhow::Result<()> {
    let Some(root) = ledger.s3_root_in_clear().await.context(UNREADABLE)? else { return Ok(()) };
    let (root, file) = (of_bytes(root)?, directory.join(FILE));
    ensure!(
        read(&file)?.is_none_or(|there| there.reveal() == root.reveal()),
        "{} is not the root that access keys of S3 were made of so far, which is in the ledger: the file is from \
         elsewhere; put it aside and start again",
        file.display()
    );
    // Step 1.
    write(directory, &root)?;
    // Steps 2 and 3.
    strip(ledger).await?;
    tracing::info!(file = %file.display(), "the root of S3 keys was moved from the ledger into a file");
    Ok(())
}

/// Leaves the digest of the root in a ledger, and nothing else of it. Returns whether there has been a root.
///
/// # Errors
/// The ledger cannot be used, or has the digest of another root.
pub(super) async fn strip(ledger: &SqliteLedger) -> anyhow::Result<bool> {
    if let Some(root) = ledger.s3_root_in_clear().await.context(UNREADABLE)? {
        note(ledger, &S3Root::from(of_bytes(root)?)).await?;
        let removed = ledger.remove_s3_root().await;
        removed.context("cannot remove the root of S3 keys from the ledger")?;
    }
    Ok(ledger.s3_root_digest().await.context(UNREADABLE)?.is_some())
}

/// Notes the digest of a root in the ledger of a data directory.
async fn note(ledger: &SqliteLedger, root: &S3Root) -> anyhow::Result<()> {
    let noted = ledger.note_s3_root(&root.fingerprint()).await;
    ensure!(
        noted.context("cannot note which root S3 keys have")? == root.fingerprint(),
        "this is not the root that access keys of S3 were made of so far: put that one back, or give the gateway \
         another as s3_root (`openssl rand -hex 32` makes one), by which all keys that were made before are nobody's"
    );
    Ok(())
}

/// Agrees on a root that an older gateway left in the Postgres ledger in clear, unless the gateways have agreed on one: keys
/// were made of it. Returns whether there is such a root.
///
/// # Errors
/// The ledger does not answer.
pub(super) async fn agree_on_clear(ledger: &PgLedger) -> anyhow::Result<bool> {
    let Some(root) = ledger.s3_root_in_clear().await.context(UNREADABLE)? else { return Ok(false) };
    let digest = S3Root::from(of_bytes(root)?).fingerprint();
    let terms = [(agreement::S3_ROOT.to_owned(), digest)].into();
    ledger.agree_first(&terms).await.context("cannot agree on the root of S3 keys")?;
    Ok(true)
}

fn new() -> anyhow::Result<Root> {
    Root::generate().context("the system has no random bytes")
}

fn of_bytes(root: [u8; 32]) -> anyhow::Result<Root> {
    Root::parse(&hex::encode(root)).context("the root in the ledger")
}

/// The root in a file; none if there is no file.
fn read(file: &Path) -> anyhow::Result<Option<Root>> {
    let what = || format!("cannot read {}", file.display());
    let text = match files::read_text(file, FILE_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.with_context(what)?,
    };
    // One that was put back may have other rights.
    fs::set_permissions(file, Permissions::from_mode(0o600)).with_context(what)?;
    Root::parse(text.trim()).map(Some).with_context(what)
}

/// Writes the file as a whole, for this user only, and returns once the disk has it.
fn write(directory: &Path, root: &Root) -> anyhow::Result<()> {
    replace(directory, root)
        .with_context(|| format!("cannot write {}", directory.join(FILE).display()))
}

fn replace(directory: &Path, root: &Root) -> io::Result<()> {
    let temporary = directory.join(TEMPORARY);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut made = options.open(&temporary)?;
    writeln!(made, "{}", root.reveal())?;
    made.sync_all()?;
    fs::rename(&temporary, directory.join(FILE))?;
    // The new name is on disk only once its directory is.
    File::open(directory)?.sync_all()
}
