//! A gateway whose parts are all in memory, for tests: whatever it stored is gone when it ends.

use std::net::SocketAddr;
use std::sync::Arc;

use fence_core::memory::{MemoryBlobs, MemoryLedger, MemoryMint};
use fence_core::ports::Runtime;
use tokio_util::sync::CancellationToken;

use super::{Base, Parts, access, root, run};
use crate::config::Config;

/// Runs a gateway in memory until `soft` is cancelled and everything in flight is done, or `hard` is. `ready` hears
/// where it listens, once it takes requests. With `rules` it begins with these in force.
///
/// # Errors
/// As [`serve`](super::serve), and whatever `ready` fails with.
pub async fn dev(
    config: Config,
    rules: Option<String>,
    (soft, hard): (CancellationToken, CancellationToken),
    ready: impl FnOnce(SocketAddr) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let base = Base::new()?;
    let parts = open(&config, &base.runtime)?;
    if let Some(rules) = rules {
        access::begin_with(&*parts.ledger, rules).await?;
    }
    run(config, base, parts, (soft, hard), ready).await
}

/// The adapters that all others are compared with.
fn open(config: &Config, runtime: &Runtime) -> anyhow::Result<Parts> {
    let clock = &runtime.clock;
    let ledger = MemoryLedger::new(Arc::clone(clock), runtime.ids.uuid());
    let ledger = match config.versions_kept.is_zero() {
        true => ledger,
        false => ledger.keeping_versions(),
    };
    Ok(Parts {
        kinds: ["memory", "memory"],
        shared: None,
        ledger: Arc::new(ledger),
        mint: Arc::new(MemoryMint::default()),
        blobs: Some(Arc::new(MemoryBlobs::new(Arc::clone(clock)))),
        // One mutex: a second committer would only halve the batches.
        committers: 1,
        embedded: None,
        audit_places: Vec::new(),
        s3_root: config.s3_listen.map(|_| root::in_memory(config)).transpose()?,
    })
}
