//! How the engine starts: its queues, and the tasks that look after themselves.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fence_core::ports::{Blobs, Ledger, Log, Mint, Runtime};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agreement::Agreement;
use super::batcher::{self, Batcher, Limits};
use super::blobs;
use super::burials::Burials;
use super::commits::{CommitMany, Commits};
use super::deliveries::GiveBack;
use super::epochs::Epochs;
use super::feed::Feed;
use super::follow::Follow;
use super::freed::Freed;
use super::granting::Granting;
use super::grants::{self, Grants, Look};
use super::line::Line;
use super::locks::{Break, Locks, Release, Renew};
use super::lookout::Lookout;
use super::reads::{KnownKey, Read};
use super::refusals::Refusals;
use super::rejections::Rejections;
use super::traces::Traces;
use super::under_way::UnderWay;
use super::upstreams::{CloseIntents, Closing, Drains, OpenIntents, Upstreams};
use super::waiting::{Join, Keep, Waiting};
use super::watch::{Subject, Watches};
use super::writes::{Commit, Writes};
use super::{Engine, Inner, Settings, sweeper};

/// Bytes in one batch of writes.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Lanes of an act that may use the ledger at once. Each act has its own: a grant that waits for the mint in a lane
/// holds up no write.
const LANES_MAX: usize = 4;
/// Lists and the like, outside the queues, that may use the ledger at once.
pub const QUERIES_MAX: usize = 6;
/// What operators do, and looks at one lock or one resource, that may use the ledger at once: they must not stand behind
/// lists.
const CALLS_MAX: usize = 4;

impl Engine {
    /// Starts the engine's tasks.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        mint: Arc<dyn Mint>,
        blobs: Option<Arc<dyn Blobs>>,
        runtime: Runtime,
        settings: Settings,
    ) -> Self {
        let closing = CancellationToken::new();
        let limits = Limits {
            queue_max: settings.queue_max,
            batch_max: settings.batch_max,
            batch_bytes_max: BATCH_BYTES_MAX,
            timeout: settings.request_timeout,
        };
        let start = Starter { runtime: runtime.clone(), limits, closing: closing.clone() };
        let queries = Arc::new(Semaphore::new(QUERIES_MAX));
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        let (traces, looked) = (Traces::default(), CancellationToken::new());
        let line = Line::start(Arc::clone(&ledger), Arc::clone(&mint), &runtime, &closing);
        let freed = Arc::new(Freed::new(Arc::clone(&runtime.clock)));
        let release = || Release {
            ledger: Arc::clone(&ledger),
            line: Arc::clone(&line),
            freed: Arc::clone(&freed),
        };
        let releases = Arc::new(start.batcher(release()));
        // Many may leave at once, and whoever gives a lock back must not stand behind them.
        let leaves = Arc::new(start.batcher(release()));
        let give_back = GiveBack {
            releases: Arc::clone(&leaves),
            traces: traces.clone(),
            runtime: runtime.clone(),
            closing: closing.clone(),
        };
        let epochs = Epochs::new(Arc::clone(&ledger), Arc::clone(&mint), runtime.clone());
        let epochs = Arc::new(epochs);
        let refusals = Refusals::new(&runtime);
        let granting = || Granting {
            ledger: Arc::clone(&ledger),
            mint: Arc::clone(&mint),
            traces: traces.clone(),
            give_back: give_back.clone(),
            epochs: Arc::clone(&epochs),
            refusals: Arc::clone(&refusals),
        };
        let reentries = Arc::new(start.limited(granting(), grants::BATCH_MAX));
        let grants = Grants {
            looks: start.batcher(Look { ledger: Arc::clone(&ledger) }),
            freed: Arc::clone(&freed),
            reentries: Arc::clone(&reentries),
            grants: start.limited(granting(), grants::BATCH_MAX),
            waiting: Waiting {
                keeps: Arc::new(start.batcher(Keep { line: Arc::clone(&line) })),
                calls: Arc::clone(&calls),
                reentries,
                joins: start.batcher(Join { ledger: Arc::clone(&ledger) }),
                line: Arc::clone(&line),
                ledger: Arc::clone(&ledger),
                leaves,
                runtime: runtime.clone(),
                request_timeout: settings.request_timeout,
                waiters_max: settings.waiters_max,
            },
            runtime: runtime.clone(),
        };
        let locks = start.locks(&ledger, &line, releases, traces);
        let writes = start.writes(&ledger, settings.committers, &refusals);
        let commits = start.commits(&ledger, settings.committers);
        let reads = start.batcher(Read { ledger: Arc::clone(&ledger) });
        let drains = Drains { ledger: Arc::clone(&ledger), line, runtime: runtime.clone() };
        let upstreams = start.upstreams(&ledger, &drains, settings.request_timeout);
        let agreement = start.sweeper(&ledger, &settings, drains);
        let blobs = blobs::Parts::start(&ledger, blobs, &runtime, &settings, &agreement, &closing);
        let told = Told { refusals, agreement: Arc::clone(&agreement) };
        start.lookout(&ledger, &mint, epochs, &settings, told, looked.clone());
        let watches = start.watches(&ledger, &agreement);
        let sights = start.watches(&ledger, &agreement);
        let feed = Feed::start(Arc::clone(&ledger), &runtime, closing.clone());
        let follow = |log| Follow::new(log, Arc::clone(&ledger), &runtime, closing.clone());
        let (audit, rejections) = (follow(Log::Audit), follow(Log::Rejections));
        let inner = Inner {
            ledger,
            mint,
            started_at: runtime.clock.now(),
            runtime,
            settings,
            grants,
            locks,
            writes,
            commits,
            reads,
            upstreams,
            queries,
            calls,
            blobs,
            looked,
            give_back,
            watches,
            sights,
            feed,
            audit,
            rejections,
            health: OnceLock::new(),
            agreement,
            closing,
        };
        Self { inner: Arc::new(inner), held: None }
    }
}

/// What hears of what the lookout finds.
struct Told {
    refusals: Arc<Refusals>,
    agreement: Arc<Agreement>,
}

/// Starts batchers that share runtime, limits and end.
struct Starter {
    runtime: Runtime,
    limits: Limits,
    closing: CancellationToken,
}

impl Starter {
    fn locks(
        &self,
        ledger: &Arc<dyn Ledger>,
        line: &Arc<Line>,
        releases: Arc<Batcher<Release>>,
        traces: Traces,
    ) -> Locks {
        Locks {
            renewals: self.batcher(Renew { ledger: Arc::clone(ledger) }),
            releases,
            breaks: self.batcher(Break { ledger: Arc::clone(ledger), line: Arc::clone(line) }),
            traces,
            burials: Burials::new(Arc::clone(&self.runtime.clock)),
        }
    }

    fn watches<S: Subject>(
        &self,
        ledger: &Arc<dyn Ledger>,
        agreement: &Arc<Agreement>,
    ) -> Watches<S> {
        let (ledger, agreement) = (Arc::clone(ledger), Arc::clone(agreement));
        Watches::new(ledger, &self.runtime, agreement, self.closing.clone())
    }

    fn batcher<A: batcher::Act>(&self, act: A) -> Batcher<A> {
        self.limited(act, self.limits.batch_max)
    }

    /// `looked` tells that ledger and mint were held against each other once, or need not be.
    fn lookout(
        &self,
        ledger: &Arc<dyn Ledger>,
        mint: &Arc<dyn Mint>,
        epochs: Arc<Epochs>,
        settings: &Settings,
        told: Told,
        looked: CancellationToken,
    ) {
        let Some(refencing) = settings.refencing else { return looked.cancel() };
        let lookout = Lookout {
            ledger: Arc::clone(ledger),
            mint: Arc::clone(mint),
            epochs,
            runtime: self.runtime.clone(),
            refencing,
            refusals: told.refusals,
            agreement: told.agreement,
            drained: Arc::clone(&settings.drained),
            last: None,
            unproven: None,
            said: None,
        };
        lookout.start(looked, self.closing.clone());
    }

    /// The sweeper, and what it and others keep by.
    fn sweeper(
        &self,
        ledger: &Arc<dyn Ledger>,
        settings: &Settings,
        drains: Drains,
    ) -> Arc<Agreement> {
        let (retention, times) = (settings.retention.clone(), settings.blob_times);
        let agreement = Arc::new(Agreement::new(retention, times, settings.terms.clone()));
        let sweeping = sweeper::Sweeping {
            ledger: Arc::clone(ledger),
            agreement: Arc::clone(&agreement),
            interval: settings.sweep_interval,
            drains,
        };
        sweeping.start(&self.runtime, self.closing.clone());
        agreement
    }

    fn upstreams(&self, ledger: &Arc<dyn Ledger>, drains: &Drains, timeout: Duration) -> Upstreams {
        let close = CloseIntents { ledger: Arc::clone(ledger), drains: drains.clone() };
        let closing = Closing {
            closes: Arc::new(self.batcher(close)),
            runtime: self.runtime.clone(),
            timeout,
            ended: self.closing.clone(),
            forwards: TaskTracker::new(),
            in_flight: Arc::default(),
        };
        let open = OpenIntents { ledger: Arc::clone(ledger), closing: closing.clone() };
        Upstreams { opens: self.batcher(open), closing, drains: drains.clone() }
    }

    fn writes(
        &self,
        ledger: &Arc<dyn Ledger>,
        committers: usize,
        refusals: &Arc<Refusals>,
    ) -> Writes {
        let committer = |_| self.batcher(Commit { ledger: Arc::clone(ledger) });
        let (runtime, closing) = (self.runtime.clone(), self.closing.clone());
        Writes {
            committers: (0..committers.max(1)).map(committer).collect(),
            rejections: Rejections::start(Arc::clone(ledger), &runtime, closing),
            refusals: Arc::clone(refusals),
            lookups: self.batcher(KnownKey {
                ledger: Arc::clone(ledger),
                clock: Arc::clone(&runtime.clock),
            }),
            under_way: UnderWay::default(),
            runtime,
        }
    }

    /// Commits of many go one by one.
    fn commits(&self, ledger: &Arc<dyn Ledger>, committers: usize) -> Commits {
        let committer = |_| self.limited(CommitMany { ledger: Arc::clone(ledger) }, 1);
        let committers = (0..committers.max(1)).map(committer).collect();
        Commits { committers, under_way: UnderWay::default() }
    }

    fn limited<A: batcher::Act>(&self, act: A, batch_max: usize) -> Batcher<A> {
        let limits =
            Limits { batch_max: batch_max.min(self.limits.batch_max), ..self.limits.clone() };
        let lanes = Arc::new(Semaphore::new(LANES_MAX));
        Batcher::start(act, &self.runtime, limits, lanes, self.closing.clone())
    }
}
