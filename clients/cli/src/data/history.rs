//! `fence log` and `diff`: what was written before.

use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;
use fencegate_client::wire::json::Version;

use crate::app::App;
use crate::failure::Failure;
use crate::output::{Column, bytes, column, or_dash, time, wide};

const VERSIONS: &[Column<Version>] = &[
    column("VERSION", |it| it.version.to_string()),
    column("AT", |it| time(it.committed_at)),
    column("KIND", |it| it.kind.clone()),
    column("KEY", |it| or_dash(it.key.clone())),
    column("SIZE", |it| or_dash(it.size.map(bytes))),
    column("OWNER", |it| it.owner.clone()),
    wide("OPERATION", |it| it.operation.to_string()),
];

/// Whose history.
#[derive(Debug, Args)]
pub struct Log {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// Only objects whose keys begin with this
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// At most so many, the newest
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

impl Log {
    /// Lists the writes, newest first.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let mut list = app.client.versions(&self.resource);
        if let Some(key) = &self.key {
            list = list.prefix(key);
        }
        app.out.list(list, self.limit, |it| it.version.to_string(), VERSIONS).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What to compare.
#[derive(Debug, Args)]
pub struct Diff {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// The object's key
    #[arg(value_name = "KEY")]
    key: String,
    /// The version of the resource to begin with
    #[arg(value_name = "VERSION")]
    from: i64,
    /// The version to compare it with; by default the object as it is now
    #[arg(value_name = "VERSION")]
    to: Option<i64>,
}

impl Diff {
    /// Shows what has changed, as diff(1) does: exit code 0 if nothing has, 1 if something has.
    ///
    /// # Errors
    /// A version is not kept, or diff(1) is not there.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let mut command = Command::new("diff");
        command.arg("-u");
        for (at, version) in [Some(self.from), self.to].into_iter().enumerate() {
            let get = app.client.get(&self.resource, &self.key);
            let object = match version {
                Some(version) => get.version(version).await?,
                None => get.await?,
            };
            let shown = version.map_or_else(|| "now".to_owned(), |it| it.to_string());
            let path = folder.path().join(at.to_string());
            std::fs::write(&path, &object.bytes).context("cannot write a version")?;
            command.arg(format!("--label={} @ {shown}", self.key)).arg(path);
        }
        let status = command.status().context("cannot start diff(1)")?;
        Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
    }
}
