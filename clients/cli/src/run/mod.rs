//! `fence run`: any command under a fenced lock. It ends before the lock can be another's.

pub mod exec;
mod giving_back;
pub mod init;
mod lookup;
mod marks;
pub mod nested;
pub mod options;
pub mod signals;
pub mod streams;
pub mod supervise;
pub mod tail;
mod target;
pub mod waiting;
pub mod watcher;

use std::cell::Cell;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use fencegate_client::wire::Word;
use fencegate_client::{
    Busy, Client, Error, Event, Lock, LockBuilder, LossReason, OnUncertain as Uncertain, Wait,
};
use rustix::process::{Pid, Signal};
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::options::{OnLoss, OnUncertain, RunOptions};
use self::signals::Signals;
use self::streams::Streams;
use self::supervise::{Outcome, Running, Terms};
use self::target::Target;
use self::waiting::Waited;
use self::watcher::Watcher;
use crate::contact::{self, Patience};
use crate::ending::{End, FAILED};
use crate::failure::Failure;
use crate::options::Common;
use crate::settings::Settings;
use crate::terminal::say;

/// How long the gateway may take to hear that a lock or a place in line is given back.
const GIVEN_BACK: Duration = Duration::from_secs(2);

/// Runs a command under a lock.
pub fn run(common: &Common, options: &RunOptions) -> ExitCode {
    to_the_end(async || {
        let work = async |session: &Session<'_>| session.go().await;
        Session::with(common, options, work).await
    })
}

/// Does what ends with the end of a command.
pub fn to_the_end(work: impl AsyncFnOnce() -> Result<End, Failure>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(work());
            // A name that is looked up for long is not waited for.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(anyhow!("no runtime: {error}").into()),
    };
    ended.unwrap_or_else(|failure| failed(&failure)).carry_out()
}

/// Never confused with what the command says.
fn failed(failure: &Failure) -> End {
    let _code = failure.tell(false);
    End::Code(FAILED)
}

/// One call of `fence run`.
pub struct Session<'a> {
    options: &'a RunOptions,
    settings: Settings,
    /// The gateway.
    pub client: Client,
    /// Something about the lock is news.
    news: Arc<Notify>,
    /// How long before the end of its lock a command is told to end.
    pub grace: Duration,
    program: PathBuf,
    words: Vec<OsString>,
    is_verbose: bool,
    is_quiet: bool,
    /// Tells if the last lock was given back and no gateway heard it.
    is_unheard: Cell<bool>,
}

/// How one turn of waiting and running ended.
enum Turn {
    /// So, and that is the end of it.
    Over(End),
    /// So, and with `--rejoin` another follows.
    Next(End),
}

impl<'a> Session<'a> {
    /// Does something with a command that can be run, and a gateway.
    ///
    /// # Errors
    /// The command line or the settings are wrong, or the work says so.
    pub async fn with(
        common: &Common,
        options: &'a RunOptions,
        work: impl AsyncFnOnce(&Self) -> Result<End, Failure>,
    ) -> Result<End, Failure> {
        // 1. Is it a command at all? Nobody stands in line for one that cannot be run.
        let grace = options.grace()?;
        let words = options.words();
        let program = match words.first().map(|name| lookup::find(name)) {
            Some(Ok(program)) => program,
            Some(Err(error)) => {
                let name = words.first().map(|name| name.to_string_lossy()).unwrap_or_default();
                say(&format!("cannot run {name}: {error}"));
                return Ok(End::Code(lookup::code_of(&error)));
            }
            None => return Err(crate::failure::usage("there is no command")),
        };
        // 2. The gateway, and the lock on it.
        let mut settings = Settings::of(common)?;
        settings.begin_trace();
        let news = Arc::new(Notify::new());
        let hook = news.clone();
        let builder = settings.builder()?.on_event(move |event| {
            if matches!(event, Event::Renewed { .. } | Event::Breaking { .. } | Event::Ended { .. })
            {
                hook.notify_one();
            }
        });
        let client = builder.build()?;
        let session = Self {
            options,
            settings,
            client,
            news,
            grace,
            program,
            words,
            is_verbose: common.verbose,
            is_quiet: common.quiet,
            is_unheard: Cell::new(false),
        };
        let ended = work(&session).await;
        // 3. What is given back in the background gets its time.
        let within = if session.is_unheard.get() { Duration::ZERO } else { GIVEN_BACK };
        session.client.close(within).await;
        ended.map_err(|failure| failure.having_shown(session.settings.shown()))
    }

    /// From the first word with the gateway to the last turn.
    async fn go(&self) -> Result<End, Failure> {
        self.lock().check()?;
        let mut streams = Streams::open(self.options)?;
        let mut signals = Signals::hear().context("cannot hear signals")?;
        // Who waits for ever rides out a gateway that is away, but not one that was never there.
        if let Some(end) = self.reach(&mut signals).await? {
            return Ok(end);
        }
        // Nor one that does not let it in.
        tokio::select! {
            signal = signals.next_that_ends() => return Ok(End::Signal(signal.as_raw())),
            there = self.client.status() => {
                if let Err(error @ (Error::Unavailable(_) | Error::Denied(_))) = there {
                    return Err(error.into());
                }
            }
        }
        // Under the lock, and with `--rejoin` again and again.
        loop {
            let turn = self.turn(&mut signals, &mut streams).await?;
            match (turn, self.options.rejoin) {
                (Turn::Next(_), Some(pause)) => tokio::select! {
                    signal = signals.next_that_ends() => return Ok(End::Signal(signal.as_raw())),
                    () = tokio::time::sleep(pause) => {}
                },
                (Turn::Next(end) | Turn::Over(end), _) => return Ok(end),
            }
        }
    }

    /// Makes first contact with a gateway, and says what is waited for. Gives the end, if a signal asks for it meanwhile.
    ///
    /// # Errors
    /// None is there.
    pub async fn reach(&self, signals: &mut Signals) -> Result<Option<End>, Failure> {
        let tell = |text: &str| {
            if !self.is_quiet {
                say(text)
            }
        };
        tokio::select! {
            signal = signals.next_that_ends() => Ok(Some(End::Signal(signal.as_raw()))),
            made = contact::make(&self.client, &self.settings, Patience::Long, tell) => made.map(|()| None),
        }
    }

    /// Gives a lock back, as long as a gateway may hear it.
    pub async fn give_back(&self, lock: &Lock, was_heard: bool) {
        let is_back = giving_back::give_back(lock, was_heard).await;
        self.is_unheard.set(!is_back);
    }

    fn lock(&self) -> LockBuilder {
        let options = self.options;
        let wait = match (options.nonblock, options.wait) {
            (true, _) => Wait::UpTo(Duration::ZERO),
            (false, Some(wait)) => Wait::UpTo(wait),
            (false, None) => Wait::Forever,
        };
        let uncertain = match options.on_uncertain {
            OnUncertain::Stop => Uncertain::Stop,
            OnUncertain::Hold => Uncertain::Hold,
        };
        let lock = self.client.lock(options.resources.clone()).wait(wait).ttl(options.ttl);
        let lock = lock.grace(self.grace);
        // The command writes under its token, too.
        let lock = lock.on_uncertain(uncertain).unnumbered();
        let words = options.metadata.iter();
        let lock = words.fold(lock, |lock, (key, value)| lock.metadata(key, value));
        let lock = options.writers.iter().fold(lock, LockBuilder::writer);
        match options.max_hold {
            Some(max_hold) => lock.max_hold(max_hold),
            None => lock,
        }
    }

    /// Waits for the lock, runs the command under it, and gives it back.
    async fn turn(&self, signals: &mut Signals, streams: &mut Streams) -> Result<Turn, Failure> {
        let names = &self.options.resources;
        let lock = match waiting::acquire(&self.client, self.lock(), names, signals).await {
            Waited::Lock(lock) => lock,
            Waited::NotHad(busy) => {
                say(&format!("the lock was not had: {}", self.why_not(names, &busy).await));
                return Ok(Turn::Over(End::Code(self.options.conflict_exit_code)));
            }
            Waited::Signal(signal) => return Ok(Turn::Over(End::Signal(signal.as_raw()))),
            Waited::Failed(failure) => return Err(failure),
        };
        if self.is_verbose {
            say(&format!("has {}, token {}", names.join(" "), lock.token()));
        }
        let ran = self.under(&lock, &[], signals, streams).await;
        let outcome = match ran {
            Ok(outcome) => outcome,
            Err(error) => {
                self.give_back(&lock, true).await;
                return Err(error.into());
            }
        };
        let end = self.judge(&outcome);
        self.give_back(&lock, outcome.was_heard).await;
        let shown = streams.end(!end.is_good(), given_up(outcome.was_ended(), signals)).await;
        shown.context("cannot show what the command wrote")?;
        Ok(if outcome.is_interrupted { Turn::Over(end) } else { Turn::Next(end) })
    }

    /// Why a lock on these resources was not had, in words.
    pub async fn why_not(&self, names: &[String], busy: &Busy) -> String {
        if let Some(holder) = &busy.holder {
            return format!("{holder} has {}", names.join(" "));
        }
        for name in names {
            let Ok(it) = self.client.resource(name).await else { continue };
            if let Some(reason) = it.frozen {
                return format!("an operator has frozen {name}: {reason}");
            }
            if matches!(&it.state, Word::Known(state) if state.is_held()) {
                return format!("{} has {name}", it.owner);
            }
        }
        format!("somebody else had {}", names.join(" "))
    }

    /// Runs the command under its lock, and tells it this too.
    ///
    /// # Errors
    /// It cannot be started, or not be waited for.
    pub async fn under(
        &self,
        lock: &Lock,
        told: &[(&'static str, Option<String>)],
        signals: &mut Signals,
        streams: &mut Streams,
    ) -> anyhow::Result<Outcome> {
        // 1. The command, and what it is told. What the lock lacks is said before anything starts.
        let mut command = Command::from(exec::command(&self.program, &self.words));
        command.envs(self.environment(lock));
        for (name, value) in told {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        self.settings.hand_on(command.as_std_mut());
        let ca_file = self.settings.files.ca_file.as_deref();
        self.options.s3.apply(&mut command, lock.s3(), ca_file).await?;
        // 2. The watcher: from its first moment on, the command is watched.
        let mut watcher = Watcher::start(self.grace).context("cannot start the watcher")?;
        // 3. It runs in a group of its own; on a terminal in ours, or it could not read from it.
        let has_group = self.options.no_stdin || !std::io::stdin().is_terminal();
        if has_group {
            command.process_group(0);
        }
        if self.options.no_stdin {
            command.stdin(Stdio::null());
        }
        streams.connect(&mut command).context("cannot empty the copy")?;
        let mut child = command.spawn().context("cannot start the command")?;
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.context("the command has no process id")?;
        let target = Target::of(pid, has_group, &lock.id().to_string());
        watcher.watch(&target);
        if let Err(error) = streams.begin(&mut child) {
            target.end(Signal::KILL);
            let _ended = child.wait().await;
            return Err(error.into());
        }
        // 4. Until it ends.
        let terms = Terms {
            grace: self.grace,
            on_loss: self.options.on_loss,
            on_uncertain: self.options.on_uncertain,
            runs_until: self.options.max_runtime.map(|most| Instant::now() + most),
            leaves_children: self.options.leave_children,
        };
        let running = Running { lock, child, target, watcher, terms };
        Ok(running.supervise(signals, &self.news).await?)
    }

    /// What the command is told of the lock.
    fn environment(&self, lock: &Lock) -> Vec<(&'static str, OsString)> {
        let names: Vec<_> = lock.resources().iter().map(|name| name.as_str()).collect();
        let first = self.options.resources.first().cloned().unwrap_or_default();
        vec![
            (marks::VARIABLE, marks::value(&lock.id().to_string()).into()),
            ("FENCE_RESOURCE", first.into()),
            ("FENCE_RESOURCES", names.join(" ").into()),
            ("FENCE_TOKEN", lock.token().to_string().into()),
            ("FENCE_LOCK_ID", lock.id().to_string().into()),
            ("FENCE_LOCK_OWNER", lock.owner().into()),
        ]
    }

    /// How `fence` ends for a command that ended so.
    pub fn judge(&self, outcome: &Outcome) -> End {
        let command = outcome.command;
        if let Some(end) = outcome.end {
            say("the command ran for longer than --max-runtime, and was ended");
            return end;
        }
        let Some(reason) = outcome.lost else { return command };
        let what = self.options.resources.join(" ");
        let words = outcome.words.as_ref().map_or_else(String::new, |words| format!(": {words}"));
        say(&format!("the lock on {what} was lost: {}{words}", told(reason)));
        match self.options.on_loss {
            // A failure of its own says more.
            OnLoss::Ignore if !command.is_good() => command,
            _ => End::Code(self.options.lost_exit_code),
        }
    }
}

/// Until when whoever reads the output of a command is waited for: until `fence` is told to end. Of a command that was
/// ended, a moment.
pub async fn given_up(was_ended: bool, signals: &mut Signals) {
    if was_ended {
        return tokio::time::sleep(streams::LAST_BYTES).await;
    }
    signals.next_that_ends().await;
}

fn told(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Unconfirmed => "no gateway has confirmed it in time",
        LossReason::Superseded => "somebody else has it",
        LossReason::Broken => "an operator broke it",
        other => other.as_str(),
    }
}
