//! `fence job ls`, `runs`, `show` and `logs`: how jobs are doing, and what they did.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use fencegate_client::jobs::{JobName, JobStatus, JobView, Run};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::there;
use crate::app::App;
use crate::durations;
use crate::failure::{Failure, usage};
use crate::output::{Column, column, or_dash, time, wide};

/// So many bytes of a log are shown with the run, the last of them.
const SHOWN_BYTES: usize = 64 << 10;
/// So many runs are looked through for those that are wanted.
const RUNS_MAX: usize = 10_000;

/// A job as a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The job.
    pub job: String,
    /// How it is doing, in one word.
    pub status: String,
    /// Whether it has missed its time.
    pub is_overdue: bool,
    /// Whether a run takes longer than it may.
    pub is_stuck: bool,
    /// The slot that was begun last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_slot: Option<String>,
    /// When the last success ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_at: Option<Timestamp>,
    /// How long the last run took, or how long this one has been taking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// When the next slot begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_slot_at: Option<Timestamp>,
    /// How many runs have failed since the last success.
    pub failures_in_row: u32,
    /// Who runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How many parts it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// Of how many of them the last slot is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts_done: Option<u32>,
}

impl Row {
    /// A job, or one part of it.
    pub fn of(view: &JobView) -> Self {
        let state = &view.state;
        let running = state.running.as_ref();
        Self {
            job: view.name.to_string(),
            status: view.status().as_str().to_owned(),
            is_overdue: view.is_overdue(),
            is_stuck: view.is_stuck(),
            last_slot: state
                .last_slot
                .as_ref()
                .or(state.last.as_ref().map(|it| &it.slot))
                .map(ToString::to_string),
            last_success_at: state.last_success.as_ref().and_then(|it| it.finished_at),
            duration_ms: view.running_ms().or(state.last.as_ref().and_then(|it| it.duration_ms)),
            next_slot_at: state.next_slot_at(),
            failures_in_row: state.failures_in_row,
            owner: running.map(|run| run.owner.clone()),
            parts: None,
            parts_done: None,
        }
    }

    /// A job whose parts these are: the worst of them counts, and the newest slot.
    fn of_parts(name: &str, parts: &[Self]) -> Self {
        let worst = ["lost", "timed_out", "failed", "abandoned", "running"];
        let rank =
            |row: &&Self| worst.iter().position(|it| *it == row.status).unwrap_or(worst.len());
        let status = parts.iter().min_by_key(rank).map_or("never", |row| row.status.as_str());
        let slot = parts.iter().filter_map(|row| row.last_slot.clone()).max();
        let done = parts.iter().filter(|row| row.status == "succeeded" && row.last_slot == slot);
        let count = parts.first().and_then(|row| row.parts);
        Self {
            job: name.to_owned(),
            status: status.to_owned(),
            is_overdue: parts.iter().any(|row| row.is_overdue),
            is_stuck: parts.iter().any(|row| row.is_stuck),
            parts_done: u32::try_from(done.count()).ok(),
            last_slot: slot,
            last_success_at: parts.iter().map(|row| row.last_success_at).min().flatten(),
            duration_ms: parts.iter().filter_map(|row| row.duration_ms).max(),
            next_slot_at: parts.iter().filter_map(|row| row.next_slot_at).min(),
            failures_in_row: parts.iter().map(|row| row.failures_in_row).max().unwrap_or(0),
            owner: None,
            parts: count,
        }
    }

    /// All that is wrong with it, in words.
    fn shown_status(&self) -> String {
        let mut words = self.status.clone();
        if self.is_overdue {
            words.push_str(", overdue");
        }
        if self.is_stuck {
            words.push_str(", stuck");
        }
        match (self.parts, self.parts_done) {
            (Some(parts), Some(done)) => format!("{words} ({done} of {parts})"),
            _ => words,
        }
    }
}

const COLUMNS: &[Column<Row>] = &[
    column("NAME", |it| it.job.clone()),
    column("STATUS", Row::shown_status),
    column("LAST-SLOT", |it| or_dash(it.last_slot.clone())),
    column("LAST-SUCCESS", |it| or_dash(it.last_success_at.map(time))),
    column("DURATION", |it| or_dash(it.duration_ms.map(shown))),
    column("NEXT-DUE", |it| or_dash(it.next_slot_at.map(time))),
    column("FAILS", |it| it.failures_in_row.to_string()),
    column("OWNER", |it| or_dash(it.owner.clone())),
];

fn shown(ms: u64) -> String {
    durations::show(Duration::from_millis(ms))
}

/// Which jobs to list.
#[derive(Debug, Args)]
pub struct Ls {
    /// Only those whose names begin with this
    #[arg(value_name = "PREFIX", default_value = "")]
    prefix: String,
    /// Each part of a job by itself
    #[arg(long)]
    parts: bool,
}

impl Ls {
    /// Lists them.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let views: Vec<JobView> = app.client.jobs(&self.prefix).try_collect().await?;
        let name = |it: &Row| it.job.clone();
        let rows = if self.parts { views.iter().map(Row::of).collect() } else { summed(&views) };
        app.out.items(rows, name, COLUMNS)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A row for each job, in the order of their names.
pub fn summed(views: &[JobView]) -> Vec<Row> {
    let mut jobs: BTreeMap<(String, Option<u32>), Vec<Row>> = BTreeMap::new();
    for view in views {
        let part = view.name.which();
        let row = Row { parts: part.map(|part| part.count), ..Row::of(view) };
        let count = part.map(|part| part.count);
        jobs.entry((view.name.name().to_owned(), count)).or_default().push(row);
    }
    let row = |((name, parts), rows): ((String, Option<u32>), Vec<Row>)| match parts {
        Some(_) => vec![Row::of_parts(&name, &rows)],
        None => rows,
    };
    jobs.into_iter().flat_map(row).collect()
}

const RUN_COLUMNS: &[Column<Run>] = &[
    column("RUN", Run::stem),
    column("STATUS", |it| it.status.as_str().to_owned()),
    column("STARTED", |it| time(it.started_at)),
    column("DURATION", |it| or_dash(it.duration_ms.map(shown))),
    column("EXIT", exit),
    column("TRIGGER", |it| it.trigger.as_str().to_owned()),
    column("OWNER", |it| it.owner.clone()),
    column("REASON", |it| or_dash(it.reason.clone())),
    wide("HOST", |it| or_dash(it.host.clone())),
    wide("TOKEN", |it| or_dash(it.fence.clone())),
    wide("ID", |it| it.run.to_string()),
];

fn exit(run: &Run) -> String {
    match (run.exit, run.signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "-".to_owned(),
    }
}

/// Which runs to list.
#[derive(Debug, Args)]
pub struct Runs {
    /// The job, or one part of it as NAME@07.16
    #[arg(value_name = "NAME")]
    name: String,
    /// Only those that ended so, such as `failed`
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only those that began within so long
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    since: Option<Duration>,
    /// At most so many, the newest
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
}

impl Runs {
    /// Lists them, newest first.
    ///
    /// # Errors
    /// There is no such job, or the gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let name = there(app, &self.name).await?;
        let known =
            ["started", "succeeded", "failed", "cancelled", "timed_out", "abandoned", "skipped"];
        if let Some(status) = self.status.as_deref().filter(|status| !known.contains(status)) {
            return Err(usage(format!(
                "no run ends as {status:?}: it is one of {}",
                known.join(", ")
            )));
        }
        let is_filtered = self.status.is_some() || self.since.is_some();
        let most = if is_filtered { RUNS_MAX } else { self.limit };
        let runs = app.client.job_runs(&name, most).await?;
        let from = self.since.map(|since| Timestamp::now() - since);
        let is_wanted = |run: &Run| {
            self.status.as_deref().is_none_or(|status| run.status.as_str() == status)
                && from.is_none_or(|from| run.started_at >= from)
        };
        let runs = runs.into_iter().filter(is_wanted).take(self.limit);
        app.out.items(runs, Run::stem, RUN_COLUMNS)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Which run to show.
#[derive(Debug, Args)]
pub struct Show {
    /// The job, or one part of it as NAME@07.16
    #[arg(value_name = "NAME")]
    name: String,
    /// The run: SLOT.ATTEMPT, SLOT, or its id; by default the last
    #[arg(value_name = "RUN")]
    run: Option<String>,
}

impl Show {
    /// Shows it.
    ///
    /// # Errors
    /// There is no such run.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let name = there(app, &self.name).await?;
        let run = app.client.job_run(&name, self.run.as_deref()).await?;
        if app.out.is_json() {
            app.out.one(&run, &run.stem(), "")?;
            return Ok(ExitCode::SUCCESS);
        }
        let line = |title: &str, text: String| app.out.line(&format!("{title:11} {text}"));
        line("run", format!("{} ({})", run.stem(), run.run))?;
        line("status", status_of(app, &name, &run).await?)?;
        line("trigger", run.trigger.as_str().to_owned())?;
        line(
            "owner",
            format!("{}, process {} on {}", run.owner, or_dash(run.pid), or_dash(run.host.clone())),
        )?;
        line("program", or_dash(run.program.clone()))?;
        line("started", time(run.started_at))?;
        line("finished", or_dash(run.finished_at.map(time)))?;
        line("took", or_dash(run.duration_ms.map(shown)))?;
        line("exit", exit(&run))?;
        line("token", or_dash(run.fence.clone()))?;
        if let Some(reason) = &run.reason {
            line("reason", reason.clone())?;
        }
        if let Some(before) = &run.resumed_from {
            line("resumed", format!("from the checkpoint of {before}"))?;
        }
        if let Some(output) = &run.output {
            let part = if output.truncated { ", of which the last are kept" } else { "" };
            line("output", format!("{} bytes{part}", output.bytes))?;
        }
        if let Some(log) =
            app.client.get(&name.resource(), &run.log_object()).limit(u64::MAX).optional().await?
        {
            app.out.line("")?;
            let from = log.bytes.len().saturating_sub(SHOWN_BYTES);
            print(log.bytes.get(from..).unwrap_or_default())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A run that has begun is running, or lost.
async fn status_of(app: &App, name: &JobName, run: &Run) -> Result<String, Failure> {
    let view = app.client.job_view(name).await?;
    let of_now =
        view.filter(|view| view.state.running.as_ref().is_some_and(|it| it.run == run.run));
    let cut = match &of_now {
        Some(view) => super::cut_of(app, view).await?,
        None => None,
    };
    Ok(match of_now.map(|view| view.status()) {
        Some(JobStatus::Running) => "running".to_owned(),
        Some(JobStatus::Lost) => {
            let how = cut.map_or("its lock has ended".to_owned(), |cut| cut.to_string());
            format!("lost: {how}, and nobody knows what became of it")
        }
        _ => run.status.as_str().to_owned(),
    })
}

/// Of which run to print the output.
#[derive(Debug, Args)]
pub struct Logs {
    /// The job, or one part of it as NAME@07.16
    #[arg(value_name = "NAME")]
    name: String,
    /// The run: SLOT.ATTEMPT, SLOT, or its id; by default the last
    #[arg(value_name = "RUN")]
    run: Option<String>,
}

impl Logs {
    /// Prints it.
    ///
    /// # Errors
    /// There is no such run, or nothing is kept of its output.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let name = there(app, &self.name).await?;
        let run = app.client.job_run(&name, self.run.as_deref()).await?;
        match app.client.get(&name.resource(), &run.log_object()).limit(u64::MAX).optional().await?
        {
            Some(log) => print(&log.bytes)?,
            None if run.finished_at.is_none() => {
                let host = or_dash(run.host.clone());
                return Err(usage(format!(
                    "run {} has not ended: its output is kept once it has. It is process {} on {host}",
                    run.stem(),
                    or_dash(run.pid)
                )));
            }
            None => app.out.say(&format!("nothing is kept of the output of run {}", run.stem())),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let end = if bytes.is_empty() || bytes.ends_with(b"\n") { "" } else { "\n" };
    let written = out.write_all(bytes).and_then(|()| out.write_all(end.as_bytes()));
    written.and_then(|()| out.flush()).map_err(Failure::of_output)
}
