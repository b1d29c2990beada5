//! `fence get`: reads an object.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
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
    /// Say what it is, without its bytes
    #[arg(long, conflicts_with = "out")]
    head: bool,
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
            if self.at.is_some() {
                return Err(usage("--at goes to standard output: leave out --out"));
            }
            let head = app.client.download(&self.resource, &self.key, path).await?;
            let size = bytes(i64::try_from(head.size).unwrap_or(i64::MAX));
            app.out.say(&format!("{}: {size}, tag {}", path.display(), head.etag));
            return Ok(ExitCode::SUCCESS);
        }
        let open = app.client.open(&self.resource, &self.key);
        let mut reader = match self.at {
            Some(version) => open.version(version).await?,
            None => open.await?,
        };
        let mut progress = Progress::begin(&app.out, &self.key, Some(reader.head().size));
        let mut is_first = true;
        while let Some(piece) = reader.try_next().await? {
            if std::mem::take(&mut is_first)
                && std::io::stdout().is_terminal()
                && piece.contains(&0)
            {
                return Err(usage("this is no text: send it somewhere with --out or `>`"));
            }
            progress.add(piece.len() as u64);
            std::io::stdout().write_all(&piece).map_err(Failure::of_output)?;
        }
        std::io::stdout().flush().map_err(Failure::of_output)?;
        Ok(ExitCode::SUCCESS)
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
