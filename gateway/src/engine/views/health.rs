//! Which parts work, as far as is known: each part is asked in the background, so that an answer is there at
//! once, whatever hangs. Asking begins with the first question and then goes on, so that later answers are
//! never old.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fence_core::ports::{Epoch, EventCursor, Head, Runtime, Totals};
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::data::Standing;
use crate::engine::{Engine, EngineError};

/// How often ledger and mint are asked.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the ledger counts, which costs it more, and what nobody waits for.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// Counting pauses for so many times as long as it took last, so that a large ledger has nearly all of its time for others.
const COUNT_PAUSE: u32 = 10;
/// How often the store is asked, which may cost money, and what nobody waits for.
const ASK_STORE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a question waits for a fresh answer before it goes by the last one.
const FRESH: Duration = Duration::from_millis(100);
/// A part that has not answered for this long does not work.
const SILENT_MAX: Duration = Duration::from_secs(3);

/// Which parts work.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// The ledger, or why it does not.
    pub ledger: Result<(), String>,
    /// The mint, or why it does not. Without it only new grants stop.
    pub mint: Result<(), String>,
    /// The blob store, or why it does not. Without it only large objects cannot be written or read.
    pub blobs: Result<(), String>,
    /// The settings, or in what they differ from those that all gateways have agreed on.
    pub settings: Result<(), String>,
    /// Writes, or why none can be made, as of the last one and of a trial every 5 s.
    pub writes: Result<(), String>,
    /// Grants of locks, or why none can be made: they take writes, too.
    pub grants: Result<(), String>,
}

/// What is known of the parts.
pub(in crate::engine) struct Health {
    ledger: Probe<Epoch>,
    mint: Probe<Head>,
    blobs: Probe<()>,
    /// These two are asked only where somebody wants to know.
    events: OnceLock<Probe<EventCursor>>,
    totals: OnceLock<Probe<Totals>>,
}

/// What is known of a part.
struct Known<T> {
    /// What it said last.
    answer: Option<Result<T, EngineError>>,
    /// How often it has answered.
    answers: u64,
    /// Since when it is being asked, on the clock of this process.
    asked: Option<Duration>,
}

/// A part that is asked now and then.
struct Probe<T> {
    known: Arc<watch::Sender<Known<T>>>,
    /// Somebody wants to know.
    wanted: Arc<Notify>,
    runtime: Runtime,
    silent: fn(String) -> EngineError,
}

impl Engine {
    /// Which parts work. Answers within 100 ms.
    pub async fn readiness(&self) -> Readiness {
        let health = self.inner.health.get_or_init(|| Health::start(self));
        let (ledger, mint, blobs) =
            futures::join!(health.ledger.look(), health.mint.look(), health.blobs.look());
        let blobs = blobs.map_err(|error| blobs_trouble(&error, ledger.is_ok()).to_owned());
        let text = |error: EngineError| error.to_string();
        let ledger = ledger.map_err(text);
        let mint = match (&ledger, mint) {
            // The first epoch of a fresh ledger is opened by the first lock.
            (Ok(epoch), Ok(_)) if !epoch.open && epoch.number > 0 => {
                Err("the epoch of the mint is changing".into())
            }
            (Ok(epoch), Ok(head)) if epoch.open && head.incarnation != Some(epoch.nonce) => {
                let other = Err("the mint is not the one that the ledger knows".into());
                head.check_owner(epoch.ledger).map_err(|error| error.to_string()).and(other)
            }
            (Ok(epoch), Ok(head)) => {
                head.check_owner(epoch.ledger).map_err(|error| error.to_string())
            }
            (Err(_), Ok(_)) => Ok(()),
            (_, Err(error)) => Err(error.to_string()),
        };
        let settings = self.inner.agreement.trouble().map_or(Ok(()), Err);
        let ledger = ledger.map(drop);
        let writes = ledger.clone().and_then(|()| self.inner.can_write.trouble());
        let grants = writes.clone().and(mint.clone()).and_then(|()| self.inner.can_grant.trouble());
        Readiness { ledger, mint, blobs, settings, writes, grants }
    }

    /// The epoch and the end of the feed, as far as the ledger says so. Answers within 100 ms.
    pub(super) async fn heights(&self) -> (Option<i64>, Option<EventCursor>) {
        let health = self.inner.health.get_or_init(|| Health::start(self));
        let events = health.events.get_or_init(|| {
            let asking = self.clone();
            let ask = move || -> BoxFuture<'static, _> { Box::pin(asking.clone().ask_events()) };
            let (runtime, closing) = (&self.inner.runtime, &self.inner.closing);
            let silent = EngineError::LedgerUnavailable;
            let pause = |_| ASK_STORE_INTERVAL;
            Probe::start("the feed of events", ask, pause, silent, runtime, closing)
        });
        let (epoch, last) = futures::join!(health.ledger.look(), events.look());
        (epoch.ok().map(|epoch| epoch.number), last.ok())
    }

    /// How much there is in the whole ledger, as it was at most 40 s ago; none if the ledger has not said so since. Answers
    /// within 100 ms. Counting begins with the first question: then each gateway counts every 5 s, however often it is asked,
    /// or more seldom where that would take the ledger more than a tenth of its time.
    pub async fn totals(&self) -> Option<Totals> {
        let health = self.inner.health.get_or_init(|| Health::start(self));
        let totals = health.totals.get_or_init(|| {
            let asking = self.clone();
            let ask = move || -> BoxFuture<'static, _> { Box::pin(asking.clone().ask_totals()) };
            let (runtime, closing) = (&self.inner.runtime, &self.inner.closing);
            let silent = EngineError::LedgerUnavailable;
            let pause = |took| COUNT_INTERVAL.max(COUNT_PAUSE * took);
            Probe::start("the count of locks", ask, pause, silent, runtime, closing)
        });
        totals.known().await.ok()
    }

    /// In line with lists: they cost the ledger as much. An answer that took longer is too old.
    async fn ask_totals(self) -> Result<Totals, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let totals = self.query(async move { ledger.totals().await });
        let late = || EngineError::LedgerUnavailable("no answer in time".into());
        self.inner.runtime.within(SILENT_MAX, totals).await.ok_or_else(late)?
    }

    async fn ask_events(self) -> Result<EventCursor, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let begin = EventCursor { generation: 0, number: 0 };
        self.detached(None, async move { Ok(ledger.events(begin, 0).await?.last) }).await
    }

    /// What the ledger says of itself. Not in line with other queries: it is asked when they are stuck, too.
    async fn ask_ledger(self) -> Result<Epoch, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.detached(None, async move { Ok(ledger.epoch().await?) }).await
    }

    async fn ask_mint(self) -> Result<Head, EngineError> {
        let mint = Arc::clone(&self.inner.mint);
        self.detached(None, async move { Ok(mint.head().await?) }).await
    }

    async fn ask_store(self) -> Result<(), EngineError> {
        let inner = Arc::clone(&self.inner);
        let standing = async move {
            match inner.blobs.standing(&*inner.ledger).await? {
                Standing::Ours | Standing::Unbound => Ok(()),
                Standing::Other | Standing::Foreign => {
                    Err(EngineError::BlobsUnavailable("it is not the one of this ledger".into()))
                }
            }
        };
        self.detached(None, standing).await
    }
}

impl Health {
    fn start(engine: &Engine) -> Self {
        let asking = engine.clone();
        let ledger = move || -> BoxFuture<'static, _> { Box::pin(asking.clone().ask_ledger()) };
        let asking = engine.clone();
        let mint = move || -> BoxFuture<'static, _> { Box::pin(asking.clone().ask_mint()) };
        let asking = engine.clone();
        let store = move || -> BoxFuture<'static, _> { Box::pin(asking.clone().ask_store()) };
        let (runtime, closing) = (&engine.inner.runtime, &engine.inner.closing);
        Self {
            ledger: Probe::start(
                "the ledger",
                ledger,
                |_| ASK_INTERVAL,
                EngineError::LedgerUnavailable,
                runtime,
                closing,
            ),
            mint: Probe::start(
                "the mint",
                mint,
                |_| ASK_INTERVAL,
                EngineError::MintUnavailable,
                runtime,
                closing,
            ),
            blobs: Probe::start(
                "the blob store",
                store,
                |_| ASK_STORE_INTERVAL,
                EngineError::BlobsUnavailable,
                runtime,
                closing,
            ),
            events: OnceLock::new(),
            totals: OnceLock::new(),
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Probe<T> {
    /// `pause` says how long after an answer it is asked again, by how long that answer took.
    fn start(
        name: &'static str,
        ask: impl Fn() -> BoxFuture<'static, Result<T, EngineError>> + Send + Sync + 'static,
        pause: fn(Duration) -> Duration,
        silent: fn(String) -> EngineError,
        runtime: &Runtime,
        closing: &CancellationToken,
    ) -> Self {
        let known = Known { answer: None, answers: 0, asked: Some(runtime.clock.elapsed()) };
        let (known, wanted) = (Arc::new(watch::Sender::new(known)), Arc::new(Notify::new()));
        let probe = Self { known, wanted, runtime: runtime.clone(), silent };
        let (known, wanted) = (Arc::clone(&probe.known), Arc::clone(&probe.wanted));
        let (clock, closing) = (Arc::clone(&runtime.clock), closing.clone());
        let task = async move {
            let mut works = true;
            loop {
                let asked = clock.elapsed();
                known.send_modify(|known| known.asked = Some(asked));
                let answer = tokio::select! {
                    biased;
                    () = closing.cancelled() => return,
                    answer = ask() => answer,
                };
                if let (Err(error), true) = (&answer, works) {
                    // The log alone has its words: what stores say may hold what was sent.
                    tracing::warn!(%error, "{name} does not work");
                }
                works = answer.is_ok();
                let pause = pause(clock.elapsed().saturating_sub(asked));
                known.send_modify(|known| {
                    *known = Known {
                        answer: Some(answer),
                        answers: known.answers.wrapping_add(1),
                        asked: None,
                    };
                });
                tokio::select! {
                    biased;
                    () = closing.cancelled() => return,
                    () = wanted.notified() => {}
                    () = clock.sleep(pause) => {}
                }
            }
        };
        runtime.spawn.spawn_lasting("health", Box::pin(task));
        probe
    }

    /// Asks, and says what is known a moment later.
    async fn look(&self) -> Result<T, EngineError> {
        let mut news = self.known.subscribe();
        let before = news.borrow().answers;
        self.wanted.notify_one();
        let _ = self.runtime.within(FRESH, news.wait_for(|known| known.answers != before)).await;
        self.told()
    }

    /// What is known, without asking sooner than it is anyway. If nothing is yet, waits a moment for it.
    async fn known(&self) -> Result<T, EngineError> {
        let mut news = self.known.subscribe();
        let _ = self.runtime.within(FRESH, news.wait_for(|known| known.answers > 0)).await;
        self.told()
    }

    /// What it said last, unless it has been asked since and is silent.
    fn told(&self) -> Result<T, EngineError> {
        let known = self.known.borrow();
        let silent = known.asked.map(|since| self.runtime.clock.elapsed().saturating_sub(since));
        match (&known.answer, silent) {
            (_, Some(silent)) if silent >= SILENT_MAX => {
                Err((self.silent)(format!("no answer for {} s", silent.as_secs())))
            }
            (Some(answer), _) => answer.clone(),
            (None, _) => Err((self.silent)("no answer yet".into())),
        }
    }
}

/// What stores say of a refused request may hold what was sent, so nobody is told. The ledger says whose store
/// it is: if the ledger does not answer, nothing is known of the store.
fn blobs_trouble(error: &EngineError, ledger_answers: bool) -> &'static str {
    match ledger_answers || matches!(error, EngineError::BlobsUnavailable(_)) {
        true => "the blob store does not answer, or is not the one of this ledger",
        false => "not known: only the ledger can say whether the store is its own",
    }
}
