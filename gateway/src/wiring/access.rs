//! `fencegate access`: the rules of access, in the ledger itself. Whoever may do this has the ledger, and so all there is.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use fence_core::PrincipalName;
use fence_core::ports::{By, Ledger, LedgerError, RulesChange, RulesChanged, RulesInForce};
use fencegate_access::{Action, Rules};
use tokio_util::task::TaskTracker;

use super::root;
use crate::config::{Config, ConfigError};
use crate::data_dir::{DataDir, InUse};
use crate::engine::access::{
    Applied, Breaking, Explained, Want, break_lost, checked, database_roles, explain, lost,
};
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

/// Whether these settings fit the rules of the ledger: who is reached from the network has some, and where there are some
/// nobody is let in without. Rules do not go away again.
///
/// # Errors
/// They do not (a [`ConfigError`]); or the ledger does not answer.
pub(super) async fn hold_to(config: &Config, ledger: &dyn Ledger) -> anyhow::Result<()> {
    let has_rules = ledger.rules_generation().await.context("cannot read the rules of access")? > 0;
    if config.open_to_network && has_rules {
        let why = "open_to_network: rules of access are in force in this ledger, so nobody is let in who shows \
                   nothing; leave it out";
        return Err(ConfigError::new(why).into());
    }
    if config.needs_rules() && !has_rules {
        let why = "listen, admin_listen or s3_listen is reached from the network, and no rules of access are in force: \
                   anyone who reaches it could take and break any lock; `fencegate access init` puts the first ones in \
                   force, with the settings of this gateway; or say --open-to-network";
        return Err(ConfigError::new(why).into());
    }
    Ok(())
}

/// Puts rules in force for a gateway that begins with them, and that nobody reaches yet.
///
/// # Errors
/// They are not good.
pub(super) async fn begin_with(ledger: &dyn Ledger, text: String) -> anyhow::Result<()> {
    let rules = checked(&text, now())?;
    let change = RulesChange {
        follows: Some(0),
        database_roles: database_roles(&rules),
        text,
        applied_by: None,
        reason: "the gateway began with them".to_owned(),
        request_id: REQUEST_ID.to_owned(),
        asked: None,
    };
    ledger.apply_rules(change).await?;
    Ok(())
}

/// Finds the locks whose holders would lose them by these rules; nothing changes. With `breaks`, all of them would be broken.
///
/// # Errors
/// As [`apply_rules`].
pub async fn lost_by_rules(
    config: &Config,
    text: &str,
    follows: Option<i64>,
    breaks: bool,
) -> anyhow::Result<Applied> {
    let rules = checked(text, now())?;
    on_ledger(config, async |ledger| {
        let generation = ledger.rules_generation().await?;
        if follows.is_some_and(|follows| follows != generation) {
            bail!(not_followed(generation));
        }
        Ok(Applied { generation, lost: Some(lost(ledger, &rules, breaks).await?) })
    })
    .await
}

fn not_followed(generation: i64) -> String {
    format!(
        "rules of generation {generation} are in force, not those that these are to follow; nothing changed"
    )
}

/// Puts rules in force, finds the locks whose holders have lost the right to them, and breaks those whose credentials were
/// taken back, or all if that is wanted. Beside running gateways on Postgres; in a data directory while no gateway uses it.
///
/// # Errors
/// They are not good, or are not to follow the ones in force; or the ledger cannot be used. Nothing changed then.
pub async fn apply_rules(
    config: &Config,
    text: String,
    follows: Option<i64>,
    (reason, breaks): (&str, bool),
) -> anyhow::Result<Applied> {
    let rules = checked(&text, now())?;
    let change = RulesChange {
        follows,
        text,
        database_roles: database_roles(&rules),
        applied_by: None,
        reason: reason.to_owned(),
        request_id: REQUEST_ID.to_owned(),
        asked: None,
    };
    on_ledger(config, async |ledger| {
        let applied = ledger.apply_rules(change).await;
        let generation = match applied.context("whether the rules are in force is not known")? {
            RulesChanged::InForce(generation) => generation,
            RulesChanged::Overtaken(generation) => bail!(not_followed(generation)),
        };
        let found = async {
            let mut lost = lost(ledger, &rules, breaks).await?;
            let (reason, request_id) = (reason.to_owned(), REQUEST_ID.to_owned());
            let breaking = Breaking { generation, by: By::default(), reason, request_id };
            break_lost(ledger, &mut lost, &breaking).await?;
            Ok::<_, LedgerError>(lost)
        };
        let lost = found.await.inspect_err(|error| {
            tracing::warn!(%error, "which locks were lost by these rules is not known");
        });
        Ok(Applied { generation, lost: lost.ok() })
    })
    .await
}

/// The rules that are in force.
///
/// # Errors
/// The ledger cannot be used.
pub async fn rules_in_force(config: &Config) -> anyhow::Result<RulesInForce> {
    on_ledger(config, async |ledger| Ok(ledger.rules().await?)).await
}

/// What the rules that are in force say.
///
/// # Errors
/// The ledger cannot be used, its rules cannot be read, or there is no such action or resource.
pub async fn explain_rules(
    config: &Config,
    principal: &PrincipalName,
    action: &str,
    resource: &str,
) -> anyhow::Result<Explained> {
    let action = Action::named(action).context("there is no such action")?;
    let want = Want::asked(action, resource)?;
    let RulesInForce { generation, text } = rules_in_force(config).await?;
    let rules = text.as_deref().map(Rules::parse).transpose()?;
    Ok(explain((generation, rules.as_ref()), principal, &want))
}

pub(super) async fn on_ledger<T>(
    config: &Config,
    work: impl AsyncFnOnce(&dyn Ledger) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match &config.postgres {
        Some(_) => work(&shared(config).await?).await,
        None => {
            let embedded = Embedded::open(config).await?;
            let outcome = work(&embedded.ledger).await;
            embedded.ledger.close().await?;
            outcome
        }
    }
}

/// The ledger on Postgres, brought up to date.
///
/// # Errors
/// There is none, or it cannot be used.
pub(super) async fn shared(config: &Config) -> anyhow::Result<PgLedger> {
    let Some(url) = &config.postgres else { bail!("no Postgres is named") };
    let options = super::shared::postgres_options(url)?;
    let ledger = PgLedger::new(PgSettings {
        options: options.clone(),
        connections_max: super::shared::POSTGRES_CONNECTIONS_MAX,
        timeout: config.request_timeout,
    });
    ledger.check().await.context("cannot use the Postgres server")?;
    postgres::migrate(&options).await?;
    Ok(ledger)
}

/// The ledger of a data directory, which no gateway may use meanwhile.
pub(super) struct Embedded {
    pub(super) ledger: SqliteLedger,
    _data_dir: DataDir,
}

impl Embedded {
    /// What is not there yet is made as `serve` makes it, the mint too: a ledger without its mint would seem to have
    /// lost it.
    ///
    /// # Errors
    /// A gateway uses it, or it cannot be used.
    pub(super) async fn open(config: &Config) -> anyhow::Result<Self> {
        // The gateway that uses it should have been asked at its socket.
        let data_dir = DataDir::lock(&config.data_dir).map_err(|error| {
            match config.socket_trouble().filter(|_| error.is::<InUse>()) {
                Some(why) => anyhow::anyhow!("{error}; {why}"),
                None => error,
            }
        })?;
        let runtime = runtime::runtime(TaskTracker::new());
        EmbeddedMint::open(&config.data_dir)?;
        let path = SqliteLedger::path(&config.data_dir);
        let clock = Arc::clone(&runtime.clock);
        let ledger = SqliteLedger::open(&path, clock, runtime.ids.uuid()).await?;
        root::leave_ledger(&config.data_dir, &ledger).await?;
        Ok(Self { ledger, _data_dir: data_dir })
    }
}
