//! What tells a file from another one in its place, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A file as it was when it was looked at: device, file, length, and the times of change of it and of its rights; none if
/// it was not there. Kubernetes and `rename` put another file in its place, whose length and times may be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(Option<(u64, u64, u64, [(i64, i64); 2])>);

impl Seen {
    /// Looks at a file.
    pub fn of(path: &Path) -> Self {
        Self(fs::metadata(path).ok().map(|file| {
            let times = [(file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec())];
            (file.dev(), file.ino(), file.len(), times)
        }))
    }

    /// Whether it was there.
    pub fn is_there(self) -> bool {
        self.0.is_some()
    }
}
