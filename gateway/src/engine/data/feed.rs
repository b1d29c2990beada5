//! The feed of committed writes: one task per gateway has them numbered, and tells readers that there
//! is more.
//!
//! While somebody waits for news it takes a step about every 300 ms, which reaches every gateway whatever was
//! written through which one, and at once after writes of this very gateway. While nobody does it goes
//! on slowly, so that what is left to number stays little. What is new is read once for all readers that
//! are waiting for it; whoever is further back reads for itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fence_core::ResourceName;
use fence_core::ports::{
    Applied, EventCursor, EventsHead, EventsPage, Ledger, Runtime, VersionsFilter,
};
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, EngineError};

/// The most readers of one gateway that wait for events; more are turned away.
pub const READERS_MAX: usize = 4_000;
/// How often a step is taken while somebody waits.
const INTERVAL: Duration = Duration::from_millis(300);
/// How often while nobody does.
const IDLE_INTERVAL: Duration = Duration::from_secs(2);
/// Between two steps at least, however much is written: each is a commit, which the writes share the disk with. For somebody
/// who has just come, less.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_FOR_NEWCOMERS: Duration = Duration::from_millis(10);
/// How often a newcomer asks for a step that another gateway's does not come in the way of.
const TRIES_MAX: u32 = 5;

/// The events that one step reads for all readers.
const NEWS_MAX: i64 = 1_000;
/// The events that are kept for readers that are a little behind.
const RECENT_MAX: usize = 2_000;
/// Versions that one page of a history with a prefix looks through: they are found in their order alone.
const HISTORY_MAX: i64 = 10_000;

/// The feed; cheap to clone.
#[derive(Clone)]
pub(in crate::engine) struct Feed {
    inner: Arc<Inner>,
}

struct Inner {
    readers: AtomicUsize,
    /// Those of them that have read all there is.
    waiting: AtomicUsize,
    is_awaited: Notify,
    poked: Notify,
    has_newcomers: Notify,
    newcomers: Mutex<Vec<oneshot::Sender<()>>>,
    recent: Mutex<Recent>,
    /// How far the numbering has come, as far as this gateway knows.
    head: watch::Sender<Option<EventCursor>>,
}

impl Feed {
    /// Starts the task.
    pub(in crate::engine) fn start(
        ledger: Arc<dyn Ledger>,
        runtime: &Runtime,
        closing: CancellationToken,
    ) -> Self {
        let inner = Arc::new(Inner {
            readers: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            is_awaited: Notify::new(),
            poked: Notify::new(),
            has_newcomers: Notify::new(),
            newcomers: Mutex::default(),
            recent: Mutex::default(),
            head: watch::Sender::new(None),
        });
        let task = Arc::clone(&inner).run(ledger, runtime.clone(), closing);
        runtime.spawn.spawn_lasting("feed", Box::pin(task));
        Self { inner }
    }

    /// This gateway has written something.
    pub(in crate::engine) fn poke(&self) {
        if self.inner.waiting.load(Ordering::Acquire) > 0 {
            self.inner.poked.notify_one();
        }
    }

    /// Resolves once a step that began after this call has ended, or could not be taken.
    fn step(&self) -> oneshot::Receiver<()> {
        let (done, step) = oneshot::channel();
        self.inner.newcomers().push(done);
        self.inner.has_newcomers.notify_one();
        step
    }

    /// How many read.
    pub(in crate::engine) fn readers(&self) -> usize {
        self.inner.readers.load(Ordering::Acquire)
    }

    /// A place among the readers.
    fn enter(&self) -> Result<Place, EngineError> {
        let place = Place { inner: Arc::clone(&self.inner) };
        // Counted before it is judged: a place that is dropped counts itself out.
        if self.inner.readers.fetch_add(1, Ordering::AcqRel) >= READERS_MAX {
            return Err(EngineError::Overloaded("events"));
        }
        Ok(place)
    }
}

impl Inner {
    fn newcomers(&self) -> MutexGuard<'_, Vec<oneshot::Sender<()>>> {
        self.newcomers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is new for everybody who waits for it. If that fails they read for themselves.
    async fn remember(&self, ledger: &dyn Ledger, last: EventCursor) {
        let known = *self.head.borrow();
        let Some(known) = known.filter(|known| known.generation == last.generation) else { return };
        if known == last || self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Ok(page) = ledger.events(known, NEWS_MAX).await
            && page.void(known).is_none()
        {
            self.recent().append(page);
        }
    }

    async fn run(
        self: Arc<Self>,
        ledger: Arc<dyn Ledger>,
        runtime: Runtime,
        closing: CancellationToken,
    ) {
        let mut failed = false;
        let mut tries = 0;
        loop {
            let newcomers =
                std::mem::take(&mut *self.newcomers.lock().unwrap_or_else(PoisonError::into_inner));
            let numbered = match ledger.number_events().await {
                Ok(head) => {
                    if std::mem::take(&mut failed) {
                        tracing::info!("events are numbered again");
                    }
                    Some(head)
                }
                // The page that a reader asks for next says why, if it cannot be read either.
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, "events are not numbered; readers wait");
                    }
                    None
                }
            };
            let whole = numbered.as_ref().is_none_or(|head| head.whole);
            if whole || newcomers.is_empty() || tries == TRIES_MAX {
                tries = 0;
                drop(newcomers);
            } else {
                // Another gateway's step may have begun before what they want to see.
                tries += 1;
                self.newcomers().extend(newcomers);
                self.has_newcomers.notify_one();
            }
            if let Some(EventsHead { last, .. }) = numbered {
                self.remember(&*ledger, last).await;
                self.head.send_if_modified(|known| known.replace(last) != Some(last));
            }
            if closing.run_until_cancelled(self.rest(&runtime)).await.is_none() {
                return;
            }
        }
    }

    /// Until the next step is due.
    async fn rest(&self, runtime: &Runtime) {
        let clock = &runtime.clock;
        clock.sleep(PAUSE_FOR_NEWCOMERS).await;
        let due = async {
            clock.sleep(PAUSE).await;
            if self.waiting.load(Ordering::Acquire) == 0 {
                tokio::select! {
                    biased;
                    () = self.is_awaited.notified() => {}
                    () = clock.sleep(IDLE_INTERVAL) => return,
                }
            }
            tokio::select! {
                biased;
                () = self.poked.notified() => {}
                () = clock.sleep(INTERVAL) => {}
            }
        };
        tokio::select! {
            biased;
            () = self.has_newcomers.notified() => {}
            () = due => {}
        }
    }
}

/// The last events, without gaps.
#[derive(Default)]
struct Recent {
    generation: i64,
    events: VecDeque<(i64, Applied)>,
}

impl Recent {
    fn append(&mut self, page: EventsPage) {
        let follows = self.events.back().zip(page.events.first());
        let follows = follows.is_some_and(|((last, _), (first, _))| *first == last + 1);
        if !follows || self.generation != page.last.generation {
            self.events.clear();
        }
        self.generation = page.last.generation;
        self.events.extend(page.events);
        let old = self.events.len().saturating_sub(RECENT_MAX);
        self.events.drain(..old);
    }

    /// What is behind this place; nothing if that is not known here.
    fn after(&self, at: EventCursor, limit: i64) -> Vec<(EventCursor, Applied)> {
        let first = self.events.front().map(|(number, _)| *number);
        let known =
            first.filter(|first| self.generation == at.generation && at.number + 1 >= *first);
        let Some(first) = known else { return Vec::new() };
        let skipped = usize::try_from(at.number + 1 - first).unwrap_or(usize::MAX);
        let place = |number| EventCursor { generation: self.generation, number };
        let found = self.events.iter().skip(skipped).take(usize::try_from(limit).unwrap_or(0));
        found.map(|(number, event)| (place(*number), event.clone())).collect()
    }
}

/// A place among the readers, until it is dropped.
struct Place {
    inner: Arc<Inner>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inner.readers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Somebody who waits for news, until it is dropped.
struct Waiting<'a>(&'a Inner);

impl<'a> Waiting<'a> {
    fn among(inner: &'a Inner) -> Self {
        if inner.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            inner.is_awaited.notify_one();
        }
        Self(inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventsFrom {
    /// With the first event that is kept.
    Beginning,
    /// With what is committed from now on.
    Now,
    /// Behind this event.
    After(EventCursor),
}

/// A reader of the feed.
pub struct EventReader {
    engine: Engine,
    at: EventCursor,
    news: watch::Receiver<Option<EventCursor>>,
    place: Place,
}

impl EventReader {
    /// Where it is: behind the last event that it gave out.
    pub fn at(&self) -> EventCursor {
        self.at
    }

    /// The events behind that, at most so many; none if there are none yet.
    ///
    /// # Errors
    /// `EventsVoid` if the ledger was re-fenced since, or has let go of events that this reader has not seen.
    pub async fn page(&mut self, limit: i64) -> Result<Vec<(EventCursor, Applied)>, EngineError> {
        let page = self.engine.event_page(self.at, limit).await?;
        if let Some(begin) = page.void(self.at) {
            return Err(EngineError::EventsVoid { begin });
        }
        let generation = page.last.generation;
        let place = |number| EventCursor { generation, number };
        let events: Vec<_> = page.events.into_iter().map(|(n, event)| (place(n), event)).collect();
        if let Some((last, _)) = events.last() {
            self.at = *last;
        }
        Ok(events)
    }

    /// The events behind where it is, as far as they are kept here, or else from the ledger; none if there are none yet.
    ///
    /// # Errors
    /// As of [`page`](Self::page).
    pub async fn behind(&mut self, limit: i64) -> Result<Vec<(EventCursor, Applied)>, EngineError> {
        self.news.borrow_and_update();
        let events = self.place.inner.recent().after(self.at, limit);
        let Some((last, _)) = events.last() else { return self.page(limit).await };
        self.at = *last;
        Ok(events)
    }

    /// Waits until there may be more than [`behind`](Self::behind) has found.
    ///
    /// # Errors
    /// `ShuttingDown`.
    pub async fn news(&mut self) -> Result<(), EngineError> {
        let _waiting = Waiting::among(&self.place.inner);
        self.news.changed().await.map_err(|_| EngineError::ShuttingDown)
    }

    /// The events behind where it is, once there are any.
    ///
    /// # Errors
    /// As of both.
    pub async fn next(&mut self, limit: i64) -> Result<Vec<(EventCursor, Applied)>, EngineError> {
        loop {
            let events = self.behind(limit).await?;
            if !events.is_empty() {
                return Ok(events);
            }
            self.news().await?;
        }
    }
}

impl Engine {
    /// Waits until whatever was committed before this call has its number, if that can be done. Others wait for the same.
    pub async fn number_events(&self) {
        let step = self.inner.feed.step();
        // Whether it came or not: what there is can be read without.
        let _ = self.inner.runtime.within(self.inner.settings.request_timeout, step).await;
    }

    /// Begins to read the feed. Whatever has a number by now is seen by it.
    ///
    /// # Errors
    /// `Overloaded` with [`READERS_MAX`] readers.
    pub async fn read_events(&self, from: EventsFrom) -> Result<EventReader, EngineError> {
        let place = self.inner.feed.enter()?;
        let news = self.inner.feed.inner.head.subscribe();
        let at = match from {
            EventsFrom::After(at) => at,
            EventsFrom::Beginning | EventsFrom::Now => {
                let begin = EventCursor { generation: 0, number: 0 };
                let EventsPage { last, gone, .. } = self.event_page(begin, 0).await?;
                match from {
                    EventsFrom::Now => last,
                    _ => EventCursor { number: gone, ..last },
                }
            }
        };
        Ok(EventReader { engine: self.clone(), at, news, place })
    }

    async fn event_page(&self, after: EventCursor, limit: i64) -> Result<EventsPage, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.events(after, limit).await }).await
    }

    /// The writes of a resource that have a version, newest first. With a prefix only so much of the history is
    /// looked through; where the rest begins, if there is any, comes along.
    pub async fn versions(
        &self,
        resource: ResourceName,
        mut filter: VersionsFilter,
    ) -> Result<(Vec<Applied>, Option<i64>), EngineError> {
        let last = self.resource(resource.clone()).await?.version;
        if !filter.prefix.is_empty() {
            let above = filter.before.unwrap_or(i64::MAX).min(last.saturating_add(1));
            filter.from = (above - HISTORY_MAX).max(0);
        }
        let (from, limit) = (filter.from, filter.limit);
        let ledger = Arc::clone(&self.inner.ledger);
        let found = self.query(async move { ledger.versions(&resource, filter).await }).await?;
        // Versions begin with 1.
        let is_whole = from <= 1 || i64::try_from(found.len()).unwrap_or(i64::MAX) >= limit;
        Ok((found, (!is_whole).then_some(from)))
    }
}

#[cfg(test)]
mod tests {
    use fence_core::OperationId;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    const NONE: [i64; 0] = [];

    fn page(generation: i64, numbers: std::ops::RangeInclusive<i64>) -> EventsPage {
        let event = |number| Applied {
            operation: OperationId(Uuid::nil()),
            resource: ResourceName::new("r").unwrap(),
            kind: "put".into(),
            key: None,
            version: Some(number),
            generation,
            created: false,
            size: 0,
            sha256: None,
            owner: String::new(),
            committed_at: Timestamp::UNIX_EPOCH,
            did: Vec::new(),
        };
        EventsPage {
            last: EventCursor { generation, number: *numbers.end() },
            gone: 0,
            rewound: None,
            events: numbers.map(|number| (number, event(number))).collect(),
        }
    }

    #[test]
    fn what_is_kept_has_no_gaps_and_is_of_one_generation() {
        let mut recent = Recent::default();
        let numbers = |recent: &Recent, generation, number, limit| {
            let found = recent.after(EventCursor { generation, number }, limit);
            found.iter().map(|(at, _)| at.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&recent, 0, 0, 10), NONE);
        recent.append(page(0, 5..=7));
        recent.append(page(0, 8..=9));
        assert_eq!(numbers(&recent, 0, 3, 10), NONE, "4 is missing");
        assert_eq!(numbers(&recent, 0, 4, 10), [5, 6, 7, 8, 9]);
        assert_eq!(numbers(&recent, 0, 6, 2), [7, 8]);
        assert_eq!(numbers(&recent, 0, 9, 10), NONE);
        assert_eq!(numbers(&recent, 1, 6, 10), NONE);
        recent.append(page(0, 12..=13));
        assert_eq!(numbers(&recent, 0, 8, 10), NONE, "10 and 11 were not read");
        assert_eq!(numbers(&recent, 0, 11, 10), [12, 13]);
        recent.append(page(1, 14..=14));
        assert_eq!(numbers(&recent, 0, 13, 10), NONE);
        assert_eq!(numbers(&recent, 1, 13, 10), [14]);
        recent.append(page(1, 15..=14 + RECENT_MAX as i64));
        assert_eq!(recent.events.len(), RECENT_MAX);
        assert_eq!(numbers(&recent, 1, 13, 10), NONE);
    }
}
