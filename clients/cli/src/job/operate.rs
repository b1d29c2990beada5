//! `fence job break`, `prune` and `forget`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use fencegate_client::Wait;
use fencegate_client::jobs::{Forget as Which, is_held};

use super::there;
use crate::app::App;
use crate::durations;
use crate::failure::{Failure, usage};
use crate::operators::HowToBreak;
use crate::terminal::confirm;

/// How long the lock of a job is waited for.
const WAIT: Duration = Duration::from_secs(10);

/// Which run to end.
#[derive(Debug, Args)]
pub struct BreakRun {
    /// The job, or one part of it as NAME@07.16
    #[arg(value_name = "NAME")]
    name: String,
    /// Why, and when.
    #[command(flatten)]
    how: HowToBreak,
}

impl BreakRun {
    /// Breaks its lock.
    ///
    /// # Errors
    /// Nobody runs it, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let name = there(app, &self.name).await?;
        let view = app.client.job_view(&name).await?;
        let run = view.and_then(|view| view.state.running);
        let resource = app.client.resource(&name.resource()).await?;
        if !is_held(&resource) {
            return Err(usage(format!("nobody runs {}", self.name)));
        }
        let (after, when) = self.how.after(&resource)?;
        let what = match &run {
            Some(run) => format!("run {} of {}", run.stem(), run.owner),
            None => format!("the lock of {}", resource.owner),
        };
        confirm(
            &format!(
                "Break {what} {when}? Its next write is refused then; its process ends by itself if `fence job run` started it."
            ),
            self.how.yes,
        )?;
        let (resource, word) = self.how.carry_out(app, &name.resource(), after).await?;
        app.out.one(&resource, &self.name, &format!("{what} {word}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Which runs to forget.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Amount {
    /// Of how many runs the records are kept
    #[arg(long, value_name = "COUNT")]
    keep: Option<u32>,
    /// Those whose slot is older than this
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    older_than: Option<Duration>,
}

/// Of which job.
#[derive(Debug, Args)]
pub struct Prune {
    /// The job, or one part of it as NAME@07.16
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    amount: Amount,
}

impl Prune {
    /// Forgets them, under the lock of the job.
    ///
    /// # Errors
    /// The job is running, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let name = there(app, &self.name).await?;
        let which = match (self.amount.keep, self.amount.older_than) {
            (Some(0), _) => {
                return Err(usage("one run is kept at least; `fence job forget` forgets the job"));
            }
            (Some(keep), _) => Which::AllBut(keep),
            (None, Some(age)) => Which::Before(app.client.gateway_time().await? - age),
            (None, None) => return Err(usage("say how many, with --keep or --older-than")),
        };
        let runs = app.client.forget_runs(&name, which, Wait::UpTo(WAIT)).await?;
        let text = if runs == 1 {
            "1 run is forgotten".to_owned()
        } else {
            format!("{runs} runs are forgotten")
        };
        app.out.one(
            &serde_json::json!({"job": self.name, "forgotten": runs}),
            &self.name,
            &text,
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Which job to forget.
#[derive(Debug, Args)]
pub struct Forget {
    /// The job, or one part of it as NAME@07.16
    #[arg(value_name = "NAME")]
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

impl Forget {
    /// Removes all that is recorded of it, under its lock: its slots count as not done afterwards.
    ///
    /// # Errors
    /// The job is running, there is none, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let name = there(app, &self.name).await?;
        let question =
            format!("Forget {} with all of its runs? Its slots count as not done then.", self.name);
        confirm(&question, self.yes)?;
        let lock = app.client.lock(name.resource()).only_if_exists().wait(Wait::UpTo(WAIT));
        lock.run(async |lock| lock.delete_all().await.map(drop)).await?;
        app.out.one(
            &serde_json::json!({"job": self.name}),
            &self.name,
            &format!("{} is forgotten", self.name),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
