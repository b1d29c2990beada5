//! `fencegate`, the server.

use std::process::ExitCode;

use clap::Parser as _;
use fencegate::cli::{self, Cli};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    if fence_core::mutants::COMPILED_IN {
        eprintln!("this build can be broken on purpose; it is for tests only");
        return ExitCode::FAILURE;
    }
    match cli::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
