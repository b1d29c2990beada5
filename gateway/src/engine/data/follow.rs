//! Following the operator's records, the audit and the refused writes: oldest first, every entry once.
//!
//! Entries are numbered by whoever writes them, and become visible in another order. So, while somebody reads,
//! one task for each record asks the ledger about every 300 ms up to which number the record is complete, and
//! readers go no further. Writers pay nothing for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fence_core::ports::{
    AuditEntry, AuditFilter, Ledger, Log, Rejection, RejectionFilter, Runtime, Settled, Span,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, EngineError};

/// The most readers of one record at one gateway; more are turned away.
const READERS_MAX: usize = 4_000;
/// How often it is asked how far the record is settled, while somebody reads.
const INTERVAL: Duration = Duration::from_millis(300);
/// Between two looks at least, however many come; and how soon the next one is while somebody waits for what others
/// are just writing.
const PAUSE: Duration = Duration::from_millis(20);

/// One record that is followed.
pub(in crate::engine) struct Follow {
    inner: Arc<Following>,
}

struct Following {
    log: Log,
    ledger: Arc<dyn Ledger>,
    runtime: Runtime,
    closing: CancellationToken,
    readers: AtomicUsize,
    poked: Notify,
    state: Mutex<FollowState>,
    /// How far it is settled, as far as this gateway knows.
    head: watch::Sender<Option<i64>>,
}

#[derive(Default)]
struct FollowState {
    settled: Settled,
    newcomers: Vec<Newcomer>,
    running: bool,
}

/// Somebody who waits until all is settled that could be seen when they came.
struct Newcomer {
    /// The number that has to be settled; not known before the first look.
    wanted: Option<i64>,
    done: oneshot::Sender<()>,
}

impl Follow {
    pub(in crate::engine) fn new(
        log: Log,
        ledger: Arc<dyn Ledger>,
        runtime: &Runtime,
        closing: CancellationToken,
    ) -> Self {
        let inner = Following {
            log,
            ledger,
            runtime: runtime.clone(),
            closing,
            readers: AtomicUsize::new(0),
            poked: Notify::new(),
            state: Mutex::default(),
            head: watch::Sender::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A place among the readers.
    fn enter(&self) -> Result<ReaderPlace, EngineError> {
        let place = ReaderPlace { inner: Arc::clone(&self.inner) };
        // Counted before it is judged: a place that is dropped counts itself out.
        if self.inner.readers.fetch_add(1, Ordering::AcqRel) >= READERS_MAX {
            return Err(EngineError::Overloaded("followers"));
        }
        Ok(place)
    }

    /// Resolves once all is settled that can be seen after this call, or that could not be found out. For one who
    /// has a place.
    fn all_of_now(&self) -> oneshot::Receiver<()> {
        let (done, step) = oneshot::channel();
        let mut state = self.inner.state.lock();
        state.newcomers.push(Newcomer { wanted: None, done });
        let start = !std::mem::replace(&mut state.running, true);
        drop(state);
        if start {
            let task = Arc::clone(&self.inner).run();
            self.inner.runtime.spawn.spawn_lasting(self.inner.log.as_str(), Box::pin(task));
        }
        self.inner.poked.notify_one();
        step
    }
}

impl Following {
    /// The task: looks now and then, and at once for newcomers. Ends when nobody reads.
    async fn run(self: Arc<Self>) {
        loop {
            let (last, newcomers) = {
                let mut state = self.state.lock();
                if self.readers.load(Ordering::Acquire) == 0 {
                    state.running = false;
                    state.newcomers.clear();
                    return;
                }
                (state.settled.clone(), std::mem::take(&mut state.newcomers))
            };
            let is_awaited = match self.ledger.settled(self.log, &last).await {
                Ok(settled) => self.show(&last, settled, newcomers),
                // Newcomers are let go: the page that they ask for next says why, if it cannot be read either.
                Err(error) => {
                    let log = self.log.as_str();
                    tracing::debug!(%error, log, "how far a record is settled is not known");
                    false
                }
            };
            let clock = &self.runtime.clock;
            if self.closing.run_until_cancelled(clock.sleep(PAUSE)).await.is_none() {
                return;
            }
            if is_awaited {
                continue;
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                () = self.poked.notified() => {}
                () = clock.sleep(INTERVAL) => {}
            }
        }
    }

    /// Tells readers how far it is settled; whether somebody waits for more.
    fn show(&self, last: &Settled, settled: Settled, mut newcomers: Vec<Newcomer>) -> bool {
        let Settled { upto, reached, .. } = settled;
        // Else those who were writing before still are, and `reached` is of then.
        let is_of_now = last.writers.is_empty() || settled != *last;
        self.head.send_if_modified(|known| known.replace(upto) != Some(upto));
        if is_of_now {
            newcomers.iter_mut().for_each(|one| one.wanted = one.wanted.or(Some(reached)));
        }
        let is_done = |one: &Newcomer| one.wanted.is_some_and(|wanted| wanted <= upto);
        let (done, mut newcomers): (Vec<_>, Vec<_>) = newcomers.into_iter().partition(is_done);
        for one in done {
            let _ = one.done.send(());
        }
        newcomers.retain(|one| !one.done.is_closed());
        let mut state = self.state.lock();
        state.settled = settled;
        let is_awaited = !newcomers.is_empty();
        state.newcomers.extend(newcomers);
        is_awaited
    }
}

/// A place among the readers, until it is dropped.
struct ReaderPlace {
    inner: Arc<Following>,
}

impl Drop for ReaderPlace {
    fn drop(&mut self) {
        self.inner.readers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFrom {
    /// With what is recorded from now on.
    Now,
    /// Behind the entry with this number; 0 for the first that is kept.
    After(i64),
}

/// What of a record is read: its filter.
pub trait Followed: Clone + Send + Sync {
    /// An entry.
    type Entry: Send;

    /// Which record it is.
    const LOG: Log;

    /// Lists these, oldest first, at most so many.
    fn list(
        &self,
        engine: &Engine,
        between: Span,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<(i64, Self::Entry)>, EngineError>> + Send;
}

impl Followed for AuditFilter {
    type Entry = AuditEntry;

    const LOG: Log = Log::Audit;

    async fn list(
        &self,
        engine: &Engine,
        between: Span,
        limit: i64,
    ) -> Result<Vec<(i64, AuditEntry)>, EngineError> {
        engine.audit(Self { between: Some(between), limit, ..self.clone() }).await
    }
}

impl Followed for RejectionFilter {
    type Entry = Rejection;

    const LOG: Log = Log::Rejections;

    async fn list(
        &self,
        engine: &Engine,
        between: Span,
        limit: i64,
    ) -> Result<Vec<(i64, Rejection)>, EngineError> {
        engine.rejections(Self { between: Some(between), limit, ..self.clone() }).await
    }
}

/// A reader of a record.
pub struct Follower<R> {
    engine: Engine,
    filter: R,
    at: i64,
    news: watch::Receiver<Option<i64>>,
    _place: ReaderPlace,
}

impl<R: Followed> Follower<R> {
    /// Where it is: nothing up to this number is still to be given out to it.
    pub fn at(&self) -> i64 {
        self.at
    }

    /// The entries behind that, at most so many; none if there are none yet.
    pub async fn page(&mut self, limit: i64) -> Result<Vec<R::Entry>, EngineError> {
        let Some(upto) = *self.news.borrow_and_update() else { return Ok(Vec::new()) };
        if upto <= self.at {
            return Ok(Vec::new());
        }
        let between = Span { after: self.at, upto };
        let found = self.filter.list(&self.engine, between, limit).await?;
        let is_whole = i64::try_from(found.len()).unwrap_or(i64::MAX) < limit;
        match found.last() {
            Some((last, _)) if !is_whole => self.at = *last,
            _ => self.at = upto,
        }
        Ok(found.into_iter().map(|(_, entry)| entry).collect())
    }

    /// The entries behind where it is, once there are any.
    pub async fn next(&mut self, limit: i64) -> Result<Vec<R::Entry>, EngineError> {
        loop {
            let found = self.page(limit).await?;
            if !found.is_empty() {
                return Ok(found);
            }
            if self.news.changed().await.is_err() {
                return Err(EngineError::ShuttingDown);
            }
        }
    }
}

impl Engine {
    /// Begins to follow a record. Whatever was in it before this call is seen by it, unless somebody who was writing
    /// then is not done in time: then it comes later.
    ///
    /// # Errors
    /// `Overloaded` with too many readers; `LedgerUnavailable` if it is to begin now, and when that is cannot
    /// be found out.
    pub async fn follow<R: Followed>(
        &self,
        filter: R,
        from: RecordFrom,
    ) -> Result<Follower<R>, EngineError> {
        let follow = match R::LOG {
            Log::Audit => &self.inner.audit,
            Log::Rejections => &self.inner.rejections,
        };
        let place = follow.enter()?;
        let news = follow.inner.head.subscribe();
        let all = follow.all_of_now();
        let in_time = self.inner.runtime.within(self.inner.settings.request_timeout, all).await;
        let at = match from {
            RecordFrom::After(at) => at,
            RecordFrom::Now => match (in_time, *news.borrow()) {
                (Some(Ok(())), Some(upto)) => upto,
                _ => return Err(EngineError::LedgerUnavailable("no answer in time".into())),
            },
        };
        Ok(Follower { engine: self.clone(), filter, at, news, _place: place })
    }
}
