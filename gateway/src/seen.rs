//! What tells a file from another one in its place, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A file as it was when it was looked at; none if it was not there. Kubernetes and `rename` put another file in its place,
/// whose length and times may be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(Option<Is>);

/// Device, file and length, and when it and its rights were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Is {
    device: u64,
    file: u64,
    bytes: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Seen {
    /// Looks at a file.
    pub fn of(path: &Path) -> Self {
        Self(fs::metadata(path).ok().map(|file| Is {
            device: file.dev(),
            file: file.ino(),
            bytes: file.len(),
            written: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }))
    }

    /// Whether it was there.
    pub fn is_there(self) -> bool {
        self.0.is_some()
    }
}
