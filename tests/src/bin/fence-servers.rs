//! Runs a command beside a Postgres and an etcd that all test processes below it share. Without it each test process starts
//! its own.
//!
//! Usage: `fence-servers COMMAND [ARGUMENT ...]`. It ends with the exit code of the command.

use std::process::ExitCode;
use std::time::Duration;

use fence_tests::etcd::{self, Etcd};
use fence_tests::postgres::{self, Postgres};
use tokio::process::Command;

/// How often databases are removed whose test has ended.
const TIDY: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: fence-servers COMMAND [ARGUMENT ...]");
        return ExitCode::from(2);
    };
    let (postgres, etcd) = tokio::join!(Postgres::in_memory(), Etcd::in_memory());
    let mut command = Command::new(&program);
    command
        .args(words)
        .env(postgres::SHARED_PORT, postgres.port().to_string())
        .env(etcd::SHARED_PORT, etcd.port().to_string())
        .kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("fence-servers: {}: {error}", program.display());
            return ExitCode::from(127);
        }
    };
    let mut tidy = tokio::time::interval(TIDY);
    loop {
        tokio::select! {
            status = child.wait() => {
                let code = status.expect("a child can be waited for").code();
                return ExitCode::from(code.and_then(|code| code.try_into().ok()).unwrap_or(1));
            }
            _ = tidy.tick() => postgres.remove_what_is_left().await,
        }
    }
}
