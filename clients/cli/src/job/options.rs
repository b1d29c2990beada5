//! What `fence job run` takes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fencegate_client::jobs::{CatchUp, Job, JobName, OncePolicy, Overlap, Slot};
use fencegate_client::{Client, Error};

use crate::durations;
use crate::failure::{Failure, usage};
use crate::run::options::RunOptions;

/// The most bytes of output that the record of a run itself takes.
pub const TAIL_MAX: u64 = 1 << 20;

/// Which job, how often, and what becomes of runs that meet, fail or are missed.
#[derive(Debug, Args)]
#[command(after_long_help = crate::help::JOB_RUN)]
#[command(
    override_usage = "fence job run NAME [--every D | --slot T] [OPTIONS] -- COMMAND [ARG]...\n       \
    fence job run NAME [--every D | --slot T] [OPTIONS] -c 'SHELL COMMAND'"
)]
pub struct JobRunOptions {
    /// The job: 1 to 200 letters, digits, dots, dashes, _ and ~
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Once in each such interval, counted from 1970 in UTC, such as 1h or 1d; without it, each call is a run
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    pub every: Option<Duration>,
    /// For this slot, and not for that of now: 20261122T020000Z or 2026-11-22T02:00:00Z
    #[arg(long, value_name = "TIME")]
    pub slot: Option<Slot>,
    /// How long after the next slot has begun the job counts as overdue; by default as long as the interval
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    pub overdue_after: Option<Duration>,
    /// How often a slot is tried: until a run is `done`, or, at most once, as soon as one has `claimed` it
    #[arg(long, value_enum, value_name = "POLICY", default_value = "done")]
    pub once_policy: Once,
    /// While another run is under way: `skip` this one, `wait` for the other, or `replace` it, which needs --reason
    #[arg(long, value_enum, value_name = "ACTION", default_value = "skip")]
    pub on_overlap: OnOverlap,
    /// Why another run is replaced: it is told, and the audit keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// How long to wait for the lock, where it is waited for; by default for ever. A plain number is seconds
    #[arg(short, long, value_name = "DURATION", value_parser = durations::parse)]
    pub wait: Option<Duration>,
    /// Slots that were missed: `none` is made up for, and what is later than --overdue-after is skipped; the `last`; or `all`,
    /// oldest first, at most 100
    #[arg(long, value_enum, value_name = "WHICH", default_value = "last")]
    pub catch_up: Missed,
    /// How often a run that failed is followed by another at once
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub retries: u32,
    /// The pause before that
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = durations::parse)]
    pub backoff: Duration,
    /// Go on with what an earlier run of the slot has saved: see `fence job checkpoint`
    #[arg(long)]
    pub resume: bool,
    /// Do it in so many parts, each under a lock of its own, on all hosts that are called
    #[arg(long, value_name = "COUNT")]
    pub shards: Option<u32>,
    /// So many parts at a time on this host
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "shards")]
    pub concurrency: u32,
    /// Do this part alone, such as 7/16; the first is 0
    #[arg(long, value_name = "PART", value_parser = part)]
    pub shard: Option<(u32, u32)>,
    /// How long the lock lasts without renewal: a run that dies blocks the next for so long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = durations::parse)]
    pub ttl: Duration,
    /// Between TERM and KILL; by default 5s, or a fifth of the ttl if that is less
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    pub grace: Option<Duration>,
    /// End the command after so long, with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    pub max_runtime: Option<Duration>,
    /// Of how many runs the records are kept
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub keep: u32,
    /// How many bytes of output are kept with the record, the last of them; 0: none
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = clap::value_parser!(u64).range(..=TAIL_MAX))]
    pub tail: u64,
    /// `tail`, or `full`: all of the output is kept
    #[arg(long, value_enum, value_name = "WHICH", default_value = "tail")]
    pub log: LogOf,
    /// The exit code if the slot was done before
    #[arg(long, value_name = "CODE", default_value_t = 0)]
    pub done_exit_code: u8,
    /// The exit code if the lock was not had
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 75)]
    pub conflict_exit_code: u8,
    /// The exit code if the lock was lost while the command ran
    #[arg(long, value_name = "CODE", default_value_t = 121)]
    pub lost_exit_code: u8,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Give the command nothing to read
    #[arg(long)]
    pub no_stdin: bool,
    /// Show what the command writes only if it fails
    #[arg(long)]
    pub quiet_unless_failed: bool,
    /// Where a part says that it had no lock
    #[arg(long, value_name = "FILE", hide = true)]
    pub report: Option<PathBuf>,
    /// The request that is carried out
    #[arg(long, value_name = "ID", hide = true)]
    pub request: Option<String>,
    /// A command line for `sh -c`, instead of COMMAND
    #[arg(short = 'c', long = "shell", value_name = "TEXT", conflicts_with = "command")]
    pub shell: Option<OsString>,
    /// What to run, and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "shell")]
    pub command: Vec<OsString>,
}

/// How often a slot is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Once {
    /// Until a run succeeds
    Done,
    /// At most once
    Claimed,
}

/// What happens while another run is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOverlap {
    /// This one is not begun
    Skip,
    /// This one waits
    Wait,
    /// The other is ended
    Replace,
}

/// What becomes of slots that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Missed {
    /// None is run, and none that is late
    None,
    /// The last is run
    Last,
    /// Each is run
    All,
}

/// How much of the output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogOf {
    /// The last of it
    Tail,
    /// All of it
    Full,
}

fn part(text: &str) -> Result<(u32, u32), String> {
    let both = text.split_once('/');
    let both = both.and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    both.filter(|(index, count)| index < count)
        .ok_or_else(|| "it is INDEX/COUNT, the first is 0".to_owned())
}

impl JobRunOptions {
    /// The job that is described.
    ///
    /// # Errors
    /// What was said makes no sense together.
    pub fn job(&self, client: &Client) -> Result<Job, Failure> {
        let mut job = client
            .job(&self.name)
            .ttl(self.ttl)
            .keep(self.keep)
            .retries(self.retries, self.backoff)
            .overlap(self.overlap()?)
            .once(match self.once_policy {
                Once::Done => OncePolicy::Done,
                Once::Claimed => OncePolicy::Claimed,
            })
            .catch_up(match self.catch_up {
                Missed::None => CatchUp::None,
                Missed::Last => CatchUp::Last,
                Missed::All => CatchUp::All,
            });
        if let Some((index, count)) = self.shard {
            job = job.part(index, count);
        }
        if let Some(every) = self.every {
            job = job.every(every);
        }
        if let Some(slot) = &self.slot {
            job = job.slot(slot.clone());
        }
        if let Some(after) = self.overdue_after {
            job = job.overdue_after(after);
        }
        if let Some(most) = self.max_runtime {
            job = job.max_runtime(most);
        }
        if let Some(wait) = self.wait {
            job = job.wait(wait);
        }
        if self.resume {
            job = job.resume();
        }
        if let Some(request) = &self.request {
            job = job.request(request.parse().map_err(|_| usage("the request has no such id"))?);
        }
        let words = self.words();
        let program = words.first().map(|word| word.to_string_lossy());
        job = job.program(program.unwrap_or_default());
        job.check().map_err(wrong)?;
        self.check()?;
        Ok(job)
    }

    /// Refuses what would do nothing.
    fn check(&self) -> Result<(), Failure> {
        let waits = self.on_overlap != OnOverlap::Skip;
        let is_in_parts = self.shards.is_some();
        let wrong = [
            (
                self.wait.is_some() && !waits && !is_in_parts,
                "--wait belongs to --on-overlap wait or replace, or to --shards",
            ),
            (
                is_in_parts && waits,
                "parts that another host has are left to it: no --on-overlap with --shards",
            ),
            (
                is_in_parts && self.once_policy == Once::Claimed,
                "with --shards, a part is done or it is not: no claims",
            ),
            (
                self.overdue_after.is_some()
                    && self.every.is_none()
                    && self.catch_up != Missed::None,
                "--overdue-after belongs to --every",
            ),
        ];
        wrong
            .into_iter()
            .find(|(is_wrong, _)| *is_wrong)
            .map_or(Ok(()), |(_, text)| Err(usage(text)))
    }

    /// The resource that has the lock and the records.
    ///
    /// # Errors
    /// The name is none, or there is no such part.
    pub fn resource(&self) -> Result<String, Failure> {
        let name = JobName::new(&self.name).map_err(wrong)?;
        let name = match self.shard {
            Some((index, count)) => name.part(index, count).map_err(wrong)?,
            None => name,
        };
        Ok(name.resource())
    }

    fn overlap(&self) -> Result<Overlap, Failure> {
        match (self.on_overlap, &self.reason) {
            (OnOverlap::Replace, Some(reason)) => Ok(Overlap::Replace {
                reason: reason.clone(),
                grace: self.as_run(String::new()).grace()?,
            }),
            (OnOverlap::Replace, None) => Err(usage(
                "to replace a run, say why with --reason: it is told, and the audit keeps it",
            )),
            (_, Some(_)) => Err(usage("--reason belongs to --on-overlap replace")),
            (OnOverlap::Skip, None) => Ok(Overlap::Skip),
            (OnOverlap::Wait, None) => Ok(Overlap::Wait),
        }
    }

    /// What `fence run` would be told.
    pub fn as_run(&self, resource: String) -> RunOptions {
        RunOptions {
            nonblock: self.on_overlap == OnOverlap::Skip,
            wait: self.wait,
            conflict_exit_code: self.conflict_exit_code,
            lost_exit_code: self.lost_exit_code,
            ttl: self.ttl,
            grace: self.grace,
            max_runtime: self.max_runtime,
            no_stdin: self.no_stdin,
            quiet_unless_failed: self.quiet_unless_failed,
            shell: self.shell.clone(),
            ..RunOptions::of(resource, self.command.clone())
        }
    }

    fn words(&self) -> Vec<OsString> {
        self.as_run(String::new()).words()
    }
}

/// What a client refuses before it asks anybody is wrong with the command line.
fn wrong(error: Error) -> Failure {
    match error {
        Error::Misuse(details) => usage(details.detail),
        other => other.into(),
    }
}
