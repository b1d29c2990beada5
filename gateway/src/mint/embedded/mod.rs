//! The embedded mint: a counter in the data directory, for one gateway on its own.
//!
//! Numbers are handed out from memory, out of a block that the file `mint` has reserved before. A
//! restart begins after the reserved block, so a crash skips numbers and never repeats one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use fence_core::ports::{Carry, Ended, Head, Mint, MintError, MintItem, Unwritable, Witness};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The file in the data directory.
const FILE: &str = "mint";
/// Where its next content is written before it takes the file's place.
const TEMPORARY: &str = "mint.new";
/// The first line of the file.
const TITLE: &str = "fencegate mint 1";
/// Numbers reserved at a time: one write to disk for so many grants.
const BLOCK: i64 = 4096;

/// A mint for one process. The caller holds the lock of the data directory.
pub struct EmbeddedMint {
    counter: Arc<Counter>,
}

/// What is shared with the threads that write the file.
struct Counter {
    directory: PathBuf,
    state: Mutex<State>,
}

struct State {
    saved: Saved,
    /// The number handed out last. After a start it equals `saved.reserved_until`, so that nothing
    /// of a block that an earlier process reserved is handed out.
    last: i64,
}

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Saved {
    nonce: Option<Uuid>,
    reserved_until: i64,
    /// A number that is raised here and in the ledger together.
    mark: i64,
}

impl EmbeddedMint {
    /// Sets a mint aside that cannot be read, so that the next start begins a new one. For a ledger
    /// that is then re-fenced: the new one begins at 1.
    pub fn set_aside(directory: &Path) -> io::Result<PathBuf> {
        let aside = directory.join("mint.damaged");
        fs::rename(directory.join(FILE), &aside)?;
        Ok(aside)
    }

    /// Whether the directory holds a mint. A ledger without one has lost its mint.
    pub fn exists(directory: &Path) -> io::Result<bool> {
        directory.join(FILE).try_exists()
    }

    /// Copies the mint of a directory beside a copy of its ledger that was made before, and that has this mark.
    ///
    /// The copy's mark is above the ledger's, as if the mint had gone on without it: it knows nothing of what
    /// was granted since, so it must be re-fenced before it is used.
    pub fn copy(from: &Path, to: &Path, ledger_mark: i64) -> anyhow::Result<()> {
        let path = from.join(FILE);
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let saved = Saved::parse(&text);
        let saved =
            saved.with_context(|| format!("the mint file {} is damaged", path.display()))?;
        let mark = saved.mark.max(ledger_mark) + 1;
        let written = Saved { mark, ..saved }.write(to);
        written.with_context(|| format!("cannot write {}", to.join(FILE).display()))
    }

    /// Opens the mint in `directory`, or begins a new one if there is none. A file that cannot be
    /// read or does not hold what it should is an error; it is never replaced.
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(FILE);
        let saved = match fs::read_to_string(&path) {
            Ok(text) => Saved::parse(&text).with_context(|| {
                format!(
                    "the mint file {} is damaged; put a sound copy of the whole directory back, or \
                     take the ledger as it is, with all tokens void, by: fencegate refence \
                     --data-dir {} --force --reason TEXT. Do not delete it: old tokens could be \
                     granted again",
                    path.display(),
                    directory.display()
                )
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let saved = Saved { nonce: None, reserved_until: 0, mark: 0 };
                saved
                    .write(directory)
                    .with_context(|| format!("cannot create {}", path.display()))?;
                saved
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        Ok(Self {
            counter: Arc::new(Counter {
                directory: directory.to_owned(),
                state: Mutex::new(State { saved, last: saved.reserved_until }),
            }),
        })
    }

    /// The highest number that may have been handed out, as the file has it.
    ///
    /// Read at start and before the first mint, it lies at or above every number in the ledger. If
    /// it does not, the file was restored from an older copy.
    pub fn reserved_until(&self) -> i64 {
        self.counter.lock().saved.reserved_until
    }

    /// The number that is raised here and in the ledger together.
    pub fn mark(&self) -> i64 {
        self.counter.lock().saved.mark
    }

    /// Raises the mark, on disk when it returns. Blocking file work.
    pub fn record_mark(&self, mark: i64) -> anyhow::Result<()> {
        let mut state = self.counter.lock();
        let saved = Saved { mark, ..state.saved };
        saved.write(&self.counter.directory).context("cannot write the mint file")?;
        state.saved = saved;
        Ok(())
    }

    /// The nonce that the mint carries, if any.
    pub fn nonce(&self) -> Option<Uuid> {
        self.counter.lock().saved.nonce
    }

    /// Runs `work` on the counter in a thread that may block. It runs to its end even if the
    /// caller goes away, and under the lock, so two writes of the file never meet.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Counter) -> Result<T, MintError> + Send + 'static,
    ) -> Result<T, MintError> {
        let counter = Arc::clone(&self.counter);
        match tokio::task::spawn_blocking(move || work(&counter)).await {
            Ok(result) => result,
            Err(error) => Err(MintError::Unavailable(error.to_string())),
        }
    }
}

impl Counter {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state changes only after the file did, in one assignment, so a panic leaves it whole.
        self.state.lock()
    }

    /// The next numbers, with a write to the file if the block does not have as many.
    fn next(&self, nonce: Uuid, count: i64) -> Result<Vec<i64>, MintError> {
        let mut state = self.lock();
        // 1. Another nonce: no number.
        state.expect(nonce)?;
        // 2. The block does not have as many: reserve another one and wait until the disk has it. On
        //    failure nothing is handed out; the file may be ahead by a block, which is only skipped.
        if state.left() < count {
            let full = || MintError::Unavailable("the mint has run out of numbers".into());
            let more = BLOCK.max(count);
            let reserved_until = state.saved.reserved_until.checked_add(more).ok_or_else(full)?;
            let saved = Saved { reserved_until, ..state.saved };
            self.save(saved)?;
            state.saved = saved;
        }
        // 3. Hand out the next numbers of the block.
        Ok(state.take(count))
    }

    /// Carries `nonce` unless it carries one; which one it carries now.
    fn adopt(&self, nonce: Uuid) -> Result<Uuid, MintError> {
        let mut state = self.lock();
        if let Some(nonce) = state.saved.nonce {
            return Ok(nonce);
        }
        let saved = Saved { nonce: Some(nonce), ..state.saved };
        self.save(saved)?;
        state.saved = saved;
        Ok(nonce)
    }

    /// Carries `nonce` if it still carries `seen`.
    fn replace(&self, seen: Option<Uuid>, nonce: Uuid) -> Result<bool, MintError> {
        let mut state = self.lock();
        if state.saved.nonce != seen {
            return Ok(false);
        }
        let saved = Saved { nonce: Some(nonce), ..state.saved };
        self.save(saved)?;
        state.saved = saved;
        Ok(true)
    }

    fn save(&self, saved: Saved) -> Result<(), MintError> {
        saved.write(&self.directory).map_err(|error| {
            let path = self.directory.join(FILE);
            let unwritable = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(Unwritable::Full),
                io::ErrorKind::ReadOnlyFilesystem => Some(Unwritable::ReadOnly),
                _ => None,
            };
            if let Some(unwritable) = unwritable {
                return MintError::Unwritable(unwritable);
            }
            MintError::Unavailable(format!("cannot write {}: {error}", path.display()))
        })
    }
}

impl State {
    fn expect(&self, nonce: Uuid) -> Result<(), MintError> {
        let found = self.saved.nonce;
        if found == Some(nonce) { Ok(()) } else { Err(MintError::OtherIncarnation { found }) }
    }

    /// How many numbers the block has left.
    fn left(&self) -> i64 {
        self.saved.reserved_until - self.last
    }

    /// Takes the next `count` numbers; so many must be left.
    fn take(&mut self, count: i64) -> Vec<i64> {
        let first = self.last + 1;
        self.last += count;
        (first..=self.last).collect()
    }
}

impl Saved {
    /// The content of the file, with a checksum as its last line.
    fn text(self) -> String {
        let nonce = self.nonce.map_or_else(|| "none".into(), |n| n.to_string());
        let Self { reserved_until, mark, .. } = self;
        let body =
            format!("{TITLE}\nnonce {nonce}\nreserved_until {reserved_until}\nmark {mark}\n");
        let sum = hex::encode(Sha256::digest(&body));
        format!("{body}sha256 {sum}\n")
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines();
        let mut value = |name: &str| {
            lines
                .next()
                .and_then(|line| line.strip_prefix(name))
                .and_then(|rest| rest.strip_prefix(' '))
                .with_context(|| format!("it has no line {name:?} in its place"))
        };
        ensure!(value("fencegate")? == "mint 1", "its first line is not {TITLE:?}");
        let nonce = match value("nonce")? {
            "none" => None,
            nonce => Some(Uuid::parse_str(nonce).context("its nonce is not a UUID")?),
        };
        let reserved_until =
            value("reserved_until")?.parse().context("its number is not a number")?;
        ensure!(reserved_until >= 0, "its number is negative");
        let mark = value("mark")?.parse().context("its mark is not a number")?;
        let saved = Self { nonce, reserved_until, mark };
        // Written again it must be the same text: this checks the checksum and every other byte.
        ensure!(saved.text() == text, "its checksum does not match");
        Ok(saved)
    }

    /// Replaces the file as a whole and returns once the disk has it.
    fn write(self, directory: &Path) -> io::Result<()> {
        let temporary = directory.join(TEMPORARY);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, directory.join(FILE))?;
        // The new name is on disk only once its directory is.
        File::open(directory)?.sync_all()
    }
}

#[async_trait]
impl Mint for EmbeddedMint {
    async fn mint(
        &self,
        nonce: Uuid,
        items: &[MintItem],
        _ended: &[Ended],
    ) -> Result<Vec<i64>, MintError> {
        let count = i64::try_from(items.len())
            .map_err(|_| MintError::Unavailable("too many grants at once".into()))?;
        // 1. From memory, if the block has enough left and no thread is writing the file.
        if let Some(mut state) = self.counter.state.try_lock() {
            state.expect(nonce)?;
            if state.left() >= count {
                return Ok(state.take(count));
            }
        }
        // 2. Else in a thread that may wait for the disk.
        self.blocking(move |counter| counter.next(nonce, count)).await
    }

    /// The file lies beside its ledger, so it serves no other; a mark in both files is what a witness
    /// is elsewhere.
    async fn adopt(&self, nonce: Uuid, _ledger: Uuid) -> Result<Uuid, MintError> {
        self.blocking(move |counter| counter.adopt(nonce)).await
    }

    async fn head(&self) -> Result<Head, MintError> {
        let Saved { nonce, reserved_until, .. } = self.counter.lock().saved;
        Ok(Head { number: reserved_until, incarnation: nonce, ..Head::default() })
    }

    async fn replace(&self, seen: &Head, carry: &Carry) -> Result<bool, MintError> {
        let (seen, nonce) = (seen.incarnation, carry.nonce);
        self.blocking(move |counter| counter.replace(seen, nonce)).await
    }

    async fn raise(&self, _: &Head, _: Uuid, _: &Witness) -> Result<bool, MintError> {
        Ok(false)
    }

    async fn incarnation(&self) -> Result<Option<Uuid>, MintError> {
        self.blocking(|counter| Ok(counter.lock().saved.nonce)).await
    }
}

#[cfg(test)]
mod tests;
