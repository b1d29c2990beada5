//! Settings that all gateways of a ledger must have alike: a start compares its own with them, and
//! `fencegate agree` changes them. So it does the ledger's own time, if its clock is said to be right.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use fence_core::ports::{ClockTrusted, Ledger as _};

use super::root;
use crate::config::{Config, S3Root};
use crate::engine::agreement::{self, Agreement};
use crate::ledger::postgres::{self, Change, PgLedger, PgSettings};

/// What this gateway brings, by the names of the settings; with the root of its keys of S3, if it has any.
pub(super) fn terms(config: &Config, s3_root: Option<&S3Root>) -> BTreeMap<String, String> {
    let others = agreement::Others {
        failover: config.failover.as_str(),
        requires_lock_id: config.requires_lock_id(),
        s3_root: s3_root.map(S3Root::fingerprint),
    };
    agreement::terms(&super::retention(config), &super::blobs::times(config), others)
}

/// Refuses a gateway whose settings are not those that are agreed. The first one on a ledger brings them.
///
/// A gateway with S3 also takes away a root of keys that an older one left in the ledger in clear; others warn of it:
/// 1. That is what is agreed, unless something is: keys were made of it.
/// 2. All gateways have what is agreed from their settings, this one too.
/// 3. So the ledger need not have it.
///
/// # Errors
/// It has others, or the ledger does not answer.
pub(super) async fn hold_to(
    config: &Config,
    ledger: &PgLedger,
    s3_root: Option<&S3Root>,
) -> anyhow::Result<()> {
    // Step 1.
    let is_in_clear = root::agree_on_clear(ledger).await?;
    // Step 2.
    let held = hold_terms(ledger, &terms(config, s3_root)).await;
    if !is_in_clear {
        return held;
    }
    if s3_root.is_none() {
        tracing::warn!(
            "an older version left the root of S3 keys in the ledger: whoever reads it can make the key of any lock; \
             a start with that as s3_root, and s3_listen, removes it"
        );
        return held;
    }
    held.context(S3Root::IN_CLEAR)?;
    // Step 3.
    ledger.remove_s3_root().await.context(
        "cannot remove the root of S3 keys from the ledger; a role that does not own it needs what \
         schema/postgres/roles.sql grants",
    )?;
    tracing::info!("the root of S3 keys was removed from the ledger: it is a setting");
    Ok(())
}

async fn hold_terms(ledger: &PgLedger, terms: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let agreed = ledger.agree_first(terms).await.context("cannot read what the gateways agreed")?;
    let differences = agreement::differences(terms, &agreed);
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "all gateways of a ledger must have these settings alike: {}. Set them here as they are agreed, or agree \
         what is set here for all gateways by: fencegate agree --reason TEXT",
        differences.join("; ")
    );
}

/// Agrees the settings of this command for all gateways; returns what there is to tell.
///
/// # Errors
/// There is but one gateway, or the ledger does not answer.
pub async fn agree(config: &Config, reason: &str) -> anyhow::Result<String> {
    ensure!(!reason.trim().is_empty(), "--reason must say why");
    let Some(url) = &config.postgres else {
        bail!(
            "a data directory has one gateway, whose settings hold as they are: there is nothing to agree on"
        );
    };
    let options = super::shared::postgres_options(url)?;
    let ledger = PgLedger::new(PgSettings {
        options: options.clone(),
        connections_max: super::shared::POSTGRES_CONNECTIONS_MAX,
        timeout: config.request_timeout,
    });
    ledger.check().await.context("cannot use the Postgres server")?;
    postgres::migrate(&options).await?;
    let s3_root = config.s3_root.as_ref().filter(|_| config.s3_listen.is_some());
    let agreed = ledger.agree(&terms(config, s3_root), reason).await;
    Ok(told(&agreed.context("cannot change what is agreed")?))
}

fn told(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "These settings are agreed already; nothing changed.\n".to_owned();
    }
    let line = |Change { name, former, value }: &Change| {
        format!("{name}: {} -> {value}\n", former.as_deref().unwrap_or("not agreed"))
    };
    let lines: String = changes.iter().map(line).collect();
    lines
        + "Start every gateway again with these settings. Until then each keeps what it has for the longer of the \
           two times. Keys, ended locks, burials and history are kept for at \
           least as long as was agreed when they were made.\n"
}

/// Sets the ledger's own time by its clock, which is right by the word of an operator; returns what there is to tell. Beside
/// running gateways on Postgres; in a data directory while no gateway uses it.
///
/// # Errors
/// The clock is not ahead of the own time, there is no ledger, or it cannot be used.
pub async fn trust_clock(config: &Config, reason: &str) -> anyhow::Result<String> {
    ensure!(!reason.trim().is_empty(), "--reason must say why");
    super::require_ledger(config)?;
    let verdict = super::access::on_ledger(config, async |ledger| {
        ledger.trust_clock(reason).await.context("cannot set the ledger's own time")
    });
    match verdict.await? {
        ClockTrusted::Set { from, to } => Ok(format!(
            "own time: {from:.0} -> {to:.0}\nWhat has been kept long enough by that is let go by the next sweeps.\n"
        )),
        ClockTrusted::NotAhead { own, clock } => bail!(
            "the ledger's clock, {clock:.0}, is not ahead of its own time, {own:.0}; nothing changed"
        ),
    }
}

/// How far back a failover or a restore may bring the ledger: as far as is agreed, if that is further than what this
/// command was told.
///
/// # Errors
/// The ledger does not answer.
pub(super) async fn horizon(config: &Config, ledger: &PgLedger) -> anyhow::Result<Duration> {
    let place = ledger.place(None).await.context("cannot read what the gateways agreed")?;
    let terms = terms(config, None);
    let agreement = Agreement::new(super::retention(config), super::blobs::times(config), terms);
    agreement.heard(&place.agreed);
    Ok(agreement.blob_times().rollback_horizon)
}
