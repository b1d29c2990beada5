//! `fencegate access`: the rules of access, in the ledger itself. Whoever may do this has the ledger, and so all there is.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use fence_core::ports::{Ledger, Rulebook as _, RulesChange, RulesChanged, RulesInForce};
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::data_dir::DataDir;
use crate::engine::access::{checked, database_roles};
use crate::ledger::postgres::{self, PgLedger, PgSettings};
use crate::ledger::sqlite::SqliteLedger;
use crate::mint::EmbeddedMint;
use crate::runtime;

/// The request id under which the audit has what this command did.
const REQUEST_ID: &str = "fencegate access";

/// The time by this machine's clock, from which on a key is good.
pub fn now() -> jiff::Timestamp {
    runtime::runtime(TaskTracker::new()).clock.now()
}

/// Puts rules in force; returns their generation. Beside running gateways on Postgres; in a data directory while no
/// gateway uses it.
///
/// # Errors
/// They are not good, or are not to follow the ones in force; or the ledger cannot be used. Nothing changed then.
pub async fn apply_rules(
    config: &Config,
    text: String,
    follows: Option<i64>,
    reason: &str,
) -> anyhow::Result<i64> {
    let runtime = runtime::runtime(TaskTracker::new());
    let rules = checked(&text, runtime.clock.now())?;
    let change = RulesChange {
        follows,
        text,
        database_roles: database_roles(&rules),
        applied_by: None,
        reason: reason.to_owned(),
        request_id: REQUEST_ID.to_owned(),
    };
    let applied = async |ledger: &dyn Ledger| {
        let applied = ledger.apply_rules(change).await;
        match applied.context("whether the rules are in force is not known")? {
            RulesChanged::InForce(generation) => Ok(generation),
            RulesChanged::Overtaken(generation) => bail!(
                "rules of generation {generation} are in force, not those that these are to follow; nothing changed"
            ),
        }
    };
    match &config.postgres {
        Some(_) => applied(&shared(config).await?).await,
        None => {
            let embedded = Embedded::open(config).await?;
            let outcome = applied(&embedded.ledger).await;
            embedded.ledger.close().await?;
            outcome
        }
    }
}

/// The rules that are in force.
///
/// # Errors
/// The ledger cannot be used.
pub async fn rules_in_force(config: &Config) -> anyhow::Result<RulesInForce> {
    match &config.postgres {
        Some(_) => Ok(shared(config).await?.rules().await?),
        None => {
            let embedded = Embedded::open(config).await?;
            let rules = embedded.ledger.rules().await;
            embedded.ledger.close().await?;
            Ok(rules?)
        }
    }
}

async fn shared(config: &Config) -> anyhow::Result<PgLedger> {
    let Some(url) = &config.postgres else { bail!("no Postgres is named") };
    let options = super::postgres_options(url)?;
    let ledger = PgLedger::new(PgSettings {
        options: options.clone(),
        connections_max: super::POSTGRES_CONNECTIONS_MAX,
        timeout: config.request_timeout,
    });
    ledger.check().await.context("cannot use the Postgres server")?;
    postgres::migrate(&options).await?;
    Ok(ledger)
}

/// The ledger of a data directory, which no gateway may use meanwhile.
struct Embedded {
    ledger: SqliteLedger,
    _data_dir: DataDir,
}

impl Embedded {
    /// What is not there yet is made as `serve` makes it, the mint too: a ledger without its mint would seem to have
    /// lost it.
    async fn open(config: &Config) -> anyhow::Result<Self> {
        let data_dir = DataDir::lock(&config.data_dir)?;
        let runtime = runtime::runtime(TaskTracker::new());
        EmbeddedMint::open(&config.data_dir)?;
        let path = SqliteLedger::path(&config.data_dir);
        let clock = Arc::clone(&runtime.clock);
        let ledger = SqliteLedger::open(&path, clock, runtime.ids.uuid()).await?;
        Ok(Self { ledger, _data_dir: data_dir })
    }
}
