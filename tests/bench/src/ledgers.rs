//! A ledger of many resources or of few, beside others on its server.

use std::sync::Arc;

use anyhow::{Result, ensure};
use fence_tests::gateway::Gateway;
use futures::future::try_join_all;

use crate::callers::{Among, put};
use crate::fill::{TIDY, name};
use crate::http::Connection;
use crate::locks::lock_all;
use crate::servers::{Clustered, body};

/// Resources that are written to, in a large ledger as in a small one, which has no others.
pub const POOL: u64 = 10_000;

/// A ledger with a gateway of its own.
pub struct Ledger {
    /// The gateway.
    pub gateway: Gateway,
    puts: Arc<[Arc<[u8]>]>,
}

impl Ledger {
    /// Makes one of so many resources. [`POOL`] of those are held by locks that the gateway granted, spread evenly over all
    /// names; and each has been written to.
    ///
    /// # Errors
    /// A lock that is not granted.
    pub async fn new(clustered: &Clustered, resources: u64) -> Result<Self> {
        ensure!(resources >= POOL, "--resources is at least {POOL}");
        let (database, settings) = clustered.another().await?;
        // The gateway makes its mint, and is away while the tables are filled.
        let mut gateway = settings.start().await;
        let stride = resources / POOL;
        if stride > 1 {
            gateway.term();
            gateway.wait_for_exit().await;
            let url = clustered.postgres.owner_url(&database);
            clustered.version.fill(&url, resources, stride).await?;
            gateway.restart().await;
        }
        let pool: Vec<String> = (0..POOL).map(|number| name(number * stride)).collect();
        let locks = lock_all(&gateway, &pool).await?;
        let body = body(1024);
        let puts: Arc<[_]> = locks.iter().map(|lock| put(lock, &body)).collect();
        let each = puts.chunks(puts.len().div_ceil(64)).map(async |puts| {
            let mut connection = Connection::open(gateway.address()).await?;
            for put in puts {
                let answer = connection.ask(put).await?;
                ensure!(answer.status == 201, "{}", answer.body.escape_ascii());
            }
            Ok(())
        });
        try_join_all(each).await?;
        clustered.postgres.execute(&database, TIDY).await;
        Ok(Self { gateway, puts })
    }

    /// Writes to any of the held resources.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn writer(&self, number: usize) -> Result<Among> {
        Among::new(self.gateway.address(), Arc::clone(&self.puts), number).await
    }
}
