//! A disk of limited size that can be filled up: a file system in memory, mounted where only the programs
//! that are started on it see it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Home, eventually, find_program};

/// Mounts the file system, says so by a file on it, and keeps it until its process ends.
const KEEP: &str = r#"
mount -t tmpfs -o "size=$1,mode=0777" fence-tests "$0" && : >"$0/.mounted" && exec sleep infinity
"#;

/// A disk. It is gone when this is dropped and nothing runs on it any more, or with the test process.
#[derive(Debug)]
pub struct Disk {
    home: Home,
}

impl Disk {
    /// Whether this process may mount one.
    pub fn is_available() -> bool {
        is_root() && find_program("unshare", &[]).is_some() && {
            let probe = Command::new("unshare")
                .args(["--mount", "sh", "-c", "mount -t tmpfs none /mnt"])
                .output();
            probe.is_ok_and(|probe| probe.status.success())
        }
    }

    /// An empty one of so many MiB.
    pub async fn new(size_mib: u64) -> Self {
        let unshare = find_program("unshare", &[])
            .expect("unshare is not installed: install the package util-linux");
        let mut home = Home::new("disk");
        let at = home.path().join("disk");
        fs::create_dir(&at).expect("a directory");
        home.spawn(&unshare, |command| {
            command.args(["--mount", "sh", "-c", KEEP]).arg(&at).arg(format!("{size_mib}m"));
        });
        let disk = Self { home };
        eventually("the disk is mounted", async || {
            disk.seen_from_outside(".mounted").exists().then_some(())
        })
        .await;
        disk
    }

    /// Where the programs that are started on it find it.
    pub fn path(&self) -> PathBuf {
        self.home.path().join("disk")
    }

    /// A command that runs a program where the disk is seen.
    pub fn command(&self, program: &Path) -> Command {
        let nsenter = find_program("nsenter", &[])
            .expect("nsenter is not installed: install the package util-linux");
        let mut command = Command::new(nsenter);
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.home.pid())).arg("--").arg(program);
        command
    }

    /// Takes all the space that is left.
    pub fn fill(&self) {
        fill(&self.filler());
    }

    /// Gives back what [`Disk::fill`] took.
    pub fn free(&self) {
        match fs::remove_file(self.filler()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                panic!("the disk cannot be emptied: {error}")
            }
            _ => {}
        }
    }

    fn filler(&self) -> PathBuf {
        self.seen_from_outside("filler")
    }

    fn seen_from_outside(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.home.pid()));
        let inside = self.path();
        root.join(inside.strip_prefix("/").expect("an absolute path")).join(name)
    }
}

/// Takes all the space that is left on the disk of a file that is made.
pub fn fill(filler: &Path) {
    let mut file = File::create(filler).expect("a file");
    let zeros = vec![0; 1 << 20];
    // The last pieces are small: not even a page is left.
    for size in [zeros.len(), 4096] {
        loop {
            match file.write_all(&zeros[..size]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => panic!("the disk cannot be filled: {error}"),
            }
        }
    }
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
