//! Hostile ways: how much of its goodput a principal keeps while another means harm, in each way that
//! `tests/it/operating/hostile.rs` knows; beside the same load sent to a socket that discards it.

mod bob;
mod site;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use tokio::time::{sleep, timeout};

use crate::flood::{PAUSE, Sink};
use crate::report::Spread;
use crate::servers::warm_up;
use crate::usage::allow_files;
use bob::{Bob, KINDS, Paces};
use site::Site;

/// Part of its goodput that a principal must keep.
const KEPT_MIN: f64 = 0.9;
/// Files that are open at a time, at most.
const FILES: u64 = 8_000;

/// Rounds, ways and pace of the measurement.
#[derive(Debug, clap::Args)]
pub struct Hostile {
    /// Rounds for each way, each with the load at the gateway and at the socket that discards it
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    /// How long each of the two lasts in a round, in seconds
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Only these; all, if none is named
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Way>,
    /// The other principal asks as fast as it is answered, not half as fast as it is answered where it is alone: then what
    /// the first one is lawfully served counts as well
    #[arg(long)]
    closed: bool,
}

/// A way of doing harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Renewals, releases and writes that wait for an idle guarded transaction on many resources
    Guarded,
    /// Deletes of a resource with more objects than one act removes
    Deletes,
    /// Copies of a small object over S3, ten times as many as may be asked for
    Copies,
    /// Copies of a large object over S3, ten times as many at a time as there are places
    LargeCopies,
    /// Uploads that do not end, ten times as many as there are places
    Uploads,
}

impl Way {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Hostile {
    /// Measures, and prints what comes out. Says whether goodput is kept in all ways.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(self.rounds > 0 && self.seconds > 0, "there are rounds and seconds");
        allow_files(FILES)?;
        let mut site = Site::start().await;
        let sink = Sink::open().await?;
        let bob = Bob::new(&site).await?;
        let alone = self.answered(&bob, [None; 3]).await;
        ensure!(alone.iter().all(|rate| *rate > 0.0), "not all was answered to one who was alone");
        let paces = if self.closed { [None; 3] } else { bob.paces(alone) };
        println!("alone: {}", row(alone.map(|rate| format!("{rate:.0}/s"))));
        println!("| the other sends | {} kept |\n|---|--:|--:|--:|", KINDS.join(" kept | "));
        let mut all_well = true;
        for way in Way::value_variants().iter().copied() {
            if !self.only.is_empty() && !self.only.contains(&way) {
                continue;
            }
            let kept = self.measured(&mut site, &bob, (way, paces), &sink).await?;
            let is_well = kept.iter().all(|ratios| is_kept(ratios));
            all_well &= is_well;
            let kept = kept.map(|ratios| Spread::of(ratios.into_iter()).to_string());
            let not = if is_well { "" } else { " NOT MET" };
            println!("| {} | {} |{not}", way.name(), row(kept));
        }
        println!("wanted: no less than {KEPT_MIN} in at least a quarter of the rounds");
        Ok(all_well)
    }

    /// Ratios of the goodput of each kind with and without the load, round by round. Each half goes first in every other round.
    async fn measured(
        &self,
        site: &mut Site,
        bob: &Bob,
        (way, paces): (Way, Paces),
        sink: &Sink,
    ) -> Result<[Vec<f64>; 3]> {
        let mut kept = [const { Vec::new() }; 3];
        for round in 0..self.rounds {
            let order = if round % 2 == 0 { [None, Some(sink)] } else { [Some(sink), None] };
            let (mut with, mut without) = ([0.0; 3], [0.0; 3]);
            for half in order {
                let answered = self.beside(site, bob, (way, paces), half).await?;
                *(if half.is_some() { &mut without } else { &mut with }) = answered;
            }
            for (at, kept) in kept.iter_mut().enumerate() {
                ensure!(without[at] > 0.0, "{}: no {} were answered", way.name(), KINDS[at]);
                kept.push(with[at] / without[at]);
            }
        }
        Ok(kept)
    }

    /// Answers of each kind a second while this load goes to the gateway, or to the socket that discards it.
    ///
    /// The idle transaction of a load is there in both halves: that an open one keeps Postgres from clearing away old versions
    /// of rows is nothing that a gateway could mend.
    async fn beside(
        &self,
        site: &mut Site,
        bob: &Bob,
        (way, paces): (Way, Paces),
        sink: Option<&Sink>,
    ) -> Result<[f64; 3]> {
        let load = site.load(way).await?;
        let before = site.usage().await?;
        let mut flood = load.flood.begin(sink.map_or(load.at, |sink| sink.address));
        sleep(PAUSE).await;
        let waiting = async {
            match (&load.idle, sink) {
                (Some(idle), None) => timeout(self.lasts(), site.until_waiting(idle)).await.ok(),
                _ => None,
            }
        };
        let (answered, waiting) = tokio::join!(self.answered(bob, paces), waiting);
        let after = site.usage().await?;
        // Beside requests that do nothing of this, nothing would be measured.
        let does_harm = match way {
            Way::Guarded => waiting.transpose()?.is_some(),
            Way::Deletes => after.requests > before.requests,
            Way::Copies | Way::LargeCopies | Way::Uploads => after.refused > before.refused,
        };
        ensure!(does_harm || sink.is_some(), "{}: it did no harm", way.name());
        flood.shutdown().await;
        drop(load);
        // What was under way of it ends.
        sleep(PAUSE).await;
        Ok(answered)
    }

    /// Answers of each kind a second.
    async fn answered(&self, bob: &Bob, paces: Paces) -> [f64; 3] {
        let mut going = bob.begin(paces);
        sleep(warm_up(self.lasts())).await;
        let before = going.answered();
        sleep(self.lasts()).await;
        let after = going.answered();
        going.tasks.shutdown().await;
        std::array::from_fn(|kind| (after[kind] - before[kind]) as f64 / self.seconds as f64)
    }

    fn lasts(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Tells if enough is kept. Less in a few rounds is their spread; less in more than three quarters of them is less.
fn is_kept(ratios: &[f64]) -> bool {
    let less = ratios.iter().filter(|ratio| **ratio < KEPT_MIN).count();
    4 * less <= 3 * ratios.len()
}

fn row(columns: [String; 3]) -> String {
    columns.join(" | ")
}
