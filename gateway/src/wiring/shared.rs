//! The set-up on Postgres and etcd, which any number of gateways share.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fence_core::ports::{CheckpointPlace, Runtime};
use sqlx::postgres::PgConnectOptions;
use tokio_util::sync::CancellationToken;

use super::{Parts, agree};
use crate::config::{Config, PostgresUrl, Secret};
use crate::ledger::postgres::{self, PgLedger, PgSettings};
use crate::mint::{self, EtcdMint, EtcdSettings};

/// Connections to Postgres, at most: committers, the other queues, lanes and queries.
pub(super) const POSTGRES_CONNECTIONS_MAX: usize = 30;
/// How often a Postgres that is not there yet is looked for.
const LEDGER_PAUSE: Duration = Duration::from_millis(500);

/// Postgres and etcd. Postgres is waited for, since it must be migrated; etcd need not be there.
pub(super) async fn open(
    config: &Config,
    url: &PostgresUrl,
    runtime: &Runtime,
    soft: &CancellationToken,
) -> anyhow::Result<Parts> {
    let options = postgres_options(url)?;
    let ledger = PgLedger::new(PgSettings {
        options: options.clone(),
        connections_max: POSTGRES_CONNECTIONS_MAX,
        timeout: config.request_timeout,
    })
    .keeping_versions(!config.versions_kept.is_zero());
    // Before anything is changed there: is it a server that keeps what it acknowledges?
    wait_for(&ledger, config.wait_for_ledger, runtime, soft).await?;
    let creators = ledger.other_creators().await?;
    if !creators.is_empty() {
        tracing::warn!(
            roles = creators.join(", "),
            "others may create functions in schema public of the ledger's database; \
             REVOKE CREATE ON SCHEMA public FROM them, or give the ledger a database of its own"
        );
    }
    let version = postgres::migrate(&options).await?;
    if ledger.owns_its_tables().await? {
        tracing::warn!(
            "this gateway's role owns the tables, and so may change what was recorded: let it serve with a role of \
             its own (schema/postgres/roles.sql)"
        );
    }
    let s3_root = config.s3_root.clone().filter(|_| config.s3_listen.is_some());
    agree::hold_to(config, &ledger, s3_root.as_ref()).await?;
    tracing::info!(version, "ledger on Postgres, mint on etcd");
    let mint = EtcdMint::connect(&etcd_settings(config), Arc::clone(&runtime.clock))?;
    let mint = Arc::new(mint);
    watch_etcd(Arc::clone(&mint), runtime, soft.clone());
    let ledger = Arc::new(ledger);
    let checkpoints: Arc<dyn CheckpointPlace> = Arc::<EtcdMint>::clone(&mint);
    Ok(Parts {
        kinds: ["postgres", "etcd"],
        shared: Some(Arc::clone(&ledger)),
        ledger,
        mint,
        blobs: None,
        committers: config.committers,
        embedded: None,
        audit_places: vec![checkpoints],
        s3_root,
    })
}

/// Waits for a Postgres that is not there yet, or not yet a primary, for so long. What waiting cannot change is said
/// at once.
async fn wait_for(
    ledger: &PgLedger,
    limit: Duration,
    runtime: &Runtime,
    soft: &CancellationToken,
) -> anyhow::Result<()> {
    let until = runtime.clock.elapsed() + limit;
    let mut said = false;
    loop {
        let why = match ledger.check().await {
            Ok(()) => return Ok(()),
            Err(why) if !why.may_pass || runtime.clock.elapsed() >= until => why,
            Err(why) => {
                if !said {
                    tracing::warn!(
                        why = why.text,
                        "the Postgres server cannot be used yet; waiting up to {} s for it",
                        limit.as_secs()
                    );
                    said = true;
                }
                tokio::select! {
                    () = runtime.clock.sleep(LEDGER_PAUSE) => continue,
                    () = soft.cancelled() => why,
                }
            }
        };
        bail!("cannot use the Postgres server: {}", why.text);
    }
}

/// Watches how much room etcd has, until `soft`.
fn watch_etcd(mint: Arc<EtcdMint>, runtime: &Runtime, soft: CancellationToken) {
    let task = async move {
        tokio::select! {
            biased;
            () = soft.cancelled() => {}
            () = mint::room::watch(mint) => {}
        }
    };
    runtime.spawn.spawn_lasting("etcd-room", Box::pin(task));
}

pub(super) fn etcd_settings(config: &Config) -> EtcdSettings {
    EtcdSettings {
        endpoints: config.etcd.clone(),
        prefix: config.etcd_prefix.clone(),
        user: config.etcd_user.clone(),
        password: config.etcd_password.as_ref().map(|secret: &Secret| secret.reveal().to_owned()),
        ca_file: config.etcd_ca_file.clone(),
        cert_file: config.etcd_cert_file.clone(),
        key_file: config.etcd_key_file.clone(),
        // A grant may have to wait for the call before its own. Both end before its caller gives
        // up, so that it learns that there was no number, and not that nothing is known.
        timeout: EtcdSettings::TIMEOUT.min(config.request_timeout * 3 / 8),
    }
}

pub(super) fn postgres_options(url: &PostgresUrl) -> anyhow::Result<PgConnectOptions> {
    let options = url.options().map_err(anyhow::Error::msg).context("the Postgres URL")?;
    Ok(options.application_name("fencegate"))
}
