//! `fencegate`, the server.

use std::process::ExitCode;

use clap::Parser as _;
use fencegate::cli::{self, Cli};

fn main() -> ExitCode {
    assert!(
        !fence_core::mutants::COMPILED_IN,
        "this build can be broken on purpose; it is for tests only"
    );
    match cli::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
