//! The process beside `fence run` that ends its command if `fence` cannot: because it was killed, or stopped for longer
//! than its lock lasts. It hears from `fence` on its standard input, and acts when that ends or falls silent.

use std::io::{BufRead as _, ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;
use rustix::fs::OFlags;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use super::exec;
use super::target::Target;

/// How long lines that are on their way may take.
const LAST_LOOK: Duration = Duration::from_millis(5);
/// How often it looks at the clock while nothing happens: a machine may have been asleep.
const LOOK: Duration = Duration::from_millis(500);

/// How often it is looked whether all have ended.
pub const GLANCE: Duration = Duration::from_millis(20);

/// Watches over a command.
#[derive(Debug, Args)]
pub struct Watch {
    /// Between TERM and KILL, in milliseconds.
    #[arg(long)]
    grace_ms: u64,
}

/// A clock that goes on while the machine sleeps, in milliseconds.
pub fn clock_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// A watcher, as `fence` sees it. When it is dropped, the command is ended; unless it was dismissed.
pub struct Watcher {
    grace: Duration,
    target: Option<Target>,
    process: Child,
    input: Option<ChildStdin>,
}

impl Watcher {
    /// Starts one.
    pub fn start(grace: Duration) -> std::io::Result<Self> {
        let mut process = spawned(grace)?;
        let input = process.stdin.take();
        Ok(Self { grace, target: None, process, input })
    }

    /// Names the processes of the command.
    pub fn watch(&mut self, target: &Target) {
        self.target = Some(target.clone());
        self.say(&format!("watch {target}"));
    }

    /// The command may run until then, by [`clock_ms`]; `None`: until `fence` ends.
    pub fn until(&mut self, at_ms: Option<u64>) {
        let line = at_ms.map_or_else(|| "until -".to_owned(), |at_ms| format!("until {at_ms}"));
        if self.say(&line) {
            return;
        }
        // Somebody killed it. If there is no other, `fence` itself still ends the command in time.
        if let Ok(other) = Self::start(self.grace) {
            let target = self.target.take();
            let mut gone = std::mem::replace(self, other);
            let _status = gone.process.wait();
            if let Some(target) = target {
                self.watch(&target);
            }
            self.say(&line);
        }
    }

    /// Whether there is somebody to tell. What has no room in its pipe is not waited for: it stands still, and hears
    /// the next line.
    fn say(&mut self, line: &str) -> bool {
        let Some(input) = &mut self.input else { return true };
        // A line is written whole or not at all.
        let said = input.write_all(format!("{line}\n").as_bytes());
        said.map_err(|error| error.kind()) != Err(ErrorKind::BrokenPipe)
    }

    /// The command has ended.
    pub fn dismiss(mut self) {
        self.say("done");
        drop(self.input.take());
        // It has nothing to do any more, and may stand still.
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

fn spawned(grace: Duration) -> std::io::Result<Child> {
    let mut command = exec::this_program();
    command.arg("__watch").arg(format!("--grace-ms={}", grace.as_millis()));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // What a terminal sends to `fence` is not for it.
    let process = command.process_group(0).spawn()?;
    if let Some(input) = &process.stdin {
        rustix::fs::fcntl_setfl(input, OFlags::NONBLOCK)?;
    }
    Ok(process)
}

/// Watches until it is dismissed, or has ended the command.
pub fn watch(options: &Watch) -> ExitCode {
    // What is sent to all processes of that name, or of a service, is not for it.
    for signal in [Signal::HUP, Signal::INT, Signal::TERM, Signal::USR1, Signal::USR2] {
        let _deaf = signal_hook::flag::register(signal.as_raw(), Arc::default());
    }
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let (mut target, mut until_ms): (Option<Target>, _) = (None, u64::MAX);
    loop {
        let left_ms = until_ms.saturating_sub(clock_ms());
        let line = lines.recv_timeout(LOOK.min(Duration::from_millis(left_ms)));
        match line.as_deref().map(|line| line.split_once(' ').unwrap_or((line, ""))) {
            Ok(("watch", named)) => target = named.parse().ok(),
            Ok(("until", at)) => until_ms = at.parse().unwrap_or(u64::MAX),
            Ok(_) => return ExitCode::SUCCESS,
            // `fence` stands still, and its lock may be another's now: no grace.
            Err(RecvTimeoutError::Timeout) if clock_ms() >= until_ms => {
                // What was said while this process stood still comes first.
                std::thread::sleep(LAST_LOOK);
                match lines.try_iter().filter_map(|line| until(&line)).last() {
                    Some(Said::Done) => return ExitCode::SUCCESS,
                    Some(Said::Until(later_ms)) if later_ms > until_ms => {
                        until_ms = later_ms;
                        continue;
                    }
                    _ => {}
                }
                end(target, Duration::ZERO);
                return ExitCode::SUCCESS;
            }
            Err(RecvTimeoutError::Timeout) => {}
            // `fence` was killed.
            Err(RecvTimeoutError::Disconnected) => {
                let left = Duration::from_millis(until_ms.saturating_sub(clock_ms()));
                end(target, left.min(Duration::from_millis(options.grace_ms)));
                return ExitCode::SUCCESS;
            }
        }
    }
}

fn end(target: Option<Target>, grace: Duration) {
    let Some(target) = target else { return };
    let until_ms = clock_ms() + grace.as_millis() as u64;
    if !grace.is_zero() {
        target.end(Signal::TERM);
    }
    while clock_ms() < until_ms {
        if !target.is_there() {
            return;
        }
        std::thread::sleep(GLANCE);
    }
    target.end(Signal::KILL);
}

/// What a line says of the end.
enum Said {
    /// The command may run until then.
    Until(u64),
    /// It has ended.
    Done,
}

fn until(line: &str) -> Option<Said> {
    match line.split_once(' ') {
        Some(("until", at)) => Some(Said::Until(at.parse().unwrap_or(u64::MAX))),
        Some(_) => None,
        None => Some(Said::Done),
    }
}
