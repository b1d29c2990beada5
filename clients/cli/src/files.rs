//! Files that are written whole or not at all: whoever reads them sees the old one or the new one. And files that are read
//! whole, with a limit: a path may lead to what has no end.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context as _;

use crate::failure::{Failure, usage};

/// The most bytes of a file of settings, of certificates or of a key.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file. It may be a pipe, as `<(...)` makes one.
///
/// # Errors
/// The text cannot be read, or has more than so many bytes.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    limited(File::open(path)?, bytes_max)
}

/// Reads a file that holds text.
///
/// # Errors
/// The text cannot be read, has more than so many bytes, or holds no UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text_of(File::open(path)?, bytes_max)
}

/// Reads text to its end.
///
/// # Errors
/// The text cannot be read, has more than so many bytes, or is no UTF-8.
pub fn text_of(from: impl io::Read, bytes_max: u64) -> io::Result<String> {
    let bytes = limited(from, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not valid UTF-8"))
}

/// Refuses a file of this user's own with a secret that others can read or write, as ssh(1) does. What belongs to somebody else,
/// as a secret that is mounted into a container does, is theirs to protect.
///
/// # Errors
/// Others can read or write it.
pub fn check_private(path: &Path) -> Result<(), Failure> {
    // Whoever reads it says why it cannot be read.
    let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
    let mode = found.mode() & 0o777;
    let is_open = found.is_file() && mode & 0o077 != 0;
    match is_open && found.uid() == rustix::process::getuid().as_raw() {
        true => Err(usage(format!(
            "others may read {path} (mode {mode:o}), and with it the secret: chmod 600 {path}",
            path = path.display()
        ))),
        false => Ok(()),
    }
}

fn limited(from: impl io::Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match length as u64 <= bytes_max {
        true => Ok(bytes),
        false => Err(io::Error::other(format!("it has more than {bytes_max} bytes"))),
    }
}

/// Puts these bytes in the place of what a file has. With a mode, it gets that; else it is its owner's alone.
///
/// # Errors
/// The folder takes no file.
pub fn replace(path: &Path, bytes: &[u8], mode: Option<u32>) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let written = || -> anyhow::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        file.write_all(bytes)?;
        if let Some(mode) = mode {
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
        }
        file.persist(path)?;
        Ok(())
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_not_read_for_ever() {
        let endless = Path::new("/dev/zero");
        assert_eq!(read(endless, 5).unwrap_err().to_string(), "it has more than 5 bytes");
        assert_eq!(read_text(endless, 5).unwrap_err().to_string(), "it has more than 5 bytes");
        assert_eq!(text_of(&b"12345"[..], 5).unwrap(), "12345");
        assert!(text_of(&b"\xff"[..], 5).unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, is_good) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o666, false),
            (0o620, false),
        ] {
            file.as_file().set_permissions(Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_private(file.path()).is_ok(), is_good, "{mode:o}");
        }
        assert!(check_private(Path::new("/nonexistent")).is_ok());
        assert!(check_private(Path::new("/dev/null")).is_ok());
    }
}
