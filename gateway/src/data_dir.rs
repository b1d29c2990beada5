//! The data directory, locked against a second process.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// A data directory that belongs to this process until dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Closing it gives the lock back, and so does the end of the process, however it ends.
    _lock: File,
}

/// The data directory is another process's.
#[derive(Debug, thiserror::Error)]
#[error("the data directory {} is in use by another process{holder}", path.display())]
pub struct InUse {
    path: PathBuf,
    /// Its id, if it has left that.
    holder: String,
}

impl DataDir {
    /// Creates the directory if need be, for this user only, and locks it through a file of its
    /// own: a lock on the ledger's file would drop when any handle to it closes.
    pub fn lock(path: &Path) -> anyhow::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("cannot create the data directory {}", path.display()))?;
        own(path)?;
        let name = path.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&name)
            .with_context(|| format!("cannot open {}", name.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = holder(&mut file);
                return Err(InUse { path: path.to_owned(), holder }.into());
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", name.display()));
            }
        }
        // For the text above; nothing else reads it.
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .with_context(|| format!("cannot write {}", name.display()))?;
        Ok(Self { path: path.to_owned(), _lock: file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Refuses a directory in which others can put a ledger or a mint of their own in the place of ours.
fn own(path: &Path) -> anyhow::Result<()> {
    let metadata = std::fs::metadata(path)
        .with_context(|| format!("cannot look at the data directory {}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o022 != 0 {
        bail!(
            "others can write to the data directory {place} (mode {mode:o}), and with it to the ledger; take \
             that away (chmod go-w {place}), or name a folder inside it, which is then made for this user only",
            place = path.display()
        );
    }
    Ok(())
}

/// The process that the lock file names, if it names one.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Ok(_) => match text.trim().parse::<u32>() {
            Ok(pid) => format!(" (pid {pid})"),
            Err(_) => String::new(),
        },
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let name = format!("fencegate-data-dir-open-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(DataDir::lock(&path).unwrap());
        let set =
            |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o777, 0o720, 0o702, 0o1777] {
            set(mode);
            let error = DataDir::lock(&path).unwrap_err().to_string();
            assert!(error.contains("others can write") && error.contains("chmod go-w"), "{error}");
        }
        set(0o755);
        DataDir::lock(&path).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn one_process_at_a_time() {
        let name = format!("fencegate-data-dir-{}", std::process::id());
        let path = std::env::temp_dir().join(name).join("inner");
        let first = DataDir::lock(&path).unwrap();
        let mode = std::fs::metadata(first.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        // A second handle conflicts even within one process.
        let error = DataDir::lock(&path).unwrap_err().to_string();
        let pid = format!("(pid {})", std::process::id());
        assert!(error.contains("in use") && error.contains(&pid), "{error}");
        drop(first);
        DataDir::lock(&path).unwrap();
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
