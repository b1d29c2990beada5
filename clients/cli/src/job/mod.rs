//! `fence job`: commands that are run once for each slot of a schedule, on one of many hosts.

mod agent;
mod check;
mod checkpoint;
mod children;
mod exporter;
mod look;
mod operate;
mod options;
mod run;
mod shards;

use std::process::ExitCode;

use clap::Subcommand;
use fencegate_client::Error;
use fencegate_client::jobs::{Cut, JobName, JobStatus, JobView};

use self::agent::{Agent, Start};
use self::check::Check;
use self::checkpoint::CheckpointCommand;
use self::exporter::Exporter;
use self::look::{Logs, Ls, Runs, Show};
use self::operate::{BreakRun, Forget, Prune};
use self::options::JobRunOptions;
use crate::app::{App, with_app};
use crate::contact::Patience;
use crate::failure::{Failure, usage};
use crate::options::Common;
use crate::run::init;

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Run a command for its slot, unless that is done
    Run(Box<JobRunOptions>),
    /// Save what a later run needs to go on, or read it; within the command of a run
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),

    /// List jobs, and how they are doing
    Ls(Ls),
    /// List the runs of a job
    Runs(Runs),
    /// Show a run, and the last of its output
    Show(Show),
    /// Print the output of a run that is kept
    Logs(Logs),
    /// Say whether jobs are well, as Nagios wants it: exit code 0, 1, 2 or 3
    Check(Check),
    /// Tell Prometheus how jobs are doing
    Exporter(Exporter),

    /// End the run that is under way
    Break(BreakRun),
    /// Forget old runs
    Prune(Prune),
    /// Forget a job, with all that is recorded of it
    Forget(Forget),

    /// Wait for requests for runs, and run them
    Agent(Agent),
    /// Ask for a run
    Start(Start),
}

impl JobCommand {
    /// Does it.
    pub fn run(&self, common: &Common) -> ExitCode {
        match self {
            Self::Run(it) => return init::under(|| run::run(common, it)),
            Self::Agent(it) => return init::under(|| it.run(common)),
            // An alarm has codes of its own.
            Self::Check(it) => return it.run(common),
            _ => {}
        }
        let patience = match self {
            Self::Exporter(it) => it.patience(),
            _ => Patience::Short,
        };
        with_app(common, patience, async |app| match self {
            Self::Checkpoint(it) => it.run(app).await,
            Self::Ls(it) => it.run(app).await,
            Self::Runs(it) => it.run(app).await,
            Self::Show(it) => it.run(app).await,
            Self::Logs(it) => it.run(app).await,
            Self::Exporter(it) => it.run(app).await,
            Self::Break(it) => it.run(app).await,
            Self::Prune(it) => it.run(app).await,
            Self::Forget(it) => it.run(app).await,
            Self::Start(it) => it.run(app).await,
            Self::Run(_) | Self::Agent(_) | Self::Check(_) => Ok(ExitCode::SUCCESS),
        })
    }
}

/// A job, or with `name@07.16` one part of it.
fn named(text: &str) -> Result<JobName, Failure> {
    let Some((name, part)) = text.split_once('@') else { return Ok(JobName::new(text)?) };
    let part = part
        .split_once('.')
        .and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    let (index, count) =
        part.ok_or_else(|| usage(format!("{text:?} is no job: a part is NAME@07.16")))?;
    Ok(JobName::new(name)?.part(index, count)?)
}

/// The same, of one that is there. A job in parts has records in its parts alone.
async fn there(app: &App, text: &str) -> Result<JobName, Failure> {
    let name = named(text)?;
    if name.which().is_some() {
        return Ok(name);
    }
    match app.client.resource(&name.resource()).await {
        Err(Error::NotFound(_)) => {}
        found => return found.map(|_| name).map_err(Failure::from),
    }
    let parts = app.client.resources().prefix(&format!("{}@", name.resource())).page(None).await?;
    match parts.items.iter().find_map(|it| JobName::of_resource(it.resource.as_str())) {
        Some(part) => Err(usage(format!("{text} is in parts: say which, such as {part}"))),
        None => Ok(name),
    }
}

/// Finds the end of a lost run's lock in the audit, as far as it is there.
async fn cut_of(app: &App, view: &JobView) -> Result<Option<Cut>, Failure> {
    match (&view.state.running, &view.resource) {
        (Some(run), Some(resource)) if view.status() == JobStatus::Lost => {
            Ok(app.client.job_cut(run, resource).await?)
        }
        _ => Ok(None),
    }
}
