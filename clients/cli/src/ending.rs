//! How `fence` ends: with a code, or by a signal: its own, or the one that its command died of.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};

/// `fence` itself failed.
pub const FAILED: u8 = 125;
/// The command ran for too long.
pub const OVERDUE: u8 = 124;

/// An end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With a code.
    Code(u8),
    /// Of a signal, so that shells and make(1) see what happened.
    Signal(i32),
}

impl End {
    /// As a command ended.
    pub fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(u8::try_from(code).unwrap_or(FAILED)),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(FAILED),
        }
    }

    /// Whether all went well.
    pub fn is_good(self) -> bool {
        self == Self::Code(0)
    }

    /// Ends the process so.
    pub fn carry_out(self) -> ExitCode {
        match self {
            Self::Code(code) => ExitCode::from(code),
            // The kernel does not let process 1 send itself a signal that ends it.
            Self::Signal(signal) if getpid().as_raw_nonzero().get() == 1 => {
                ExitCode::from(u8::try_from(128 + signal).unwrap_or(FAILED))
            }
            Self::Signal(signal) => {
                // One core of the command is enough.
                let _kept = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: None });
                let _died = signal_hook::low_level::emulate_default_handler(signal);
                // What no handler can be for, and what does not end a process.
                if signal == Signal::KILL.as_raw() {
                    let _died = kill_process(getpid(), Signal::KILL);
                }
                ExitCode::from(u8::try_from(128 + signal).unwrap_or(FAILED))
            }
        }
    }
}
