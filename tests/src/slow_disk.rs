//! A disk whose syncs take as long as is wanted: a library that stands between a program and the system. What it
//! does is said in `slow_disk.c`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

/// The disk of some programs. As fast as it is until it is slowed down.
#[derive(Debug)]
pub struct SlowDisk {
    home: TempDir,
}

impl SlowDisk {
    /// Compiles the library.
    pub fn new() -> Self {
        let home = TempDir::with_prefix("fence-slow-disk-").expect("a directory");
        // Postgres runs as a user of its own.
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).expect("permissions");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/slow_disk.c");
        let compiled = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(home.path().join("disk.so"))
            .arg(source)
            .arg("-ldl")
            .output()
            .expect("cc is not installed: install the package gcc");
        let told = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "the disk does not compile:\n{told}");
        Self { home }
    }

    /// The environment of a program that is to run on it.
    pub fn env(&self) -> [(&'static str, String); 2] {
        let path = |path: PathBuf| path.to_str().expect("a path in UTF-8").to_owned();
        [
            ("LD_PRELOAD", path(self.home.path().join("disk.so"))),
            ("FENCE_TEST_SYNC_MS", path(self.said())),
        ]
    }

    /// From now on each sync takes so much longer.
    pub fn slow_down(&self, sync: Duration) {
        // Under another name first: it is read at any moment.
        let new = self.home.path().join("ms.new");
        fs::write(&new, sync.as_millis().to_string()).expect("written");
        fs::rename(new, self.said()).expect("renamed");
    }

    fn said(&self) -> PathBuf {
        self.home.path().join("ms")
    }
}

impl Default for SlowDisk {
    fn default() -> Self {
        Self::new()
    }
}
