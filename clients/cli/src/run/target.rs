//! Whom signals for a command go to.

use std::fmt;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process,
    test_kill_process_group, waitpgid,
};

use crate::terminal::say;

/// The processes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// All in its group, which it leads.
    Group(Pid),
    /// It alone: it shares the group of `fence`, for the sake of the terminal.
    Process(Pid),
}

impl Target {
    /// Sends a signal to those that are there.
    pub fn send(self, signal: Signal) {
        let sent = match self {
            Self::Group(pid) => kill_process_group(pid, signal),
            Self::Process(pid) => kill_process(pid, signal),
        };
        // A command that became another user's, by sudo(8) for instance.
        if sent == Err(Errno::PERM) {
            say(
                "the command may not be signalled: it runs as somebody else. Put sudo in front of fence",
            );
        }
    }

    /// Whether any of them is there, also one that may not be signalled.
    pub fn is_there(self) -> bool {
        let asked = match self {
            Self::Group(pid) => {
                // As process 1 `fence` inherits orphans, which are there until they are waited for.
                while let Ok(Some(_)) = waitpgid(pid, WaitOptions::NOHANG) {}
                test_kill_process_group(pid)
            }
            Self::Process(pid) => test_kill_process(pid),
        };
        asked != Err(Errno::SRCH)
    }

    /// Whether the command has a group of its own.
    pub fn is_group(self) -> bool {
        matches!(self, Self::Group(_))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(pid) => write!(f, "group {}", pid.as_raw_nonzero()),
            Self::Process(pid) => write!(f, "process {}", pid.as_raw_nonzero()),
        }
    }
}

impl FromStr for Target {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, pid) = text.split_once(' ').ok_or(())?;
        let pid = pid.parse().ok().and_then(Pid::from_raw).ok_or(())?;
        match kind {
            "group" => Ok(Self::Group(pid)),
            "process" => Ok(Self::Process(pid)),
            _ => Err(()),
        }
    }
}
