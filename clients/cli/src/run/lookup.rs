//! Finds the program of a command before anybody stands in line for it, as env(1) does.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The exit code for a program that cannot be run: 127 if it is not there, 126 otherwise.
pub fn code_of(error: &Error) -> u8 {
    if error.kind() == ErrorKind::NotFound { 127 } else { 126 }
}

/// Where the program of that name is.
///
/// # Errors
/// It is not there, or may not be run.
pub fn find(name: &OsStr) -> Result<PathBuf, Error> {
    if name.as_bytes().contains(&b'/') {
        return runnable(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut best = Error::from(ErrorKind::NotFound);
    for folder in std::env::split_paths(&path) {
        match runnable(&folder.join(name)) {
            Ok(found) => return Ok(found),
            // One that may not be run says more than those that are not there.
            Err(error) if error.kind() != ErrorKind::NotFound => best = error,
            Err(_) => {}
        }
    }
    Err(best)
}

fn runnable(path: &Path) -> Result<PathBuf, Error> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    access(path, Access::EXEC_OK)?;
    Ok(path.to_owned())
}
