//! Whom signals for a command go to.

use std::fmt;
use std::str::FromStr;

use rustix::process::{
    Pid, Signal, kill_process, kill_process_group, test_kill_process, test_kill_process_group,
};

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
        let _gone = match self {
            Self::Group(pid) => kill_process_group(pid, signal),
            Self::Process(pid) => kill_process(pid, signal),
        };
    }

    /// Whether any of them is there.
    pub fn is_there(self) -> bool {
        match self {
            Self::Group(pid) => test_kill_process_group(pid).is_ok(),
            Self::Process(pid) => test_kill_process(pid).is_ok(),
        }
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
