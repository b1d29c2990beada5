//! What a drill leaves for Prometheus: a file in the folder that the textfile collector of node_exporter reads.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fence_core::ports::Clock;
use jiff::Timestamp;
use reqwest::Url;
use tokio_util::task::TaskTracker;

use super::Outcome;
use crate::runtime;

/// Who may read the file: the collector runs as a user of its own.
const MODE: u32 = 0o644;

/// The file, and since when there is something to tell in it.
pub struct Textfile {
    path: PathBuf,
    url: String,
    clock: Arc<dyn Clock>,
    began: Duration,
}

impl Textfile {
    /// A drill of this gateway begins now.
    pub fn begin(path: PathBuf, url: &Url) -> Self {
        let clock = runtime::runtime(TaskTracker::new()).clock;
        let mut url = url.clone();
        let _ = url.set_password(None);
        let began = clock.elapsed();
        Self { path, url: url.to_string(), clock, began }
    }

    /// The drill has ended so; a drill that did not begin was not done either.
    ///
    /// # Errors
    /// The file cannot be written; what was there is as it was.
    pub fn write(&self, outcome: Outcome) -> anyhow::Result<()> {
        let took = self.clock.elapsed().saturating_sub(self.began);
        let text = told(outcome, &self.url, self.clock.now(), took);
        replace(&self.path, &text).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// A drill that was not carried out says nothing on the fence: `fencegate_drill_success` is left out then.
fn told(outcome: Outcome, url: &str, ended: Timestamp, took: Duration) -> String {
    let flag = |is_so: bool| Some(if is_so { "1" } else { "0" }.to_owned());
    let held = match outcome {
        Outcome::Held => flag(true),
        Outcome::Failed => flag(false),
        Outcome::NotDone => None,
    };
    let seconds = ended.as_millisecond() as f64 / 1e3;
    let gauges = [
        (
            "success",
            "Whether every step of the last drill came out as it must; missing if it was not carried out",
            held,
        ),
        (
            "carried_out",
            "Whether the last drill could be carried out",
            flag(outcome != Outcome::NotDone),
        ),
        (
            "last_run_timestamp_seconds",
            "When the last drill ended, in seconds since 1970",
            Some(format!("{seconds:.3}")),
        ),
        (
            "duration_seconds",
            "How long the last drill took",
            Some(format!("{:.3}", took.as_secs_f64())),
        ),
    ];
    let mut text = String::new();
    for (name, help, value) in gauges {
        let Some(value) = value else { continue };
        let name = format!("fencegate_drill_{name}");
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "# HELP {name} {help}\n# TYPE {name} gauge\n{name}{{url=\"{}\"}} {value}\n",
            escaped(url)
        );
    }
    text
}

fn escaped(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// The collector sees the old file or the new one, never half of one: it is renamed into its place from the same folder.
/// The collector passes over what does not end in `.prom`.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let temporary =
        path.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = fill(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // It may not be there at all.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn fill(path: &Path, text: &str) -> io::Result<()> {
    let mut file: File =
        OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(path)?;
    file.write_all(text.as_bytes())?;
    // The umask has taken away what the collector needs.
    file.set_permissions(fs::Permissions::from_mode(MODE))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_drill_that_was_carried_out_says_whether_the_fence_holds() {
        for (outcome, success, carried_out) in [
            (Outcome::Held, Some("1"), "1"),
            (Outcome::Failed, Some("0"), "1"),
            (Outcome::NotDone, None, "0"),
        ] {
            let ended = Timestamp::from_millisecond(1_700_000_000_250).unwrap();
            let text = told(outcome, "http://g/", ended, Duration::from_millis(1500));
            let value = |name: &str| {
                let line = format!("fencegate_drill_{name}{{url=\"http://g/\"}} ");
                text.lines().find_map(|it| it.strip_prefix(&line))
            };
            assert_eq!((value("success"), value("carried_out")), (success, Some(carried_out)));
            assert_eq!(value("last_run_timestamp_seconds"), Some("1700000000.250"));
            assert_eq!(value("duration_seconds"), Some("1.500"));
        }
    }

    #[test]
    fn a_label_holds_whatever_a_url_does() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    }
}
