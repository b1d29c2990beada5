//! Whom signals for a command go to.

use std::fmt;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, kill_process, kill_process_group, test_kill_process,
    test_kill_process_group, waitpgid,
};

use super::marks;
use crate::terminal::say;

/// Where the processes of a command are found without looking for marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the group that the command leads.
    Group(Pid),
    /// The command alone: it shares the group of `fence`, or it could not read from the terminal.
    Leader(Pid),
    /// Nowhere: there was no group, and the command itself has ended.
    Nowhere,
}

/// The processes of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    place: Place,
    /// The run that they are marked with.
    run: String,
}

impl Target {
    /// Those of a command that was started.
    pub fn of(command: Pid, has_group: bool, run: &str) -> Self {
        let place = if has_group { Place::Group(command) } else { Place::Leader(command) };
        Self { place, run: run.to_owned() }
    }

    /// The command itself has ended, and its number may become another's.
    pub fn has_ended(&mut self) {
        if let Place::Leader(_) = self.place {
            self.place = Place::Nowhere;
        }
    }

    /// Whether the command has a group of its own.
    pub fn has_group(&self) -> bool {
        matches!(self.place, Place::Group(_))
    }

    /// Hands a signal on: to its group, or to it alone.
    pub fn send(&self, signal: Signal) {
        let sent = match self.place {
            Place::Group(leader) => kill_process_group(leader, signal),
            Place::Leader(leader) => kill_process(leader, signal),
            Place::Nowhere => Ok(()),
        };
        // A command that became another user's, by sudo(8) for instance.
        if sent == Err(Errno::PERM) {
            say(
                "the command may not be signalled: it runs as somebody else. Put sudo in front of fence",
            );
        }
    }

    /// Sends what is to end them to all of them, wherever they went.
    pub fn end(&self, signal: Signal) {
        self.send(signal);
        if signal == Signal::KILL {
            return marks::kill(&self.run);
        }
        // Once to each: a second TERM means KILL to some.
        marks::send(&self.run, signal, |pid| match self.place {
            Place::Group(leader) => getpgid(Some(pid)) != Ok(leader),
            Place::Leader(leader) => pid != leader,
            Place::Nowhere => true,
        });
    }

    /// Whether any of them is there, also one that may not be signalled.
    pub fn is_there(&self) -> bool {
        let asked = match self.place {
            Place::Group(leader) => {
                // As process 1 `fence` inherits orphans, which are there until they are waited for.
                while let Ok(Some(_)) = waitpgid(leader, WaitOptions::NOHANG) {}
                test_kill_process_group(leader)
            }
            Place::Leader(leader) => test_kill_process(leader),
            Place::Nowhere => Err(Errno::SRCH),
        };
        asked != Err(Errno::SRCH) || marks::are_there(&self.run)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Group(pid) => write!(f, "group {} {}", pid.as_raw_nonzero(), self.run),
            Place::Leader(pid) => write!(f, "leader {} {}", pid.as_raw_nonzero(), self.run),
            Place::Nowhere => write!(f, "nowhere 0 {}", self.run),
        }
    }
}

impl FromStr for Target {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.splitn(3, ' ');
        let mut word = || words.next().ok_or(());
        let (place, pid, run) = (word()?, word()?, word()?.to_owned());
        let pid = pid.parse().ok().and_then(Pid::from_raw).ok_or(());
        let place = match place {
            "group" => Place::Group(pid?),
            "leader" => Place::Leader(pid?),
            "nowhere" => Place::Nowhere,
            _ => return Err(()),
        };
        Ok(Self { place, run })
    }
}
