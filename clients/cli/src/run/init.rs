//! Process 1, or another that orphans are given to: it only hands signals on and waits for whoever ends, so that none is
//! left as a zombie. All else is done by a second `fence`, as whose children commands are waited for.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, child_subreaper, getpid, kill_process, wait,
};
use rustix::termios::tcsetpgrp;
use signal_hook::consts::{SIGCHLD, SIGTTIN, SIGTTOU};
use signal_hook::iterator::Signals;

use super::{exec, signals};
use crate::ending::{End, FAILED};
use crate::terminal::say;

/// Does what runs a command; where orphans are given to this process, in a second one.
pub fn under(work: impl FnOnce() -> ExitCode) -> ExitCode {
    let is_given_orphans =
        getpid().as_raw_nonzero().get() == 1 || child_subreaper().is_ok_and(|it| it.is_some());
    if !is_given_orphans {
        return work();
    }
    match second() {
        Ok(end) => end.carry_out(),
        Err(error) => {
            say(&format!("cannot start as a process of its own: {error}"));
            ExitCode::from(FAILED)
        }
    }
}

/// Starts the second one, and waits for its end.
fn second() -> std::io::Result<End> {
    // 1. From here on no signal ends or stops this process, and none is lost.
    let handed_on: Vec<Signal> = signals::heard().collect();
    let numbers = handed_on.iter().map(|it| it.as_raw());
    let mut heard = Signals::new(numbers.chain([SIGCHLD, SIGTTIN, SIGTTOU]))?;
    // 2. The same words once more. In a group of its own: what a terminal sends to all, it would hear twice.
    let words: Vec<OsString> =
        std::iter::once("fence".into()).chain(std::env::args_os().skip(1)).collect();
    let mut command = exec::command(std::path::Path::new("/proc/self/exe"), &words);
    let child = command.process_group(0).spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| std::io::Error::other("it has no process id"))?;
    if std::io::stdin().is_terminal() {
        // What is not this group's terminal is nobody's loss.
        let _given = tcsetpgrp(std::io::stdin(), pid);
    }
    // 3. Until it ends.
    if let Some(end) = ended(pid) {
        return Ok(end);
    }
    for signal in heard.forever() {
        match handed_on.iter().find(|it| it.as_raw() == signal) {
            Some(&signal) => {
                // It may have ended meanwhile.
                let _sent = kill_process(pid, signal);
            }
            None => {
                if let Some(end) = ended(pid) {
                    return Ok(end);
                }
            }
        }
    }
    Err(std::io::Error::other("no signals are heard"))
}

/// Waits for all that have ended, and gives the end of this one if it is among them.
fn ended(pid: Pid) -> Option<End> {
    let mut end = None;
    while let Ok(Some((of, status))) = wait(WaitOptions::NOHANG) {
        if of == pid {
            end = Some(of_status(status));
        }
    }
    end
}

fn of_status(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Code(u8::try_from(code).unwrap_or(FAILED)),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Code(FAILED),
    }
}
