//! `fence job checkpoint`: what a run saves for the one that goes on from it. A run that is over cannot save any more.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use fencegate_client::jobs::{Slot, checkpoint_key};

use crate::app::App;
use crate::data::put::body_of;
use crate::failure::{Failure, usage};
use crate::files;
use crate::under::Under;

/// Save or read.
#[derive(Debug, Subcommand)]
pub enum CheckpointCommand {
    /// Save a file, or standard input, in the place of what was saved before
    Save(Save),
    /// Print what was saved, by this run or the one it goes on from; exit code 3 if there is nothing
    Load(Load),
}

/// What to save.
#[derive(Debug, Args)]
pub struct Save {
    /// The file; by default standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Where to put what is read.
#[derive(Debug, Args)]
pub struct Load {
    /// The file; by default standard output
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Where the checkpoint of this run is.
fn place() -> Result<(String, String), Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let both = (variable("FENCE_RESOURCE"), variable("FENCE_SLOT"), variable("FENCE_JOB"));
    let (Some(resource), Some(slot), Some(_)) = both else {
        return Err(usage(
            "a checkpoint is of a run: call this within the command of `fence job run`",
        ));
    };
    Ok((resource, checkpoint_key(&Slot::of_record(&slot)?)))
}

impl CheckpointCommand {
    /// Does it.
    ///
    /// # Errors
    /// This is no run, it has lost its lock, there is no checkpoint, or it cannot be written.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let (resource, key) = place()?;
        match self {
            Self::Save(save) => {
                let file = save.file.as_deref().filter(|path| *path != Path::new("-"));
                let body = body_of(file).await?;
                let guard =
                    Under::of_environment().guard(&app.client, vec![resource.clone()]).await?;
                guard.on(&resource).put(&key, body).await?;
                guard.end().await;
            }
            Self::Load(load) => {
                let found = app.client.get(&resource, &key).limit(u64::MAX).await?;
                match load.file.as_deref().filter(|path| *path != Path::new("-")) {
                    Some(path) => files::replace(path, &found.bytes, None)?,
                    None => {
                        let mut out = std::io::stdout().lock();
                        let written = out.write_all(&found.bytes).and_then(|()| out.flush());
                        written.map_err(Failure::of_output)?;
                    }
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
