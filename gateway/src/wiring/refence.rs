//! `fencegate refence`: takes a ledger as it is, and voids all tokens that were granted before.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use fence_core::ports::{Intents as _, Ledger, Mint, Place, Runtime};
use tokio_util::task::TaskTracker;

use crate::config::{Config, PostgresUrl};
use crate::data_dir::DataDir;
use crate::engine::{Refenced, refence_now};
use crate::http::proxy::drained;
use crate::ledger::postgres::{self, PgLedger, PgSettings};
use crate::ledger::sqlite::SqliteLedger;
use crate::mint::{EmbeddedMint, EtcdMint};
use crate::runtime;

const NOT_CALLED_FOR: &str = "nothing calls for a re-fence; --force does it all the same, \
                              which voids every token that was ever granted";

/// Re-fences what the settings name; returns what there is to tell.
pub async fn refence(config: &Config, reason: &str, force: bool) -> anyhow::Result<String> {
    ensure!(!reason.trim().is_empty(), "--reason must say why");
    let runtime = runtime::runtime(TaskTracker::new());
    match &config.postgres {
        Some(url) => shared(config, url, runtime, reason, force).await,
        None => embedded(config, runtime, reason, force).await,
    }
}

/// Beside running gateways, which go on by themselves within about a second.
async fn shared(
    config: &Config,
    url: &PostgresUrl,
    runtime: Runtime,
    reason: &str,
    force: bool,
) -> anyhow::Result<String> {
    let options = super::shared::postgres_options(url)?;
    let settings = PgSettings {
        options: options.clone(),
        connections_max: super::shared::POSTGRES_CONNECTIONS_MAX,
        timeout: config.request_timeout,
    };
    let ledger = PgLedger::new(settings);
    ledger.check().await.context("cannot use the Postgres server")?;
    postgres::migrate(&options).await?;
    let mint =
        EtcdMint::connect(&super::shared::etcd_settings(config), Arc::clone(&runtime.clock))?;
    ledger.register_upstreams(&drained(&config.upstreams)).await?;
    let refenced = refence_now(Arc::new(ledger), Arc::new(mint), runtime, reason, force)
        .await
        .context("cannot re-fence the ledger")?;
    ensure!(refenced.done, NOT_CALLED_FOR);
    Ok(told(&refenced, reason))
}

/// 1. The directory, which no gateway may use meanwhile.
/// 2. A mint that is lost or, with force, damaged gives way to a new one; so does a ledger that is
///    lost.
/// 3. The floor goes beyond all that the ledger has sealed and the mint has reserved.
/// 4. The marks of both become equal, so that `serve` takes them.
async fn embedded(
    config: &Config,
    runtime: Runtime,
    reason: &str,
    force: bool,
) -> anyhow::Result<String> {
    let directory: &Path = &config.data_dir;
    let path = SqliteLedger::path(directory);
    let (has_ledger, has_mint) = (path.exists(), EmbeddedMint::exists(directory)?);
    if !has_ledger && !has_mint {
        super::require_ledger(config)?;
    }
    let _data_dir = DataDir::lock(directory)?;
    let mint = match EmbeddedMint::open(directory) {
        Ok(mint) => mint,
        Err(error) if !force || !has_mint => return Err(error),
        Err(error) => {
            let aside = EmbeddedMint::set_aside(directory)?;
            tracing::warn!(%error, aside = %aside.display(), "the mint was set aside");
            EmbeddedMint::open(directory)?
        }
    };
    let clock = Arc::clone(&runtime.clock);
    let ledger = SqliteLedger::open(&path, clock, runtime.ids.uuid()).await?;
    let found = match (has_ledger, has_mint, super::embedded::older_file(&ledger, &mint).await?) {
        (false, _, _) => Some("there is no ledger".to_owned()),
        (_, false, _) => Some("there is no mint".to_owned()),
        (_, _, Some(older)) => Some(format!("the {older} is older than the other file")),
        _ => None,
    };
    if found.is_none() && !force {
        bail!(NOT_CALLED_FOR);
    }
    ledger.register_upstreams(&drained(&config.upstreams)).await?;
    let (ledger, mint) = (Arc::new(ledger), Arc::new(mint));
    let mut refenced = refence_now(
        Arc::clone(&ledger) as Arc<dyn Ledger>,
        Arc::clone(&mint) as Arc<dyn Mint>,
        runtime,
        reason,
        true,
    )
    .await
    .context("cannot re-fence the ledger")?;
    refenced.before.called_for = found;
    let mark = ledger.mark().await?.max(mint.mark()) + 1;
    ledger.record_mark(mark).await?;
    mint.record_mark(mark)?;
    ledger.close().await?;
    Ok(told(&refenced, reason))
}

fn told(refenced: &Refenced, reason: &str) -> String {
    let Refenced { before, after, .. } = refenced;
    let place = |place: &Place| {
        let server = match place.timeline.as_str() {
            "" => String::new(),
            timeline => format!(", system {}, timeline {timeline}", place.system_id),
        };
        format!(
            "generation {}, epoch {}, floor {}{server}",
            place.generation, place.epoch.number, place.floor
        )
    };
    format!(
        "found:  {}\nbefore: {}\nafter:  {}\nreason: {reason}\n\
         All tokens up to the floor are void; their holders must acquire anew.\n",
        before.called_for.as_deref().unwrap_or("nothing that calls for it; forced"),
        place(before),
        place(after),
    )
}
