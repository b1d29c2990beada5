//! Follows the feed from connection to connection: where it stands, what it tries next, and when it rests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencegate_wire::json::WriteEvent;

use super::connection::{Connection, Failure, Opened, Said, WAIT_MS, poll};
use super::events::{FeedEvent, OnVoid};
use crate::client::Inner;
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::error::Error;
use crate::hooks::Event;
use crate::machine::backoff::Backoff;

/// For how long the feed is asked call by call, where streams are held back, before one is tried again.
const POLLS_MS: u64 = 300_000;
/// A stream that was open for so long was a good one, although nothing came.
const GOOD_MS: u64 = 10_000;

/// What makes the events: streams, or calls that wait where those are held back on the way.
pub(super) struct Following {
    inner: Arc<Inner>,
    place: Arc<Mutex<Option<String>>>,
    on_void: OnVoid,
    connection: Option<Box<Connection>>,
    /// What a poll found and was not given out yet.
    found: VecDeque<WriteEvent>,
    /// Until when no stream is tried.
    polls_until_ms: u64,
    /// The pause that the stream asks for before the next.
    retry_ms: Option<u64>,
    backoff: Backoff,
    attempts: u32,
    is_over: bool,
}

impl Following {
    pub(super) fn new(
        inner: Arc<Inner>,
        place: Arc<Mutex<Option<String>>>,
        on_void: OnVoid,
    ) -> Self {
        Self {
            inner,
            place,
            on_void,
            connection: None,
            found: VecDeque::new(),
            polls_until_ms: 0,
            retry_ms: None,
            backoff: Backoff::default(),
            attempts: 0,
            is_over: false,
        }
    }

    /// The next event; `None` at the end, or once the client is closed.
    pub(super) async fn next_unless_closed(&mut self) -> Option<Result<FeedEvent, Error>> {
        let closed = self.inner.closed.clone();
        tokio::select! {
            biased;
            () = closed.cancelled() => None,
            event = self.next() => event,
        }
    }

    async fn next(&mut self) -> Option<Result<FeedEvent, Error>> {
        while !self.is_over {
            while let Some(write) = self.found.pop_front() {
                if self.goes_on_to(&write.event) {
                    self.progress();
                    return Some(Ok(FeedEvent::Write(write)));
                }
            }
            let step = match &mut self.connection {
                Some(_) => self.listen().await,
                None if now_ms() < self.polls_until_ms => self.ask().await,
                None => self.connect().await,
            };
            match step {
                Ok(()) => {}
                Err(Failure::Passing { detail, floor_ms }) => self.rest(detail, floor_ms).await,
                Err(Failure::Definite(error)) => return Some(self.give_up(error).await),
            }
        }
        None
    }

    /// The last step towards the next event did good.
    fn progress(&mut self) {
        (self.backoff, self.attempts) = (Backoff::default(), 0);
    }

    /// Moves the place to that of an event; `false` if it lies at or before it: that was told already.
    fn goes_on_to(&self, event: &str) -> bool {
        let mut place = lock(&self.place);
        if place.as_deref().is_some_and(|place| is_told(place, event)) {
            return false;
        }
        *place = Some(event.to_owned());
        true
    }

    /// Moves the place where nothing was told, never back.
    fn stand_at(&self, stands: String) {
        let mut place = lock(&self.place);
        if !place.as_deref().is_some_and(|place| is_told(place, &stands)) {
            *place = Some(stands);
        }
    }

    async fn listen(&mut self) -> Result<(), Failure> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match connection.next().await {
            Ok(Said::Write(write)) => self.found.push_back(*write),
            Ok(Said::Place(place)) if !place.is_empty() => self.stand_at(place),
            Ok(Said::Place(_)) => {}
            Ok(Said::Retry(ms)) => self.retry_ms = Some(ms),
            Err(failure) => {
                if connection.opened_ms() + GOOD_MS <= now_ms() {
                    self.progress();
                }
                self.connection = None;
                return Err(failure);
            }
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        let after = lock(&self.place).clone();
        match Connection::open(&self.inner, after.as_deref()).await? {
            Opened::Stream(connection) => self.connection = Some(connection),
            Opened::HeldBack => self.polls_until_ms = now_ms() + POLLS_MS,
        }
        Ok(())
    }

    /// One call that waits. If it fails, it was perhaps not the stream's fault, either: the next is one.
    async fn ask(&mut self) -> Result<(), Failure> {
        let (after, began_ms) = (lock(&self.place).clone(), now_ms());
        let list = match poll(&self.inner, after.as_deref()).await {
            Ok(list) => list,
            Err(failure) => {
                self.polls_until_ms = 0;
                return Err(failure);
            }
        };
        let is_new = |write: &WriteEvent| {
            !after.as_deref().is_some_and(|after| is_told(after, &write.event))
        };
        self.found.extend(list.items.into_iter().filter(is_new));
        if !self.found.is_empty() {
            return Ok(());
        }
        self.stand_at(list.next_cursor);
        if began_ms + WAIT_MS / 2 > now_ms() {
            return Err(Failure::passing("an answer without events that did not wait for any"));
        }
        self.progress();
        Ok(())
    }

    /// A pause, longer each time until something good comes.
    async fn rest(&mut self, detail: String, floor_ms: Option<u64>) {
        self.attempts += 1;
        let attempt = self.attempts;
        self.inner.hooks.tell(&Event::Retry { call: "events", attempt, detail });
        let (floor_ms, half_to_whole) = (floor_ms.max(self.retry_ms), 0.5 + draw() / 2.0);
        let pause_ms = self.backoff.next(half_to_whole, floor_ms, u64::MAX).unwrap_or_default();
        sleep_until_ms(now_ms() + pause_ms).await;
    }

    async fn give_up(&mut self, error: Error) -> Result<FeedEvent, Error> {
        match error {
            Error::CursorVoid { begin_after: Some(begin_after) }
                if self.on_void == OnVoid::Continue =>
            {
                *lock(&self.place) = Some(begin_after.clone());
                self.rest("the place in the feed is void".to_owned(), None).await;
                Ok(FeedEvent::Void { begin_after })
            }
            error => {
                self.is_over = true;
                Err(error)
            }
        }
    }
}

/// The place in the feed.
pub(super) fn lock(place: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an event lies at or before a place, where both can be read: `g0-17`.
fn is_told(place: &str, event: &str) -> bool {
    let read = |text: &str| {
        let (generation, number) = text.strip_prefix('g')?.split_once('-')?;
        Some((generation.parse::<u64>().ok()?, number.parse::<u64>().ok()?))
    };
    match (read(place), read(event)) {
        (Some((generation, told)), Some((same, number))) => generation == same && number <= told,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_known_by_its_number() {
        assert!(is_told("g0-17", "g0-17") && is_told("g0-17", "g0-9"));
        assert!(!is_told("g0-17", "g0-18") && !is_told("g0-17", "g1-3"));
        assert!(!is_told("now", "g0-1") && !is_told("g0-1", "x"));
    }
}
