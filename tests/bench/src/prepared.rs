//! What is made once, before anything is measured.

use std::sync::Arc;

use anyhow::Result;
use fence_core::wire::Lock;
use fence_tests::client::object_path;
use serde::Serialize;

use crate::callers::{OfClient, Same, put, put_keyed};
use crate::http::request;
use crate::ledgers::Ledgers;
use crate::load::Caller as _;
use crate::locks::lock_all;
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

/// What callers present, made once.
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
    /// The ledger of many resources and that of few, if they are compared.
    pub ledgers: Option<Ledgers>,
    /// How many wait in the long line.
    pub waiters: usize,
}

impl Prepared {
    /// Takes the locks, and writes what is read.
    ///
    /// # Errors
    /// A lock that is not granted.
    pub async fn new(servers: &Servers, paths: &[Path], size: Size) -> Result<Self> {
        let names: Vec<String> = (0..MANY).map(|number| format!("r{number}")).collect();
        let small = body(1024);
        let each = |locks: &[Lock], body: &[u8]| locks.iter().map(|lock| put(lock, body)).collect();
        let locks = lock_all(&servers.clustered, &names).await?;
        let puts: Vec<_> = each(&locks, &small);
        for put in &puts {
            Same::new(servers.clustered.address(), Arc::clone(put), 200..202).await?.call().await?;
        }
        let get = |name: &String| request("GET", &object_path(name, "k"), &[], b"").into();
        let large: Vec<String> = (0..4).map(|number| format!("large{number}")).collect();
        let large = lock_all(&servers.clustered, &large).await?;
        let lost: Vec<String> = (0..16).map(|number| format!("lost{number}")).collect();
        let old = lock_all(&servers.clustered, &lost).await?;
        let client = servers.clustered.client();
        for lock in &old {
            client.release(lock).send().await.expect(204);
        }
        lock_all(&servers.clustered, &lost).await?;
        let zombie = |number: usize| {
            let lock = &old[number % old.len()];
            match number % 2 {
                0 => put(lock, &small),
                _ => put_keyed(lock, &small, &format!("zombie-{number}")),
            }
        };
        let ledgers = match paths.contains(&Path::ManyResources) {
            true => Some(Ledgers::new(servers, size.resources).await?),
            false => None,
        };
        Ok(Self {
            puts,
            of_clients: locks.iter().map(|lock| Arc::new(OfClient::new(lock, &small))).collect(),
            embedded: each(&lock_all(&servers.embedded, &names).await?, &small),
            gets: names.iter().map(get).collect(),
            large: each(&large, &body(LARGE)),
            stale: each(&old, &small),
            zombies: (0..ZOMBIES).map(zombie).collect(),
            ledgers,
            waiters: size.waiters,
        })
    }
}
