//! `fence job agent` and `start`: runs that somebody asks for, and whoever waits for that.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use fencegate_client::jobs::{JobName, Request, Slot};
use fencegate_client::{Client, Error, Lock, Wait};
use rustix::process::Signal;

use super::children::Process;
use crate::app::App;
use crate::durations;
use crate::ending::End;
use crate::failure::{Failure, usage};
use crate::options::Common;
use crate::run::options::RunOptions;
use crate::run::signals::{self, Signals};
use crate::run::{Session, to_the_end};
use crate::terminal::say;

/// How often the inbox is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// So often is a request tried that cannot be begun.
const TRIES: u32 = 3;
/// How long the lock of an agent lasts: within this time another one takes its place.
const TTL: Duration = Duration::from_secs(15);

/// Waits for requests for runs of a job, and runs them, one after another.
#[derive(Debug, Args)]
#[command(override_usage = "fence job agent NAME [OPTIONS] -- COMMAND [ARG]...")]
pub struct Agent {
    /// The job
    #[arg(value_name = "NAME")]
    name: String,
    /// How long the lock of a run lasts without renewal
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = durations::parse)]
    ttl: Duration,
    /// End the command after so long
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    max_runtime: Option<Duration>,
    /// What to run for each request, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Agent {
    /// Waits until it is told to end. Of several agents of a job one serves, and the next takes its place when it goes.
    pub fn run(&self, common: &Common) -> ExitCode {
        to_the_end(async || {
            let as_run = self.as_run();
            Session::with(common, &as_run, async |session| self.serve(common, session).await).await
        })
    }

    fn as_run(&self) -> RunOptions {
        RunOptions { ttl: self.ttl, ..RunOptions::of(self.name.clone(), self.command.clone()) }
    }

    async fn serve(&self, common: &Common, session: &Session<'_>) -> Result<End, Failure> {
        let (client, name) = (&session.client, JobName::new(&self.name)?);
        let mut signals = Signals::hear().context("cannot hear signals")?;
        if let Some(end) = session.reach(&mut signals).await? {
            return Ok(end);
        }
        loop {
            let lock = client.lock(name.agent()).ttl(TTL).wait(Wait::Forever).acquire();
            let lock = tokio::select! {
                signal = signals.next_that_ends() => return Ok(End::Signal(signal.as_raw())),
                lock = lock => lock?,
            };
            let ended = self.while_held(common, client, &name, &lock, &mut signals).await;
            session.give_back(&lock, true).await;
            if let Some(end) = ended? {
                return Ok(end);
            }
            say("another agent has taken the place of this one; waiting for its turn");
        }
    }

    /// Serves until it is told to end; `None`: the lock was lost.
    async fn while_held(
        &self,
        common: &Common,
        client: &Client,
        name: &JobName,
        lock: &Lock,
        signals: &mut Signals,
    ) -> Result<Option<End>, Failure> {
        let mut failed: Option<(uuid::Uuid, u32)> = None;
        loop {
            let asked = tokio::select! {
                signal = signals.next_that_ends() => return Ok(Some(End::Signal(signal.as_raw()))),
                _ = lock.lost() => return Ok(None),
                asked = client.requested_runs(name) => asked,
            };
            let next = match asked {
                Ok(asked) => asked.into_iter().next(),
                // It is there again later.
                Err(Error::Unavailable(_)) => None,
                Err(error) => return Err(error.into()),
            };
            let Some(request) = next else {
                tokio::select! {
                    signal = signals.next_that_ends() => return Ok(Some(End::Signal(signal.as_raw()))),
                    () = tokio::time::sleep(LOOK) => continue,
                }
            };
            say(&format!("request {} by {}: {}", request.request, request.by, request.reason));
            let (end, was_told) = self.carry_out(common, &request, signals).await?;
            match self.settle(client, name, &request, end, &mut failed).await {
                Ok(()) => {}
                // It is there again later, and so is the request.
                Err(Error::Unavailable(_) | Error::Busy(_) | Error::OutcomeUnknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
            if was_told {
                return Ok(Some(end));
            }
        }
    }

    /// Removes a request that was taken. That it was is decided by the run's own commit, and not by how it ended.
    async fn settle(
        &self,
        client: &Client,
        name: &JobName,
        request: &Request,
        end: End,
        failed: &mut Option<(uuid::Uuid, u32)>,
    ) -> Result<(), Error> {
        let was_taken = client.job_request_mark(name, request.request).await?.is_some();
        let tries = match *failed {
            Some((id, tries)) if id == request.request => tries + 1,
            _ => 1,
        };
        if !was_taken && !end.is_good() && tries < TRIES {
            *failed = Some((request.request, tries));
            tokio::time::sleep(LOOK).await;
            return Ok(());
        }
        if !was_taken {
            let what = if end.is_good() {
                "its slot was done before"
            } else {
                "it could not be begun: it is dropped"
            };
            say(&format!("request {}: {what}", request.request));
        }
        *failed = None;
        client.drop_request(name, request.request).await
    }

    /// Runs the command for one request, as a `fence job run` of its own. Says, too, whether this one was told to end.
    async fn carry_out(
        &self,
        common: &Common,
        request: &Request,
        signals: &mut Signals,
    ) -> Result<(End, bool), Failure> {
        let mut words: Vec<OsString> = common.words();
        words.extend(["job", "run", &self.name, "--on-overlap=wait"].map(OsString::from));
        words.push(format!("--request={}", request.request).into());
        words.push(
            format!("--ttl={}", humantime::format_duration(self.ttl)).replace(' ', "").into(),
        );
        if let Some(most) = self.max_runtime {
            words.push(
                format!("--max-runtime={}", humantime::format_duration(most))
                    .replace(' ', "")
                    .into(),
            );
        }
        if let Some(slot) = &request.slot {
            words.push(format!("--slot={slot}").into());
        }
        if request.resume {
            words.push("--resume".into());
        }
        words.push("--".into());
        words.extend(self.command.iter().cloned());
        let mut process = Process::start(&words)?;
        let mut told = None;
        loop {
            tokio::select! {
                end = process.end() => return Ok((told.map_or(end?, End::Signal), told.is_some())),
                signal = signals.next() => {
                    process.send(signal);
                    if signal == Signal::TSTP {
                        signals::stop();
                    }
                    if signals::ends(signal) {
                        told = Some(signal.as_raw());
                    }
                }
            }
        }
    }
}

/// Asks for a run of a job.
#[derive(Debug, Args)]
pub struct Start {
    /// The job
    #[arg(value_name = "NAME")]
    name: String,
    /// Of this slot, and not of one of its own
    #[arg(long, value_name = "TIME")]
    slot: Option<Slot>,
    /// Go on with what the last run has saved
    #[arg(long)]
    resume: bool,
    /// Why: it is kept with the request
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Start {
    /// Asks, and says as what.
    ///
    /// # Errors
    /// Nobody waits for requests of this job, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let name = JobName::new(&self.name)?;
        if !app.client.has_agent(&name).await? {
            let text = format!(
                "nobody waits for requests of {}: run `fence job agent {0} -- COMMAND` somewhere",
                self.name
            );
            return Err(usage(text));
        }
        if self.dry_run {
            let slot = self
                .slot
                .as_ref()
                .map_or("a slot of its own".to_owned(), |slot| format!("slot {slot}"));
            app.out.line(&format!("would ask for a run of {slot}; an agent waits"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let asked =
            app.client.request_run(&name, self.slot.clone(), self.resume, &self.reason).await?;
        app.out.one(&asked, &asked.request.to_string(), &format!("request {}", asked.request))?;
        Ok(ExitCode::SUCCESS)
    }
}
