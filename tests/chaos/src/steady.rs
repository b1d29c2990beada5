//! Steady callers: each asks for the same at the same pace, whatever happens. So goodput is what they are given in a
//! second. What other clients are given changes by chance, with what they happen to be doing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::book::Book;
use crate::client::Client;
use crate::rules::Doors;

/// Their numbers among the processes of clients: the first gateway's callers have the first, and so on.
const NUMBERS: std::ops::Range<u32> = 40_100..40_200;
/// How many call each gateway, each on a resource of its own, and how often.
const CALLERS: usize = 8;
const PACE: Duration = Duration::from_millis(200);
/// How long one waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether a process is one of steady callers.
pub fn is_steady(process: u64) -> bool {
    u32::try_from(process).is_ok_and(|process| NUMBERS.contains(&process))
}

/// All steady callers, until they are told to end.
pub struct Steady {
    lives: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Steady {
    /// Starts them, as callers of these gateways.
    pub fn start(book: &Book, doors: &Doors) -> Self {
        let (mut lives, stop) = (Vec::new(), Arc::new(AtomicBool::new(false)));
        for (gateway, number) in (0..doors.addresses.len()).zip(NUMBERS) {
            let book = book.clone();
            let one = Client::of(number, doors, Some(gateway), move |line| book.write(line));
            for (caller, client) in one.and_others(CALLERS, PATIENCE).into_iter().enumerate() {
                let on = format!("steady-{gateway}-{caller}");
                lives.push(tokio::spawn(live(client, on, Arc::clone(&stop))));
            }
        }
        Self { lives, stop }
    }

    /// Lets each finish what it is at.
    ///
    /// # Errors
    /// One has panicked.
    pub async fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        for life in self.lives {
            life.await.context("a steady caller")?;
        }
        Ok(())
    }
}

async fn live(mut client: Client, on: String, stop: Arc<AtomicBool>) {
    let mut pace: Interval = interval(PACE);
    // A call that took long is not made up for: otherwise callers would ask for more than before after each fault.
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.load(Ordering::SeqCst) {
        client.take_a_turn(&on, &mut pace).await;
    }
}
