//! A disk that fails a sync, and at a power cut forgets what it did not sync then: a library that stands
//! between a gateway and the system. What it does is said in `failing_disk.c`.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::gateway::{Gateway, Settings};

/// The file of the ledger.
pub const LEDGER: &str = "ledger.sqlite";
/// The log of the ledger.
pub const LOG: &str = "ledger.sqlite-wal";

const PAGE: u64 = 4096;

/// The disk of one gateway.
#[derive(Debug)]
pub struct FailingDisk {
    home: TempDir,
}

impl FailingDisk {
    /// Compiles the library.
    pub fn new() -> Self {
        let home = TempDir::with_prefix("fence-disk-").expect("a directory");
        fs::create_dir(home.path().join("lost")).expect("a directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/failing_disk.c");
        let compiled = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(home.path().join("disk.so"))
            .arg(source)
            .args(["-ldl", "-lpthread"])
            .output()
            .expect("cc is not installed: install the package gcc");
        let told = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "the disk does not compile:\n{told}");
        Self { home }
    }

    /// The settings of a gateway that is to run on it.
    pub fn under(&self, settings: Settings) -> Settings {
        let path = |path: PathBuf| path.to_str().expect("a path in UTF-8").to_owned();
        settings
            .env("LD_PRELOAD", &path(self.home.path().join("disk.so")))
            .env("FENCE_TEST_DISK", &path(self.home.path().to_owned()))
    }

    /// Lets the `nth` sync of a file from now fail.
    pub fn fail_sync(&self, file: &str, nth: u32) {
        // Under another name first: it is read at any moment.
        let (new, arm) = (self.home.path().join("arm.new"), self.home.path().join("arm"));
        fs::write(&new, format!("{file} {nth}")).expect("written");
        fs::rename(new, arm).expect("renamed");
    }

    /// Kills the process when it is about to truncate a file.
    pub fn cut_at_truncation_of(&self, file: &str) {
        fs::write(self.home.path().join("cut"), file).expect("written");
    }

    /// How many pages are read as they were written, and are not on the disk.
    pub fn unsynced(&self) -> usize {
        fs::read_dir(self.home.path().join("lost")).expect("a directory").count()
    }

    /// What a power cut leaves of the files of a gateway that was killed: pages that a sync failed for and
    /// that were not written since are what the disk had.
    pub fn lose_unsynced(&self, gateway: &Gateway) {
        for entry in fs::read_dir(self.home.path().join("lost")).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let (file, page) = name.rsplit_once('.').expect("a file and a page");
            let at = page.parse::<u64>().expect("a number") * PAGE;
            let file = OpenOptions::new().write(true).open(gateway.data_dir().join(file));
            let had = fs::read(&path).expect("what the disk had");
            fs::remove_file(&path).expect("removed");
            let Ok(file) = file else { continue };
            let length = file.metadata().expect("it has a size").len();
            let within = usize::try_from(length.saturating_sub(at)).expect("a size");
            file.write_all_at(&had[..within.min(had.len())], at).expect("written");
        }
    }
}

impl Default for FailingDisk {
    fn default() -> Self {
        Self::new()
    }
}
