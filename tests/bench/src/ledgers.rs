//! Two ledgers on one server: one of many resources, and one of few.

use std::sync::Arc;

use anyhow::{Result, ensure};
use fence_tests::gateway::Gateway;
use fence_tests::postgres::database_in;
use futures::future::try_join_all;

use crate::callers::{Among, put};
use crate::fill::{fill, name, tidy};
use crate::http::Connection;
use crate::locks::lock_all;
use crate::servers::{Servers, body};

/// Resources that are written to, in either ledger: all of the small one.
pub const POOL: u64 = 10_000;

/// A ledger with a gateway of its own.
pub struct Ledger {
    /// The gateway.
    pub gateway: Gateway,
    puts: Arc<[Arc<[u8]>]>,
}

impl Ledger {
    /// One of so many resources. Of those, as many as there are in the small one are held by locks that the
    /// gateway granted, spread evenly over all names; and each has been written to.
    async fn new(servers: &Servers, resources: u64) -> Result<Self> {
        ensure!(resources >= POOL, "--resources is at least {POOL}");
        let url = servers.postgres.database().await;
        // The gateway makes the tables, and is away while they are filled.
        let mut gateway = servers.another(&url).start().await;
        let stride = resources / POOL;
        if stride > 1 {
            gateway.term();
            gateway.wait_for_exit().await;
            fill(&servers.postgres, database_in(&url), resources, stride).await?;
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
        tidy(&servers.postgres, database_in(&url)).await;
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

/// Both.
pub struct Ledgers {
    /// Of many resources.
    pub large: Ledger,
    /// Of few.
    pub small: Ledger,
}

impl Ledgers {
    /// Makes and fills them.
    ///
    /// # Errors
    /// A lock that is not granted.
    pub async fn new(servers: &Servers, resources: u64) -> Result<Self> {
        let large = Ledger::new(servers, resources).await?;
        let small = Ledger::new(servers, POOL).await?;
        servers.postgres.execute("postgres", "CHECKPOINT").await;
        Ok(Self { large, small })
    }
}
