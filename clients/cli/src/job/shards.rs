//! A job in parts: each part is a `fence job run` of its own. This one starts those that are free, and waits until all
//! parts of the slot are done, here or on another host.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use fencegate_client::jobs::{Due, Job, Slot, Trigger, is_held};
use fencegate_client::{Client, Error};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use rustix::process::Signal;
use tempfile::NamedTempFile;
use tokio::time::Instant;

use super::children::{Process, words_with};
use super::options::{JobRunOptions, Missed};
use super::run::{NOT_HAD, told_on_stdout};
use crate::ending::End;
use crate::failure::{Failure, usage};
use crate::run::Session;
use crate::run::signals::{self, Signals};
use crate::terminal::say;

/// How often parts that others have are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// So many parts are looked at at a time.
const AT_ONCE: usize = 8;
/// The most parts at a time on one host.
const CONCURRENCY_MAX: u32 = 256;

/// Runs all parts.
///
/// # Errors
/// What was said makes no sense, or the gateway cannot be asked.
pub async fn run(
    session: &Session<'_>,
    options: &JobRunOptions,
    job: &Job,
) -> Result<End, Failure> {
    let count = options.shards.unwrap_or(1);
    if options.every.is_none() && options.slot.is_none() {
        return Err(usage("hosts share the parts of a slot: say which, with --every or --slot"));
    }
    if !(1..=CONCURRENCY_MAX).contains(&options.concurrency) {
        return Err(usage(format!("--concurrency is 1 to {CONCURRENCY_MAX}")));
    }
    job.clone().part(0, count).check()?;
    let mut signals = Signals::hear().context("cannot hear signals")?;
    if let Some(end) = session.reach(&mut signals).await? {
        return Ok(end);
    }
    // 1. One slot for all parts, also if the next one begins meanwhile.
    let slot = match &options.slot {
        Some(slot) => slot.clone(),
        None => {
            let every = options.every.unwrap_or_default();
            Slot::at(session.client.gateway_time().await?, every)?
        }
    };
    let due = Due { slot: Some(slot.clone()), trigger: Trigger::Schedule, is_too_late: false };
    let parts = (0..count).map(|index| (index, Part::Open(Instant::now()))).collect();
    let (client, running) = (&session.client, BTreeMap::new());
    let mut all = All { client, options, job, due, slot, count, parts, running };
    // 2. All of them. What runs is not left alone, whatever went wrong here.
    let ended = all.run(&mut signals).await;
    all.running.values().for_each(|running| running.process.send(Signal::TERM));
    all.wait_for_all(&mut signals).await?;
    ended
}

/// What is known of a part that is not done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It may be free, from then on.
    Open(Instant),
    /// It has failed here.
    Failed(End),
}

/// A part that is run here.
struct Running {
    process: Process,
    /// Where it says that somebody else had the lock.
    report: NamedTempFile,
}

struct All<'a> {
    client: &'a Client,
    options: &'a JobRunOptions,
    job: &'a Job,
    due: Due,
    slot: Slot,
    count: u32,
    /// Those that are not done.
    parts: BTreeMap<u32, Part>,
    running: BTreeMap<u32, Running>,
}

impl All<'_> {
    /// Until all are done, or have failed here and are nobody else's.
    async fn run(&mut self, signals: &mut Signals) -> Result<End, Failure> {
        let until = self.options.wait.map(|wait| Instant::now() + wait);
        loop {
            match self.step().await {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => {}
                // What runs goes on; it is there again later.
                Err(Failure::Client(error))
                    if matches!(*error, Error::Unavailable(_)) && !self.running.is_empty() => {}
                Err(failure) => return Err(failure),
            }
            if self.running.is_empty() && until.is_some_and(|until| until <= Instant::now()) {
                say(&format!(
                    "{} parts of slot {} are with other hosts still",
                    self.parts.len(),
                    self.slot
                ));
                return Ok(End::Code(self.options.conflict_exit_code));
            }
            tokio::select! {
                signal = signals.next() => {
                    self.hand_on(signal);
                    if signals::ends(signal) {
                        self.wait_for_all(signals).await?;
                        return Ok(End::Signal(signal.as_raw()));
                    }
                }
                ended = next_end(&mut self.running) => {
                    let (index, end) = ended?;
                    self.ended(index, end).await?;
                }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Looks which are done, and starts those that are free. Gives the end, if it is there.
    async fn step(&mut self) -> Result<Option<End>, Failure> {
        self.look().await?;
        if self.options.dry_run {
            let (left, count, slot) = (self.parts.len(), self.count, &self.slot);
            told_on_stdout(&format!("would run {left} of {count} parts of slot {slot}"))?;
            return Ok(Some(End::Code(0)));
        }
        self.start().await?;
        let is_over = |part: &Part| matches!(part, Part::Failed(_));
        Ok((self.running.is_empty() && self.parts.values().all(is_over)).then(|| self.end()))
    }

    /// Which parts are done by now?
    async fn look(&mut self) -> Result<(), Failure> {
        let idle = |index: &u32| !self.running.contains_key(index);
        let left: Vec<u32> = self.parts.keys().copied().filter(idle).collect();
        let (job, count, due) = (self.job, self.count, &self.due);
        let looked = stream::iter(left).map(async |index| {
            let mark = job.clone().part(index, count).look(due).await?;
            Ok::<_, Error>((index, mark.is_some()))
        });
        let looked: Vec<_> = looked.buffer_unordered(AT_ONCE).try_collect().await?;
        for (index, _) in looked.into_iter().filter(|(_, is_done)| *is_done) {
            self.parts.remove(&index);
        }
        Ok(())
    }

    /// Starts parts that are free, as many as may run at a time. Hosts begin at different ones.
    async fn start(&mut self) -> Result<(), Failure> {
        let from = std::process::id() % self.count;
        let now = Instant::now();
        let open = |(index, part): (&u32, &Part)| {
            matches!(part, Part::Open(at) if *at <= now).then_some(*index)
        };
        let mut open: Vec<u32> = self.parts.iter().filter_map(open).collect();
        open.sort_by_key(|index| (index + self.count - from) % self.count);
        for index in open {
            if self.running.len() >= self.options.concurrency as usize {
                return Ok(());
            }
            if self.running.contains_key(&index) || self.is_held(index).await? {
                continue;
            }
            let report = NamedTempFile::new().context("no room for what parts say")?;
            let mut more = vec![
                format!("--shard={index}/{}", self.count),
                format!("--report={}", report.path().display()),
            ];
            // Each part catches up by itself.
            if self.options.slot.is_none() && self.options.catch_up != Missed::All {
                more.push(format!("--slot={}", self.slot));
            }
            let process = Process::start(&words_with(&more))?;
            self.running.insert(index, Running { process, report });
        }
        Ok(())
    }

    async fn is_held(&self, index: u32) -> Result<bool, Failure> {
        let resource = self.job.clone().part(index, self.count).check()?.resource();
        match self.client.resource(&resource).await {
            Ok(found) => Ok(is_held(&found)),
            Err(Error::NotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// A part has ended here. Its exit code is that of its command, whatever number that is: what came of it is looked up.
    async fn ended(&mut self, index: u32, end: End) -> Result<(), Failure> {
        let Some(running) = self.running.remove(&index) else { return Ok(()) };
        let said = std::fs::read_to_string(running.report.path()).unwrap_or_default();
        if said == NOT_HAD {
            // Somebody else was quicker; it is looked at again.
            self.parts.insert(index, Part::Open(Instant::now() + LOOK));
        } else if end.is_good() || self.is_done(index).await? {
            self.parts.remove(&index);
        } else {
            say(&format!("part {index} of {} has failed", self.count));
            self.parts.insert(index, Part::Failed(end));
        }
        Ok(())
    }

    /// Whether a part is done. Without an answer it is not known, and looked at again: what else runs here goes on.
    async fn is_done(&self, index: u32) -> Result<bool, Failure> {
        match self.job.clone().part(index, self.count).look(&self.due).await {
            Ok(mark) => Ok(mark.is_some()),
            Err(Error::Unavailable(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands a signal on to all that run here, and does what it asks of this one.
    fn hand_on(&self, signal: Signal) {
        self.running.values().for_each(|running| running.process.send(signal));
        if signal == Signal::TSTP {
            signals::stop();
        }
    }

    async fn wait_for_all(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        while !self.running.is_empty() {
            tokio::select! {
                signal = signals.next() => self.hand_on(signal),
                ended = next_end(&mut self.running) => {
                    self.running.remove(&ended?.0);
                }
            }
        }
        Ok(())
    }

    /// That of the first part that has failed.
    fn end(&self) -> End {
        let failed = self.parts.values().find_map(|part| match part {
            Part::Failed(end) => Some(*end),
            Part::Open(_) => None,
        });
        failed.unwrap_or(End::Code(0))
    }
}

async fn next_end(running: &mut BTreeMap<u32, Running>) -> anyhow::Result<(u32, End)> {
    if running.is_empty() {
        return std::future::pending().await;
    }
    let ends = running.iter_mut().map(|(index, running)| {
        Box::pin(async move { running.process.end().await.map(|end| (*index, end)) })
    });
    futures::future::select_all(ends).await.0
}
