//! Stands in line for the lock, and says so to whoever watches.

use std::convert::Infallible;
use std::time::Duration;

use fencegate_client::wire::shown::escaped;
use fencegate_client::{Busy, BusyKind, Client, Error, Lock, LockBuilder};
use rustix::process::Signal;

use super::nested;
use super::signals::Signals;
use crate::failure::Failure;
use crate::{durations, terminal};

/// How long the wait is before anything is said of it, and how often it is said anew.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// What came of it.
pub enum Waited {
    /// The lock.
    Lock(Lock),
    /// Somebody else has it still.
    NotHad(Box<Busy>),
    /// This signal came first: the place in line is given up.
    Signal(Signal),
    /// The gateway could not be asked, or refused; or it would wait for itself.
    Failed(Failure),
}

/// Waits for the lock.
pub async fn acquire(
    client: &Client,
    lock: LockBuilder,
    on: &[String],
    signals: &mut Signals,
) -> Waited {
    let taken = async {
        if let Err(failure) = nested::check(client, on).await {
            return Waited::Failed(failure);
        }
        match lock.acquire().await {
            Ok(lock) => Waited::Lock(lock),
            Err(Error::Busy(busy)) if is_conflict(busy.kind) => Waited::NotHad(Box::new(busy)),
            Err(error) => Waited::Failed(error.into()),
        }
    };
    let line = Line { is_shown: false };
    tokio::select! {
        biased;
        signal = signals.next_that_ends() => Waited::Signal(signal),
        waited = taken => waited,
        never = tell(client, on, line) => match never {},
    }
}

fn is_conflict(kind: BusyKind) -> bool {
    !matches!(kind, BusyKind::InProgress | BusyKind::Other)
}

/// A line on the terminal that is written again and again, and gone when this is.
struct Line {
    is_shown: bool,
}

impl Line {
    fn show(&mut self, text: &str) {
        terminal::write(&format!("\r\x1b[2K{}", escaped(text)));
        self.is_shown = true;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.is_shown {
            terminal::write("\r\x1b[2K");
        }
    }
}

/// Says who has the lock, and how many come first.
async fn tell(client: &Client, on: &[String], mut line: Line) -> Infallible {
    if !terminal::is_lively() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(TOLD_EVERY).await;
        for name in on {
            let Ok(resource) = client.resource(name).await else { continue };
            if resource.state.as_str() == "free" {
                continue;
            }
            let held = durations::show_ms(resource.age_ms);
            let place = match place(client, name).await {
                Some(place) => format!(", you are {}", ordinal(place)),
                None => String::new(),
            };
            line.show(&format!("waiting for {name}: {}, held {held}{place}", resource.owner));
            break;
        }
    }
}

/// The place in line, from 1.
async fn place(client: &Client, name: &str) -> Option<i64> {
    let waiters = client.waiters(name).page(None).await.ok()?.items;
    waiters.iter().find(|waiter| waiter.owner == client.owner()).map(|waiter| waiter.position)
}

fn ordinal(number: i64) -> String {
    let ending = match (number % 10, number % 100) {
        (1, 1..=10 | 12..) => "st",
        (2, 1..=11 | 13..) => "nd",
        (3, 1..=12 | 14..) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn places_are_counted_as_people_do() {
        let said = [1, 2, 3, 4, 11, 12, 13, 21, 101, 111, 112].map(super::ordinal);
        let expected =
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "101st", "111th", "112th"];
        assert_eq!(said, expected);
    }
}
