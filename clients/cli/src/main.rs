//! `fence`: any command line under a fenced lock, and the hand of users and operators of a Fencegate.

mod app;
mod contact;
mod contexts;
mod data;
mod durations;
mod ending;
mod failure;
mod files;
mod help;
mod job;
mod locks;
mod operations;
mod operators;
mod options;
mod output;
mod progress;
mod records;
mod run;
mod s3;
mod settings;
mod shell;
mod status;
mod terminal;
mod under;

use std::process::ExitCode;

use clap::Parser as _;

use crate::app::with_app;
use crate::contact::Patience;
use crate::operators::Marking;
use crate::options::{Cli, Command};
use crate::output::Out;
use crate::run::init;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let common = &cli.common;
    // What needs no gateway.
    let command = match cli.command {
        Command::Run(options) => return init::under(|| run::run(common, &options)),
        Command::Elect(options) => return init::under(|| run::run(common, &options.into_run())),
        Command::Job(job) => return job.run(common),
        Command::Exec(exec) => return run::exec::become_command(&exec),
        Command::Watcher(watch) => return run::watcher::watch(&watch),
        Command::Completions(completions) => return ended(completions.run()),
        Command::Man(man) => return ended(man.run()),
        Command::Context(command) => return ended(command.run(common)),
        Command::Version => {
            let version = Out::new(common).line(&format!("fence {}", env!("CARGO_PKG_VERSION")));
            return ended(version.map(|()| ExitCode::SUCCESS));
        }
        command => command,
    };
    // What keeps a lock has just seen the gateway.
    let patience = match command {
        Command::Keep(_) => Patience::Unasked,
        _ => Patience::Short,
    };
    with_app(common, patience, async |app| match command {
        Command::Put(it) => it.run(app).await,
        Command::Get(it) => it.run(app).await,
        Command::Ls(it) => it.run(app).await,
        Command::Rm(it) => it.run(app).await,
        Command::Cp(it) => it.run(app).await,
        Command::Commit(it) => it.run(app).await,
        Command::Edit(it) => it.run(app).await,
        Command::Log(it) => it.run(app).await,
        Command::Diff(it) => it.run(app).await,
        Command::Lock(it) => it.run(app).await,
        Command::Keep(it) => it.run(app).await,
        Command::Renew(it) => it.run(app).await,
        Command::Unlock(it) => it.run(app).await,
        Command::Transfer(it) => it.run(app).await,
        Command::Fence(it) => it.run(app).await,
        Command::S3Key(it) => it.run(app).await,
        Command::Locks(it) => it.run(app).await,
        Command::Top(it) => it.run(app).await,
        Command::Watch(it) => it.run(app).await,
        Command::Show(it) => it.run(app).await,
        Command::Leader(it) => it.run(app).await,
        Command::Break(it) => it.run(app).await,
        Command::Freeze(it) => it.run(app, Marking::Freeze).await,
        Command::Unfreeze(it) => it.run(app, Marking::Unfreeze).await,
        Command::Protect(it) => it.run(app, Marking::Protect).await,
        Command::Unprotect(it) => it.run(app, Marking::Unprotect).await,
        Command::Rejections(it) => it.run(app).await,
        Command::Audit(it) => it.run(app).await,
        Command::Events(it) => it.run(app).await,
        Command::Operation(it) => it.run(app).await,
        Command::Intents(it) => it.run(app).await,
        Command::Resolve(it) => it.run(app).await,
        Command::Status => status::status(app).await,
        Command::Ping(it) => it.run(app).await,
        _ => Ok(ExitCode::SUCCESS),
    })
}

fn ended(result: Result<ExitCode, failure::Failure>) -> ExitCode {
    result.unwrap_or_else(|failure| failure.tell(false))
}

/// The command line is wrong, or asks for help.
fn refused(error: &clap::Error) -> ExitCode {
    let _lost = error.print();
    // What runs a command keeps the low codes for it.
    let words = std::env::args_os().skip(1).take_while(|word| word != "--");
    let runs = words.into_iter().any(|word| ["run", "elect", "agent"].iter().any(|it| word == *it));
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if runs => ExitCode::from(ending::FAILED),
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}
