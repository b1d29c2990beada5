//! `wrong-driver`: the Rust driver around a client that makes the mistake named by `FENCE_TEST_CLIENT_MUTANT`, or none.

extern crate fencegate_wrong_client as fencegate_client;

#[path = "../../src/bin/rust-driver/main.rs"]
mod driver;

fn main() -> anyhow::Result<std::process::ExitCode> {
    if let Ok(name) = std::env::var("FENCE_TEST_CLIENT_MUTANT") {
        fencegate_client::mutants::choose(&name);
    }
    driver::main()
}
