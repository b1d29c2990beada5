//! The last step before a command runs: it is to end with its `fence`, whatever ends that.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::terminal::say;

/// Becomes a command.
#[derive(Debug, Args)]
pub struct Exec {
    /// The process that holds the lock.
    #[arg(long)]
    parent: i32,
    /// The program.
    #[arg(long)]
    program: PathBuf,
    /// How it is called, and its arguments.
    #[arg(last = true)]
    words: Vec<OsString>,
}

/// This very program, also if its file was replaced since it was started.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fence");
    command
}

/// The command that runs these words under the process that is asked.
pub fn command(program: &Path, words: &[OsString]) -> Command {
    let mut command = this_program();
    command.arg("__exec").arg(format!("--parent={}", std::process::id()));
    command.arg("--program").arg(program).arg("--").args(words);
    command
}

/// Becomes the command. Comes back only if it cannot be run.
pub fn become_command(exec: &Exec) -> ExitCode {
    // 1. Whoever kills `fence`, with whatever signal, ends this too.
    let bound = set_parent_process_death_signal(Some(Signal::TERM));
    // 2. It may have been killed before that.
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    if bound.is_err() || parent != Some(exec.parent) {
        return ExitCode::from(125);
    }
    // 3. The command.
    let Some((name, arguments)) = exec.words.split_first() else { return ExitCode::from(125) };
    let error = Command::new(&exec.program).arg0(name).args(arguments).exec();
    say(&format!("cannot run {}: {error}", exec.program.display()));
    ExitCode::from(super::lookup::code_of(&error))
}
