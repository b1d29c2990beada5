//! Puts the parts together. The only folder that names concrete adapters.

mod access;
mod agree;
mod audit;
mod backup;
mod blobs;
mod descriptors;
mod doors;
mod embedded;
mod memory;
mod refence;
mod root;
mod s3;
mod scrub;
mod shared;
mod stops;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use fence_core::ports::{Blobs, CheckpointPlace, Ledger, Mint, Retention, Runtime};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::blobs::{BlobsUrl, ObjectBlobs};
use crate::config::{Config, RefenceMode, S3Root};
use crate::data_dir::DataDir;
use crate::engine::{self, AuditPlaces, Engine, Refencing};
use crate::http;
use crate::http::proxy;
use crate::http::routes::Ground;
use crate::ledger::postgres::acts::Standing;
use crate::ledger::postgres::{self, PgLedger};
use crate::ledger::sqlite::SqliteLedger;
use crate::mint::{self, EmbeddedMint};
use crate::runtime;
use crate::spans;
use crate::telemetry;

pub use access::{apply_rules, explain_rules, lost_by_rules, now, rules_in_force};
pub use agree::{agree, trust_clock};
pub use audit::{KeptCheckpoint, audit_in_ledger, kept_checkpoints, new_key};
pub use backup::{Backup, backup};
pub use doors::warnings;
pub use embedded::require_ledger;
pub use memory::dev;
pub use refence::refence;
pub use s3::{buckets, drop_bucket, make_bucket, new_s3_key};
pub use scrub::{Scrubbed, scrub};

/// Rows that the sweeper removes in one pass, of each kind.
const SWEEP_ROWS_MAX: i64 = 1000;
/// How long a stop waits for the last spans to be exported.
const SPANS_END: Duration = Duration::from_secs(3);
/// How often the histograms fold what they gathered.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// What the gateway stands on, and what must live as long as it does.
struct Parts {
    /// The words for ledger and mint.
    kinds: [&'static str; 2],
    ledger: Arc<dyn Ledger>,
    mint: Arc<dyn Mint>,
    /// The blob store, if it is not the one of the settings.
    blobs: Option<Arc<dyn Blobs>>,
    committers: usize,
    embedded: Option<Arc<embedded::Embedded>>,
    /// Where checkpoints of the audit are kept, beside the blob store and the witnesses of the settings.
    audit_places: Vec<Arc<dyn CheckpointPlace>>,
    /// The ledger, if gateways of other versions may work on it.
    shared: Option<Arc<PgLedger>>,
    /// Root that keys of S3 are derived from; none where S3 is off.
    s3_root: Option<S3Root>,
}

/// What every gateway begins with.
struct Base {
    metrics: PrometheusHandle,
    tasks: TaskTracker,
    /// Cancelled when a task has panicked that others rely on.
    broken: CancellationToken,
    runtime: Runtime,
}

impl Base {
    fn new() -> anyhow::Result<Self> {
        let (tasks, broken) = (TaskTracker::new(), CancellationToken::new());
        let runtime = runtime::watched_runtime(tasks.clone(), broken.clone());
        Ok(Self { metrics: recorder()?, tasks, broken, runtime })
    }
}

/// Runs the gateway until `soft` is cancelled and everything in flight is done, or `hard` is.
///
/// 1. Open the ledger and the mint, or say why not.
/// 2. Start the engine, then listen.
/// 3. On `soft`: `/readyz` says no; after the drain delay no request is taken any more; those in
///    flight finish, queues empty, done. A drain that takes too long ends like `hard`.
///
/// A ledger whose disk failed ends it with the reason: whoever supervises the process starts it again, and
/// only a start can find out what the disk has. So does a panic of a task that others rely on.
pub async fn serve(
    config: Config,
    soft: CancellationToken,
    hard: CancellationToken,
) -> anyhow::Result<()> {
    // By a hangup a service reads its files again; it ends only what was started from a terminal that has gone.
    let _hangup = match std::io::stdin().is_terminal() {
        true => None,
        false => Some(signal(SignalKind::hangup()).context("cannot catch signals")?),
    };
    let base = Base::new()?;
    let parts = open(&config, &base.runtime, &soft).await?;
    run(config, base, parts, (soft, hard), |_| Ok(())).await
}

/// Runs a gateway on these parts; `ready` hears where it listens, once it takes requests.
async fn run(
    config: Config,
    base: Base,
    parts: Parts,
    (soft, hard): (CancellationToken, CancellationToken),
    ready: impl FnOnce(SocketAddr) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Base { metrics, tasks, broken, runtime } = base;
    let exporting = spans::start();
    let data_dir = parts.embedded.is_some().then_some(&config.data_dir);
    let audit_key = audit::key(&config, data_dir)?;
    let mint = Arc::clone(&parts.mint);
    // Before anything is sealed: what the ledger does not know it would not doubt after a re-fence.
    let registered = parts.ledger.register_upstreams(&proxy::drained(&config.upstreams)).await;
    registered.context("cannot register upstreams")?;
    access::hold_to(&config, &*parts.ledger).await?;
    let blobs = match &parts.blobs {
        Some(blobs) => Some(Arc::clone(blobs)),
        None => blobs::open(&config, &parts.ledger, &runtime, &soft).await?,
    };
    let mut places = parts.audit_places.clone();
    if blobs.is_some() && parts.blobs.is_none() {
        places.push(Arc::new(ObjectBlobs::open(&config.blobs_url())?));
    }
    places.extend(audit::witnesses(&config)?);
    let audit_places = AuditPlaces(places);
    let settings = settings(&config, parts.committers, parts.s3_root.as_ref())?;
    let settings = engine::Settings { audit_key, audit_places, ..settings };
    let ground = ground(&config, &parts, blobs.is_some());
    let ledger = Arc::clone(&parts.ledger);
    let engine = Engine::new(ledger, mint, blobs, runtime.clone(), settings);

    // A ledger that went back while no gateway ran is noticed before anybody is listened to.
    engine.looked_around().await;
    // So that the first question about readiness finds answers.
    engine.readiness().await;

    let listeners = doors::bind(&config).await?;
    upkeep(&runtime, metrics.clone(), soft.clone());
    if let Some(files) = &parts.embedded {
        embedded::keep_marking(&runtime, files, soft.clone());
        stops::if_disk_fails(&runtime, &config, files, hard.clone());
    }
    let s3_address = listeners.s3_address()?;
    let doors = doors::build(&config, &engine, metrics, ground, &soft, s3_address)?;
    stops::if_broken(&broken, hard.clone());
    let stopped = Arc::new(OnceLock::new());
    if let Some(ledger) = &parts.shared {
        stops::without_acts(&runtime, ledger, Arc::clone(&stopped), hard.clone());
    }
    let drain = Drain::start(&runtime, &config, &soft, &hard);
    ready(listeners.address()?)?;
    doors::serve(listeners, doors, &drain.close, &hard).await?;
    // Their intents are closed before the engine's queues are.
    tokio::select! {
        () = engine.forwards_done() => {}
        () = hard.cancelled() => {}
    }
    engine.shutdown();
    tasks.close();
    tokio::select! {
        () = tasks.wait() => tracing::info!("stopped"),
        () = hard.cancelled() => tracing::warn!("stopped with work in flight"),
    }
    // What is left of the drain is long enough; who must stop at once waits for no collector.
    tokio::select! {
        () = exporting.end(SPANS_END) => {}
        () = hard.cancelled() => {}
    }
    drain.done.cancel();
    if let Some(files) = &parts.embedded {
        embedded::raise_mark(&files.ledger, &files.mint).await?;
        files.ledger.close().await?;
    }
    match stopped.get() {
        Some(Standing::Retired) => bail!(
            "the acts of this gateway ({}) were retired by a newer one: run a newer fencegate",
            postgres::acts::NUMBER
        ),
        Some(Standing::Gone) => bail!(
            "the acts of this gateway ({}) are not in the ledger any more; was it restored or failed over to before \
             they were installed? A start installs them",
            postgres::acts::NUMBER
        ),
        Some(Standing::InForce) | None => {}
    }
    if broken.is_cancelled() {
        bail!(
            "a part of the gateway has ended in a panic, as the log says above; this is a defect"
        );
    }
    Ok(())
}

/// Brings the schema up to date and says so; and lets gateways with older acts do nothing any more, if asked to.
pub async fn migrate(config: &Config, retire_older: bool) -> anyhow::Result<()> {
    if let Some(url) = &config.postgres {
        let options = shared::postgres_options(url)?;
        let version = postgres::migrate(&options).await?;
        tracing::info!(version, "the Postgres schema is up to date");
        if retire_older {
            let older = postgres::retire_older(&options).await?;
            tracing::info!(?older, "no older acts are left; gateways that had them stop");
        }
        return Ok(());
    }
    ensure!(!retire_older, "a data directory has one gateway: there are no older acts to retire");
    let _data_dir = DataDir::lock(&config.data_dir)?;
    let runtime = runtime::runtime(TaskTracker::new());
    let path = SqliteLedger::path(&config.data_dir);
    // `serve` takes a ledger without a mint for one that has lost it.
    if !path.exists() {
        EmbeddedMint::open(&config.data_dir)?;
    }
    SqliteLedger::open(&path, runtime.clock, runtime.ids.uuid()).await?.close().await?;
    tracing::info!(path = %path.display(), "the ledger is up to date");
    Ok(())
}

async fn open(
    config: &Config,
    runtime: &Runtime,
    soft: &CancellationToken,
) -> anyhow::Result<Parts> {
    match &config.postgres {
        Some(url) => shared::open(config, url, runtime, soft).await,
        None => embedded::open(config, runtime).await,
    }
}

fn settings(
    config: &Config,
    committers: usize,
    s3_root: Option<&S3Root>,
) -> anyhow::Result<engine::Settings> {
    Ok(engine::Settings {
        request_timeout: config.request_timeout,
        queue_max: config.queue_max,
        waiters_max: config.waiters_max,
        batch_max: config.batch_max,
        committers,
        retention: retention(config),
        sweep_interval: config.sweep_interval,
        blob_times: blobs::times(config),
        uploads_max: blobs::uploads_max(config),
        terms: match config.is_shared() {
            true => agree::terms(config, s3_root),
            false => BTreeMap::new(),
        },
        refencing: config.is_shared().then_some(match config.refence {
            RefenceMode::Auto => Refencing::Auto,
            RefenceMode::Manual => Refencing::Manual,
        }),
        drained: proxy::drained(&config.upstreams),
        audit_key: None,
        audit_places: AuditPlaces::default(),
        s3_keys: s3_root.map(s3::keys).transpose()?,
    })
}

/// What the gateway says of what it stands on.
fn ground(config: &Config, parts: &Parts, has_blobs: bool) -> Ground {
    let [ledger, mint] = parts.kinds;
    let blobs = match config.blobs_url() {
        _ if parts.blobs.is_some() => "memory",
        _ if !has_blobs => "none",
        BlobsUrl::Folder(_) => "folder",
        BlobsUrl::S3 { .. } => "s3",
        BlobsUrl::Azure { .. } => "azure",
    };
    // Names of other machines and folders are nobody's business who is not on this one; of a gateway in memory the
    // text would say what is not so.
    let shown = config.is_private() && parts.blobs.is_none();
    let settings = shown.then(|| config.show().ok()).flatten();
    Ground { ledger, mint, blobs, settings }
}

fn retention(config: &Config) -> Retention {
    Retention {
        keys: config.keys_kept,
        ended_locks: config.ended_locks_kept,
        buried: config.buried_kept,
        history: config.history_kept,
        rejections_max: config.rejections_max,
        rows_per_pass: SWEEP_ROWS_MAX,
    }
}

/// The process-wide recorder of metrics.
fn recorder() -> anyhow::Result<PrometheusHandle> {
    const SECONDS: &[f64] = &[
        0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
        60.0, 300.0, 1800.0, 7200.0, 86400.0,
    ];
    const COUNTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0];
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS)
        .and_then(|builder| builder.set_buckets(COUNTS))
        .and_then(PrometheusBuilder::install_recorder)
        .context("cannot set up the metrics")?;
    engine::metrics::describe();
    http::identify::describe();
    http::middleware::describe();
    http::peers::describe();
    http::routes::scrape::describe();
    http::serve::describe();
    mint::room::describe();
    telemetry::describe();
    Ok(handle)
}

/// Folds what the histograms gathered, so that they stay small when nobody scrapes, and counts the lines that the log lost.
fn upkeep(runtime: &Runtime, metrics: PrometheusHandle, soft: CancellationToken) {
    let clock = Arc::clone(&runtime.clock);
    let task = async move {
        loop {
            tokio::select! {
                () = clock.sleep(METRICS_UPKEEP) => {
                    telemetry::collect();
                    metrics.run_upkeep();
                }
                () = soft.cancelled() => return,
            }
        }
    };
    runtime.spawn.spawn_lasting("metrics-upkeep", Box::pin(task));
}

/// The course of a shutdown.
struct Drain {
    /// Cancelled when no request is to be taken any more.
    close: CancellationToken,
    /// To be cancelled when the drain is over.
    done: CancellationToken,
}

impl Drain {
    fn start(
        runtime: &Runtime,
        config: &Config,
        soft: &CancellationToken,
        hard: &CancellationToken,
    ) -> Self {
        let drain = Self { close: CancellationToken::new(), done: CancellationToken::new() };
        let (close, done) = (drain.close.clone(), drain.done.clone());
        let (clock, soft, hard) = (Arc::clone(&runtime.clock), soft.clone(), hard.clone());
        let (delay, limit) = (config.drain_delay, config.drain_timeout);
        #[expect(clippy::disallowed_methods, reason = "must not itself be waited for")]
        tokio::spawn(async move {
            soft.cancelled().await;
            clock.sleep(delay).await;
            close.cancel();
            tokio::select! {
                () = clock.sleep(limit) => hard.cancel(),
                () = done.cancelled() => {}
            }
        });
        drain
    }
}
