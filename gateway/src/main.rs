//! `fencegate`, the server.

use std::process::ExitCode;

use clap::Parser as _;
use fencegate::cli::{self, Cli};

fn main() -> ExitCode {
    match cli::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
