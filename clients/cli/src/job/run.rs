//! `fence job run`: a command once for each slot, by one of many hosts, with a record of each run.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use fencegate_client::jobs::{
    Begun, CATCH_UP_MAX, Due, Job, JobRun, Mark, RunEnd, RunStatus, is_held,
};
use fencegate_client::wire::shown::escaped;
use fencegate_client::{Body, Error, Lock, LossReason};
use jiff::Timestamp;
use tempfile::NamedTempFile;

use super::options::{JobRunOptions, LogOf};
use crate::ending::{End, FAILED, OVERDUE};
use crate::failure::Failure;
use crate::options::Common;
use crate::run::options::RunOptions;
use crate::run::signals::Signals;
use crate::run::streams::Streams;
use crate::run::supervise::Outcome;
use crate::run::tail::Tail;
use crate::run::waiting::{self, Waited};
use crate::run::{Session, given_up, to_the_end};
use crate::terminal::say;

/// What a part says to whoever has started it, if somebody else has its lock.
pub const NOT_HAD: &str = "not had";

/// Runs a job, or one part of it; or all of its parts, each as a process of its own.
pub fn run(common: &Common, options: &JobRunOptions) -> ExitCode {
    to_the_end(async || {
        let as_run = options.as_run(options.resource()?);
        Session::with(common, &as_run, async |session| {
            let job = options.job(&session.client)?;
            if options.shards.is_some() && options.shard.is_none() {
                return super::shards::run(session, options, &job).await;
            }
            Runner {
                session,
                options,
                as_run: &as_run,
                job,
                is_quiet: common.quiet,
                is_verbose: common.verbose,
            }
            .go()
            .await
        })
        .await
    })
}

/// One call, for one part.
struct Runner<'a> {
    session: &'a Session<'a>,
    options: &'a JobRunOptions,
    as_run: &'a RunOptions,
    job: Job,
    is_quiet: bool,
    is_verbose: bool,
}

/// What became of one run.
struct Ran {
    /// How `fence` ends for it.
    end: End,
    status: RunStatus,
    is_interrupted: bool,
}

/// How a turn ended, and whether the next slot follows.
enum Turn {
    Next(End),
    Over(End),
}

impl Runner<'_> {
    async fn go(&self) -> Result<End, Failure> {
        let mut streams = Streams::open(self.as_run)?;
        let mut signals = Signals::hear().context("cannot hear signals")?;
        if let Some(end) = self.session.reach(&mut signals).await? {
            return Ok(end);
        }
        let due = tokio::select! {
            signal = signals.next_that_ends() => return Ok(End::Signal(signal.as_raw())),
            due = self.job.due() => due?,
        };
        let mut end = End::Code(self.options.done_exit_code);
        let mut left = VecDeque::from(due);
        for _ in 0..CATCH_UP_MAX {
            let Some(due) = left.pop_front() else { break };
            // 1. A slot that is done costs one read and no lock.
            let mark = tokio::select! {
                signal = signals.next_that_ends() => return Ok(End::Signal(signal.as_raw())),
                mark = self.job.look(&due) => mark?,
            };
            if let Some(mark) = mark {
                if self.options.dry_run {
                    told_on_stdout(&format!("would run nothing: {}", self.done_by(&mark)))?;
                }
                end = self.done(&mark);
                continue;
            }
            if self.options.dry_run {
                self.would_run(&due).await?;
                end = End::Code(0);
                continue;
            }
            // 2. The others wait for the oldest: what fails is not jumped over.
            match self.turn(due, &mut left, &mut signals, &mut streams).await? {
                Turn::Next(next) => end = next,
                Turn::Over(end) => return Ok(end),
            }
        }
        Ok(end)
    }

    /// Waits for the lock, and runs the command under it until the slot is done or has failed for good.
    async fn turn(
        &self,
        due: Due,
        left: &mut VecDeque<Due>,
        signals: &mut Signals,
        streams: &mut Streams,
    ) -> Result<Turn, Failure> {
        let replaced = self.job.replace(&due).await?;
        let resource = [self.job.check()?.resource()];
        let lock = self.job.lock()?.grace(self.session.grace);
        let lock = match waiting::acquire(&self.session.client, lock, &resource, signals).await {
            Waited::Lock(lock) => lock,
            Waited::NotHad(busy) => {
                let why = self.session.why_not(&resource, &busy).await;
                let text = format!("job {} does not run now: {why}", self.options.name);
                // Whoever wants another code than 0 wants to hear why.
                match self.options.conflict_exit_code {
                    0 => self.tell(&text),
                    _ if self.is_quiet => {}
                    _ => say(&text),
                }
                if let Some(report) = &self.options.report {
                    std::fs::write(report, NOT_HAD)
                        .context("cannot say that the lock was not had")?;
                }
                return Ok(Turn::Over(End::Code(self.options.conflict_exit_code)));
            }
            Waited::Signal(signal) => return Ok(Turn::Over(End::Signal(signal.as_raw()))),
            Waited::Failed(failure) => return Err(failure),
        };
        let turned = self.under(&lock, due, replaced, left, signals, streams).await;
        self.session.give_back(&lock, true).await;
        turned
    }

    /// Runs the command, and again if it fails, under one lock.
    async fn under(
        &self,
        lock: &Lock,
        mut due: Due,
        mut replaced: Option<Timestamp>,
        left: &mut VecDeque<Due>,
        signals: &mut Signals,
        streams: &mut Streams,
    ) -> Result<Turn, Failure> {
        let mut retries = self.options.retries;
        loop {
            // Whoever has no room for the log does not begin.
            let log = (self.options.log == LogOf::Full).then(whole_log).transpose();
            let log = log.context("no room for the log")?;
            let run = match self.job.begin(lock, &due, replaced).await? {
                Begun::Run(run) => run,
                // An older slot comes first: what is not done is not jumped over.
                Begun::Instead(first, others) => {
                    (due, *left) = (first, others);
                    continue;
                }
                Begun::Done(mark) => return Ok(Turn::Next(self.done(&mark))),
                Begun::Skipped(run) => {
                    self.tell(&format!("slot {} is skipped: it is too late to begin", run.slot));
                    return Ok(Turn::Next(End::Code(self.options.done_exit_code)));
                }
            };
            let slot = run.slot().clone();
            let ran = self.one(*run, log, retries > 0, lock, signals, streams).await?;
            let again = matches!(ran.status, RunStatus::Failed | RunStatus::TimedOut);
            if ran.is_interrupted {
                return Ok(Turn::Over(ran.end));
            }
            if ran.status == RunStatus::Succeeded && ran.end.is_good() {
                return Ok(Turn::Next(ran.end));
            }
            if !again || retries == 0 || lock.check().is_err() {
                return Ok(Turn::Over(ran.end));
            }
            retries -= 1;
            tokio::select! {
                signal = signals.next_that_ends() => return Ok(Turn::Over(End::Signal(signal.as_raw()))),
                _ = lock.lost() => return Ok(Turn::Over(ran.end)),
                () = tokio::time::sleep(self.options.backoff) => {}
            }
            (due, replaced) = (due.again(&slot), None);
        }
    }

    /// One run that has begun. Whatever becomes of its output, its end is recorded.
    async fn one(
        &self,
        run: JobRun,
        log: Option<(NamedTempFile, File)>,
        may_go_on: bool,
        lock: &Lock,
        signals: &mut Signals,
        streams: &mut Streams,
    ) -> Result<Ran, Failure> {
        let id = run.record().run;
        let (log, file) = log.unzip();
        let tail = Tail::new(usize::try_from(self.options.tail).unwrap_or(0), file);
        streams.watch(tail.clone());
        let ran = self.session.under(lock, &told(&run), signals, streams).await;
        // 1. How it ended. What could not be started has ended, too.
        let is_interrupted = ran.as_ref().is_ok_and(|outcome| outcome.is_interrupted);
        let (mut end, mut record) = match &ran {
            Ok(outcome) => self.judged(outcome),
            Err(error) => {
                let reason = Some(format!("{error:#}"));
                (End::Code(FAILED), RunEnd { reason, ..RunEnd::new(RunStatus::Failed) })
            }
        };
        let status = record.status.unwrap_or(RunStatus::Failed);
        record.goes_on = may_go_on && !is_interrupted && status.is_failure();
        // 2. What it wrote: as long as somebody reads it, and the lock holds.
        let was_ended = ran.as_ref().is_ok_and(Outcome::was_ended);
        let given_up = async {
            tokio::select! {
                _ = lock.lost(), if !was_ended => {}
                () = given_up(was_ended, signals) => {}
            }
        };
        let shown = streams.end(!end.is_good(), given_up).await;
        let (mut output, last) = tail.so_far();
        // 3. Its log, if it is long, before the record that says so; if it cannot be kept, the last of it.
        let is_kept = match &log {
            Some(log) if !output.truncated => self.keep(log, &run, lock).await,
            _ => false,
        };
        if !is_kept {
            output.truncated = output.truncated || output.bytes > last.len() as u64;
            record.log = (!last.is_empty()).then(|| last.into());
        }
        record.output = Some(output);
        // 4. The record.
        match run.finish(lock, record).await {
            Ok(_) => {}
            Err(Error::LockLost(lost)) => {
                say(&format!(
                    "run {id} has lost its lock ({lost}): nothing is recorded of its end, and what it still writes under it bounces"
                ));
                end = End::Code(self.options.lost_exit_code);
            }
            Err(error) => {
                say(&format!(
                    "how run {id} ended could not be recorded, or nobody knows whether it was"
                ));
                return Err(error.into());
            }
        }
        ran?;
        shown.context("cannot show what the command wrote")?;
        Ok(Ran { end, status, is_interrupted })
    }

    /// Puts the whole log. Says whether that is done.
    async fn keep(&self, log: &NamedTempFile, run: &JobRun, lock: &Lock) -> bool {
        let put = lock.put(&run.record().log_object(), Body::file(log.path()));
        match put.content_type("text/plain; charset=utf-8").await {
            Ok(_) => true,
            // The record will say that the lock is lost.
            Err(Error::LockLost(_)) => false,
            Err(error) => {
                say(&format!("the log of run {} is not kept whole: {error}", run.record().run));
                false
            }
        }
    }

    /// How `fence` ends for a command that ended so, and what is recorded of it.
    fn judged(&self, outcome: &Outcome) -> (End, RunEnd) {
        let end = self.session.judge(outcome);
        let (status, reason) = match (outcome.lost, end) {
            // Somebody has ended it on purpose.
            (Some(LossReason::Broken), _) => {
                let words = outcome.words.as_deref().unwrap_or("no reason was heard");
                (RunStatus::Cancelled, Some(format!("an operator broke its lock: {words}")))
            }
            (Some(reason), _) => {
                (RunStatus::Failed, Some(format!("its lock was lost: {}", reason.as_str())))
            }
            (None, End::Code(OVERDUE)) if outcome.end.is_some() => {
                (RunStatus::TimedOut, Some("it ran for longer than --max-runtime".to_owned()))
            }
            // Whatever it said then: it may have stopped half-way, and politely.
            (None, _) if outcome.is_interrupted => {
                (RunStatus::Cancelled, Some("it was told to end".to_owned()))
            }
            (None, end) if end.is_good() => (RunStatus::Succeeded, None),
            (None, _) => (RunStatus::Failed, None),
        };
        let mut record = RunEnd { reason, ..RunEnd::new(status) };
        match outcome.command {
            End::Code(code) => record.exit = Some(code),
            End::Signal(signal) => record.signal = Some(signal),
        }
        (end, record)
    }

    /// The slot was done before.
    fn done(&self, mark: &Mark) -> End {
        if !self.options.dry_run {
            self.tell(&self.done_by(mark));
        }
        End::Code(self.options.done_exit_code)
    }

    /// Which run has a slot behind it, in words.
    fn done_by(&self, mark: &Mark) -> String {
        let run = mark.object.trim_start_matches("runs/").trim_end_matches(".json");
        let what = match mark.status.as_str() {
            "succeeded" => "has done it already",
            "skipped" => "was too late, and was skipped",
            _ => "has claimed it, whatever became of that",
        };
        format!("job {}: run {run} {what}", self.options.name)
    }

    /// What would be done.
    async fn would_run(&self, due: &Due) -> Result<(), Failure> {
        let slot =
            due.slot.as_ref().map_or("a slot of its own".to_owned(), |slot| format!("slot {slot}"));
        let does = if due.is_too_late { "would skip" } else { "would run" };
        let resource = self.job.check()?.resource();
        let held = match self.session.client.resource(&resource).await {
            Ok(it) if is_held(&it) => format!("{} has its lock", it.owner),
            Ok(_) | Err(Error::NotFound(_)) => "nobody has its lock".to_owned(),
            Err(error) => return Err(error.into()),
        };
        told_on_stdout(&format!("{does} {slot} of {resource}; {held}"))
    }

    /// What is no failure is said to people alone, or if it is asked for: cron sends a letter for each word.
    fn tell(&self, text: &str) {
        if self.is_verbose || std::io::stderr().is_terminal() && !self.is_quiet {
            say(text);
        }
    }
}

/// A file for all of the output, and the same to write to.
fn whole_log() -> std::io::Result<(NamedTempFile, File)> {
    let log = NamedTempFile::new()?;
    let file = log.reopen()?;
    Ok((log, file))
}

/// Says something on standard output.
pub fn told_on_stdout(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{}", escaped(text)).map_err(Failure::of_output)
}

/// What the command is told of its run. What a run around this one was told is not true of this.
fn told(run: &JobRun) -> Vec<(&'static str, Option<String>)> {
    let record = run.record();
    vec![
        ("FENCE_JOB", Some(record.job.clone())),
        ("FENCE_RUN_ID", Some(record.run.to_string())),
        ("FENCE_SLOT", Some(record.slot.to_string())),
        ("FENCE_ATTEMPT", Some(record.attempt.to_string())),
        ("FENCE_RESUME", run.is_resumed().then(|| "1".to_owned())),
        ("FENCE_SHARD", record.shard.map(|shard| shard.to_string())),
        ("FENCE_SHARDS", record.shards.map(|shards| shards.to_string())),
    ]
}
