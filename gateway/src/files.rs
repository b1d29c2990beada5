//! Whole files that settings, rules or a command name. Each is read with a limit: a path may lead to what has no end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// The most bytes of a file of certificates, of a key of one, or of settings.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most bytes of a file with a credential.
pub const CREDENTIAL_BYTES_MAX: u64 = 16 * 1024;

/// Reads a regular file, which may grow meanwhile. Devices and pipes are refused: a gateway reads such files again and
/// again, and nothing that never answers may hold it up. Opening waits for nobody, as that of a pipe would.
///
/// # Errors
/// The file cannot be read, is of another kind, or has more than so many bytes.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Asked of what is open: another file may stand at the path by now.
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    limited(file, bytes_max)
}

/// Reads a regular file that holds text.
///
/// # Errors
/// The file cannot be read, is of another kind, has more than so many bytes, or holds no UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text(read(path, bytes_max)?)
}

/// Reads what a command is given, once. That may be a pipe, as `<(...)` makes one.
///
/// # Errors
/// The file cannot be read, or has more than so many bytes.
pub fn read_given(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    limited(File::open(path)?, bytes_max)
}

/// Reads text that a command is given, once.
///
/// # Errors
/// The file cannot be read, has more than so many bytes, or holds no UTF-8.
pub fn read_given_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text(read_given(path, bytes_max)?)
}

fn limited(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match length as u64 <= bytes_max {
        true => Ok(bytes),
        false => Err(io::Error::other(format!("it has more than {bytes_max} bytes"))),
    }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    /// A folder of one test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("fencegate-files-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn pipe(&self) -> PathBuf {
            let pipe = self.0.join("pipe");
            mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
            pipe
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_what_is_a_file_and_has_an_end_is_read() {
        let folder = Folder::new("kinds");
        let (plain, pipe) = (folder.0.join("plain"), folder.pipe());
        std::fs::write(&plain, "12345").unwrap();
        assert_eq!(read(&plain, 5).unwrap(), b"12345");
        assert_eq!(read_text(&plain, 5).unwrap(), "12345");
        let refused = |path: &Path| read(path, 4).unwrap_err().to_string();
        assert_eq!(refused(&plain), "it has more than 4 bytes");
        for other in [Path::new("/dev/zero"), Path::new("/dev/null"), &pipe, &folder.0] {
            assert_eq!(refused(other), "it is no regular file", "{}", other.display());
        }
    }

    #[test]
    fn what_a_command_is_given_may_be_a_pipe_but_has_an_end() {
        let folder = Folder::new("given");
        let pipe = folder.pipe();
        let there = pipe.clone();
        let writer = std::thread::spawn(move || std::fs::write(there, "12345"));
        assert_eq!(read_given_text(&pipe, 5).unwrap(), "12345");
        writer.join().unwrap().unwrap();
        let endless = read_given(Path::new("/dev/zero"), 5).unwrap_err().to_string();
        assert_eq!(endless, "it has more than 5 bytes");
    }
}
