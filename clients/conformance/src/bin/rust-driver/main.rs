//! `rust-driver`: does with `fencegate-client` what a scenario says. The protocol is in the README of this crate.

mod commands;
mod guards;
mod holding;
mod out;
mod reading;
mod state;
mod time;
mod told;
mod writes;

use std::io::BufRead as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::state::State;

/// Drives the Rust client as scenarios say, one JSON command a line.
#[derive(Parser)]
#[command(name = "rust-driver")]
struct Cli {
    /// Let time pass by itself, for real gateways
    #[arg(long)]
    real_time: bool,
}

/// What this driver has beyond what all need.
const FEATURES: &[&str] = &[
    "run", "deadlock", "download", "events", "elect", "stop", "observe", "shards", "upstream",
    "stall", "watch", "s3", "grace",
];

/// Does what the commands on its standard input say, until they end.
pub fn main() -> anyhow::Result<ExitCode> {
    let virtual_time = !Cli::parse().real_time;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(virtual_time)
        // One reads the standard input, and one does what blocks, in order.
        .max_blocking_threads(2)
        .build()?;
    runtime.block_on(drive(virtual_time));
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn drive(virtual_time: bool) {
    let state = Arc::new(State::new(virtual_time));
    state.out.say(json!({"driver": "rust", "virtual_time": virtual_time, "features": FEATURES}));
    let (sender, mut lines) = mpsc::unbounded_channel();
    // As long as this is under way, tokio does not move the paused clock by itself.
    tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        let Ok(mut command) = serde_json::from_str::<Value>(&line) else {
            eprintln!("no JSON: {line}");
            return;
        };
        let id = command.as_object_mut().and_then(|command| command.remove("id"));
        let Some(id) = id.and_then(|id| id.as_u64()) else {
            eprintln!("a command without a number: {line}");
            return;
        };
        let ends = command["do"] == "close";
        commands::begin(&state, id, command).await;
        if ends {
            return;
        }
    }
}
