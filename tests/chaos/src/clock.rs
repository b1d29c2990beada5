//! Wall clocks of programs, set by libfaketime. What they measure by stays right: only the wall clock jumps.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use tempfile::TempDir;

/// The time after which a process sees that its clock was set.
pub const READ_AGAIN: Duration = Duration::from_millis(2200);
/// Magnitudes of jumps: a minute, an hour, a year.
const MAGNITUDES_S: [i64; 3] = [60, 3600, 365 * 24 * 3600];

/// The library that shifts the wall clock of a program, if it is installed.
pub fn shifter() -> Option<PathBuf> {
    let libraries = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    libraries
        .map(|directory| directory.join("faketime/libfaketime.so.1"))
        .find(|library| library.exists())
}

/// A jump, ahead or behind, in seconds.
pub fn jump_s(rng: &mut StdRng) -> i64 {
    let most = MAGNITUDES_S.choose(rng).copied().unwrap_or(MAGNITUDES_S[0]);
    let off = rng.random_range(most / 2..=most);
    if rng.random_bool(0.5) { off } else { -off }
}

/// The wall clock of some programs. Right until it is set.
#[derive(Debug)]
pub struct WallClock {
    home: TempDir,
}

impl WallClock {
    /// A clock that is right.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn new() -> Result<Self> {
        let home = TempDir::with_prefix("fence-clock-")?;
        // Postgres runs as a user of its own.
        fs::set_permissions(home.path(), Permissions::from_mode(0o755))?;
        let this = Self { home };
        this.set(0)?;
        Ok(this)
    }

    /// The environment of a program that goes by it, beside the libraries that it loads already; none where the library
    /// is missing.
    pub fn env(&self, loaded: Option<&str>) -> Vec<(&'static str, String)> {
        let Some(library) = shifter() else {
            return loaded.map(|loaded| ("LD_PRELOAD", loaded.to_owned())).into_iter().collect();
        };
        let own = library.to_string_lossy().into_owned();
        let all = loaded.map_or_else(|| own.clone(), |loaded| format!("{loaded}:{own}"));
        vec![
            ("LD_PRELOAD", all),
            ("FAKETIME_TIMESTAMP_FILE", self.file().to_string_lossy().into_owned()),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    /// Sets it ahead, or behind, by so many seconds.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn set(&self, ahead_s: i64) -> Result<()> {
        // Under another name first: it is read at any moment.
        let new = self.home.path().join("ahead.new");
        fs::write(&new, format!("{ahead_s:+}\n")).context("a wall clock")?;
        fs::rename(new, self.file()).context("a wall clock")
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("ahead")
    }
}
