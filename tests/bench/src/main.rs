//! A comparison that anyone can run: the gateway beside what people would use instead, on one machine, in one
//! run, in turn. And what memory the gateway takes.
#![expect(
    clippy::disallowed_methods,
    reason = "a program of its own: it measures by the real clock"
)]

mod access;
mod beside;
mod callers;
mod client;
mod compare;
mod fill;
mod fill_sqlite;
mod filler;
mod flood;
mod growth;
mod hostile;
mod http;
mod ledgers;
mod line;
mod lists;
mod load;
mod locks;
mod memory;
mod needs;
mod ours;
mod overload;
mod pairs;
mod paths;
mod pgbench;
mod plots;
mod prepared;
mod report;
mod rivals;
mod room;
mod s3;
mod sample;
mod seen;
mod series;
mod servers;
mod shares;
mod side;
mod table;
mod theirs;
mod traced;
mod usage;
mod version;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::access::Access;
use crate::beside::Beside;
use crate::client::Client;
use crate::compare::Compare;
use crate::filler::Filler;
use crate::growth::Growth;
use crate::hostile::Hostile;
use crate::lists::Lists;
use crate::memory::Memory;
use crate::needs::Need;
use crate::overload::Overload;
use crate::room::Room;
use crate::s3::S3;
use crate::seen::Seen;
use crate::shares::Shares;
use crate::traced::Traced;

/// Measures a Fencegate beside what people would use instead.
///
/// Starts Postgres, etcd, Redis, an S3 server and gateways, as far as the rows need them, measures each path and its
/// rival in turn, and prints a table. Exits with 1 if a ratio is so bad that something must be broken, and with 2 if
/// something could not be measured.
#[derive(Parser)]
#[command(name = "fence-bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    beside: Beside,
}

#[derive(Subcommand)]
enum Command {
    /// Compares with a version before, in turn, and that one with itself; exits with 1 if this one is slower
    Compare(Compare),
    /// Fills the tables of a ledger with resources that are locked and were written once
    Fill(Filler),
    /// Measures the gateway's memory under load; exits with 1 if it takes more than it may, or more and more
    Memory(Memory),
    /// Measures lists of a ledger of very many resources; exits with 1 if a page costs more than what it holds
    Lists(Lists),
    /// Measures what stays behind under load; exits with 1 if what is kept for a while grows for ever
    Growth(Growth),
    /// Measures who gets through while as many wait as there are connections; exits with 1 if it takes too long
    Room(Room),
    /// Measures what a write costs this process by the Rust client, beside bare reqwest; exits with 1 if the client takes
    /// too much more
    Client(Client),
    /// Measures what callers are told under overload; exits with 1 if it is too little
    Overload(Overload),
    /// Measures what rules of access cost, and whether a key tells by its time that its id is known; exits with 1 if it
    /// is too much, or if it does
    Access(Access),
    /// Measures what it costs a write that it is in the log, and that metrics are fetched; exits with 1 if it is too much
    Seen(Seen),
    /// Measures what S3 costs beside the gateway's own API, large objects in parts, and lists of very many objects; exits
    /// with 1 if it is too much
    S3(S3),
    /// Measures what traces cost a write where none are exported, beside another gateway; exits with 1 if it is too much
    Traced(Traced),
    /// Measures how much of its goodput a principal keeps while another asks for ten times its share; exits with 1 if it is
    /// too little
    Shares(Shares),
    /// Measures how much of its goodput a principal keeps while another means harm, in each way that the tests know; exits
    /// with 1 if it is too little
    Hostile(Hostile),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(cli: Cli) -> Result<bool> {
    needs::check(cli.command.iter().flat_map(Command::needs).copied())?;
    match cli.command {
        Some(Command::Compare(compare)) => compare.run().await,
        Some(Command::Fill(filler)) => filler.run().await,
        Some(Command::Memory(memory)) => memory.run().await,
        Some(Command::Lists(lists)) => lists.run().await,
        Some(Command::Growth(growth)) => growth.run().await,
        Some(Command::Room(room)) => room.run().await,
        Some(Command::Client(client)) => client.run().await,
        Some(Command::Overload(overload)) => overload.run().await,
        Some(Command::Access(access)) => access.run().await,
        Some(Command::Seen(seen)) => seen.run().await,
        Some(Command::S3(s3)) => s3.run().await,
        Some(Command::Shares(shares)) => shares.run().await,
        Some(Command::Hostile(hostile)) => hostile.run().await,
        Some(Command::Traced(traced)) => traced.run().await,
        None => cli.beside.run().await,
    }
}

impl Command {
    /// The programs that it needs, where that does not depend on its rows.
    fn needs(&self) -> &'static [Need] {
        match self {
            Self::Compare(_) | Self::Fill(_) => &[],
            Self::Client(_) => &[Need::Gateway],
            Self::Growth(_) | Self::S3(_) => &[Need::Gateway, Need::Postgres, Need::Etcd, Need::S3],
            Self::Overload(_) => &[Need::Gateway, Need::Postgres, Need::Etcd, Need::Cc],
            Self::Memory(_)
            | Self::Lists(_)
            | Self::Room(_)
            | Self::Access(_)
            | Self::Seen(_)
            | Self::Traced(_)
            | Self::Shares(_)
            | Self::Hostile(_) => &[Need::Gateway, Need::Postgres, Need::Etcd],
        }
    }
}
