//! What is made once, before anything is measured.

use std::sync::Arc;

use anyhow::Result;
use fence_core::wire::Lock;
use fence_tests::client::object_path;
use fence_tests::gateway::Gateway;
use serde::Serialize;

use crate::callers::{OfClient, Same, put, put_keyed};
use crate::http::request;
use crate::ledgers::{Ledger, POOL};
use crate::load::Caller as _;
use crate::locks::lock_all;
use crate::needs::Need;
use crate::paths::Path;
use crate::servers::{Servers, body};

/// How many callers ask at once where many do.
pub const MANY: usize = 64;
/// How many repeat stale writes.
pub const ZOMBIES: usize = 1_500;
/// The bytes of a large object.
pub const LARGE: usize = 8 << 20;

/// How large things are made.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Size {
    /// Resources in the ledger of many.
    pub resources: u64,
    /// Waiters in the long line.
    pub waiters: usize,
}

/// What callers present, made once; nothing where no path needs it.
#[derive(Default)]
pub struct Prepared {
    /// Puts of 1 KiB, each to a resource of its own.
    pub puts: Vec<Arc<[u8]>>,
    /// The same as our clients send them, of the same locks.
    pub of_clients: Vec<Arc<OfClient>>,
    /// Plain puts at the embedded gateway.
    pub embedded: Vec<Arc<[u8]>>,
    /// Reads of what those write.
    pub gets: Vec<Arc<[u8]>>,
    /// Puts of 8 MiB.
    pub large: Vec<Arc<[u8]>>,
    /// Puts under locks that have passed to somebody else.
    pub stale: Vec<Arc<[u8]>>,
    /// The same of very many, half of them with idempotency keys of their own.
    pub zombies: Vec<Arc<[u8]>>,
    /// The ledger of many resources.
    pub many: Option<Ledger>,
    /// The ledger of few, beside which it is measured.
    pub few: Option<Ledger>,
    /// How many wait in the long line.
    pub waiters: usize,
}

impl Prepared {
    /// Takes the locks, and writes what is read.
    ///
    /// # Errors
    /// A lock that is not granted.
    pub async fn new(
        servers: &Servers,
        paths: &[Path],
        size: Size,
        with_rivals: bool,
    ) -> Result<Self> {
        let mut made = Self { waiters: size.waiters, ..Self::default() };
        let (names, small) = (names("r", MANY), body(1024));
        if paths.contains(&Path::PutEmbedded) {
            let locks = lock_all(servers.embedded()?, &names).await?;
            made.embedded = each(&locks, &small);
        }
        // An empty answer needs none of the rest.
        if !paths.iter().any(|path| path.needs().contains(&Need::Postgres)) {
            return Ok(made);
        }
        let clustered = servers.clustered()?;
        let gateway = &clustered.gateway;
        let locks = lock_all(gateway, &names).await?;
        made.puts = each(&locks, &small);
        for put in &made.puts {
            Same::new(gateway.address(), Arc::clone(put), 200..202).await?.call().await?;
        }
        made.of_clients = locks.iter().map(|lock| Arc::new(OfClient::new(lock, &small))).collect();
        let get = |name: &String| request("GET", &object_path(name, "k"), &[], b"").into();
        made.gets = names.iter().map(get).collect();
        if paths.contains(&Path::Large) {
            made.large = each(&lock_all(gateway, &self::names("large", 4)).await?, &body(LARGE));
        }
        if [Path::Goodput, Path::Zombies].iter().any(|path| paths.contains(path)) {
            let old = lost(gateway).await?;
            made.stale = each(&old, &small);
            let zombie = |number: usize| {
                let lock = &old[number % old.len()];
                match number % 2 {
                    0 => put(lock, &small),
                    _ => put_keyed(lock, &small, &format!("zombie-{number}")),
                }
            };
            made.zombies = (0..ZOMBIES).map(zombie).collect();
        }
        if paths.contains(&Path::ManyResources) {
            made.many = Some(Ledger::new(clustered, size.resources).await?);
            if with_rivals {
                made.few = Some(Ledger::new(clustered, POOL).await?);
            }
            clustered.postgres.execute("postgres", "CHECKPOINT").await;
        }
        Ok(made)
    }
}

fn names(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{kind}{number}")).collect()
}

fn each(locks: &[Lock], body: &[u8]) -> Vec<Arc<[u8]>> {
    locks.iter().map(|lock| put(lock, body)).collect()
}

/// Locks that have been given back since, and whose resources have other holders.
async fn lost(gateway: &Gateway) -> Result<Vec<Lock>> {
    let names = names("lost", 16);
    let old = lock_all(gateway, &names).await?;
    let client = gateway.client();
    for lock in &old {
        client.release(lock).send().await.expect(204);
    }
    lock_all(gateway, &names).await?;
    Ok(old)
}
