//! `fence get`: reads an object.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::Args;
use fencegate_client::reading::Download;
use futures::TryStreamExt as _;
use serde_json::json;

use crate::app::App;
use crate::failure::{Failure, usage};
use crate::output::bytes;
use crate::progress::Progress;

/// What to read.
#[derive(Debug, Args)]
pub struct Get {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// The object's key
    #[arg(value_name = "KEY")]
    key: String,
    /// Where to store it, whole or not at all; by default, and as `-`, standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// As it was at this version of the resource
    #[arg(long, value_name = "VERSION")]
    at: Option<i64>,
    /// Only these bytes, counted from 0: `0-99` the first hundred, `100-` all from there on
    #[arg(long, value_name = "FIRST-LAST", value_parser = range, conflicts_with = "out")]
    range: Option<Range>,
    /// Only if its tag is not this one any more; if it still is, nothing is written, and the exit code is 0
    #[arg(long, value_name = "ETAG")]
    if_none_match: Option<String>,
    /// Say what it is, without its bytes
    #[arg(long, conflicts_with_all = ["out", "range", "if_none_match"])]
    head: bool,
}

/// From here, up to and with there.
type Range = (u64, Option<u64>);

fn range(text: &str) -> Result<Range, String> {
    let read = text.split_once('-').and_then(|(first, last)| {
        let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
        Some((first.parse().ok()?, last))
    });
    let read = read.filter(|(first, last)| last.is_none_or(|last| *first <= last));
    read.ok_or_else(|| "it is not of the form 0-99 or 100-".to_owned())
}

impl Get {
    /// Reads it.
    ///
    /// # Errors
    /// It is not there, or cannot be read or written.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        if self.head {
            return self.look(app).await;
        }
        if let Some(path) = self.out.as_deref().filter(|path| *path != Path::new("-")) {
            return self.store(app, path).await;
        }
        let mut open = app.client.open(&self.resource, &self.key);
        if let Some(version) = self.at {
            open = open.version(version);
        }
        if let Some((first, last)) = self.range {
            open = open.range(first, last);
        }
        let mut reader = match &self.if_none_match {
            Some(tag) => match open.if_changed(tag).await? {
                Some(reader) => reader,
                None => return Ok(self.unchanged(app)),
            },
            None => open.await?,
        };
        let size = reader.head().size;
        let total = self.range.map_or(size, |(first, last)| {
            last.map_or(size, |last| size.min(last + 1)).saturating_sub(first)
        });
        let (progress, mut done) = (Progress::begin(&app.out, &self.key, Some(total)), 0);
        let mut is_first = true;
        while let Some(piece) = reader.try_next().await? {
            if std::mem::take(&mut is_first)
                && std::io::stdout().is_terminal()
                && piece.contains(&0)
            {
                return Err(usage("this is no text: send it somewhere with --out or `>`"));
            }
            done += piece.len() as u64;
            progress.at(done);
            std::io::stdout().write_all(&piece).map_err(Failure::of_output)?;
        }
        progress.end();
        std::io::stdout().flush().map_err(Failure::of_output)?;
        Ok(ExitCode::SUCCESS)
    }

    async fn store(&self, app: &App, path: &Path) -> Result<ExitCode, Failure> {
        let mut download = app.client.download(&self.resource, &self.key, path);
        if let Some(version) = self.at {
            download = download.version(version);
        }
        let download = shown(app, &self.key, download);
        let head = match &self.if_none_match {
            Some(tag) => download.if_changed(tag).await?,
            None => Some(download.await?),
        };
        let Some(head) = head else { return Ok(self.unchanged(app)) };
        let size = bytes(i64::try_from(head.size).unwrap_or(i64::MAX));
        let sha256 = head.sha256.map(|sha256| format!(", sha256 {sha256}")).unwrap_or_default();
        app.out.say(&format!("{}: {size}, tag {}{sha256}", path.display(), head.etag));
        Ok(ExitCode::SUCCESS)
    }

    fn unchanged(&self, app: &App) -> ExitCode {
        app.out.say(&format!("{}/{} has not changed", self.resource, self.key));
        ExitCode::SUCCESS
    }

    async fn look(&self, app: &App) -> Result<ExitCode, Failure> {
        let look = app.client.head(&self.resource, &self.key);
        let head = match self.at {
            Some(version) => look.version(version).await?,
            None => look.await?,
        };
        let document = json!({
            "key": head.key,
            "version": head.version,
            "etag": head.etag,
            "size": head.size,
            "content_type": head.content_type,
            "sha256": head.sha256,
        });
        let version = head.version.unwrap_or_default();
        let text = format!("{} version {version} size {} tag {}", head.key, head.size, head.etag);
        app.out.one(&document, head.key.as_str(), &text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A download that a terminal shows.
pub fn shown(app: &App, name: &str, download: Download) -> Download {
    let (out, name, progress) = (app.out.clone(), name.to_owned(), OnceLock::new());
    download.watched(move |done, total| {
        let progress = progress.get_or_init(|| Progress::begin(&out, &name, Some(total)));
        progress.at(done);
        if done == total {
            progress.end();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_of_two_forms() {
        assert_eq!(
            (range("0-99"), range("7-"), range("5-5")),
            (Ok((0, Some(99))), Ok((7, None)), Ok((5, Some(5))))
        );
        for wrong in ["", "-", "-5", "5", "9-3", "a-b", "1-2-3", "1-2,4-5"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
