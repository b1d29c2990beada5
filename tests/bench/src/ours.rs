//! Each path through the gateway.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;

use crate::callers::{AsClient, Late, Locker, Same};
use crate::http::request;
use crate::ledgers::Ledger;
use crate::line;
use crate::load::{Caller, Measured, Pace, measure};
use crate::paths::Path;
use crate::prepared::{MANY, Prepared};
use crate::sample::{Meter, Sample};
use crate::servers::{Servers, warm_up};

/// Callers who send good writes while stale ones are refused, how many of them in a second, and how many times as many
/// those are.
const GOOD: usize = 32;
const GOOD_PER_SECOND: f64 = 300.0;
const STALE_PER_GOOD: f64 = 10.0;
/// Callers who send those: so many that each is done with one, which may be answered late, before the next is due.
const STALE: usize = 1_000;
/// Callers who write to the ledger of many resources.
const SOME: usize = 16;

/// A gateway that is measured, with the servers that work for it.
pub struct At {
    address: SocketAddr,
    servers: Vec<u32>,
    gateway: Option<u32>,
}

impl At {
    /// The gateway on etcd and Postgres.
    ///
    /// # Errors
    /// No path needed it.
    pub fn clustered(servers: &Servers) -> Result<Self> {
        let gateway = &servers.clustered()?.gateway;
        Ok(Self {
            address: gateway.address(),
            servers: servers.pids()?,
            gateway: Some(gateway.pid()),
        })
    }

    /// The gateway on the embedded default.
    fn embedded(servers: &Servers) -> Result<Self> {
        let gateway = servers.embedded()?;
        let pid = gateway.pid();
        Ok(Self { address: gateway.address(), servers: vec![pid], gateway: Some(pid) })
    }

    /// The HTTP server that does nothing, which is a part of this process.
    fn empty(servers: &Servers) -> Self {
        Self { address: servers.empty, servers: Vec::new(), gateway: None }
    }

    fn meter(&self) -> Meter {
        Meter::begin(&self.servers, self.gateway)
    }

    /// Callers who repeat these requests, each one of them.
    async fn same(
        &self,
        requests: &[Arc<[u8]>],
        count: usize,
        wanted: Range<u16>,
    ) -> Result<Vec<Same>> {
        let each = requests.iter().cycle().take(count);
        let each = each.map(|it| Same::new(self.address, Arc::clone(it), wanted.clone()));
        try_join_all(each).await
    }

    /// Lets callers ask again as soon as they have their answers.
    async fn sample<C: Caller>(&self, callers: Vec<C>, lasts: Duration) -> Result<Sample> {
        let meter = self.meter();
        Ok(meter.end(&measure(callers, Pace::Closed, warm_up(lasts), lasts).await?))
    }

    /// Measures good writes while others ask at a pace of their own.
    async fn beside<C: Caller>(
        &self,
        prepared: &Prepared,
        others: Vec<C>,
        pace: Pace,
        lasts: Duration,
    ) -> Result<Sample> {
        let good = self.same(&prepared.puts, GOOD, 200..202).await?;
        let meter = self.meter();
        let (good, others) = tokio::join!(
            measure(good, Pace::PerSecond(GOOD_PER_SECOND), warm_up(lasts), lasts),
            measure(others, pace, warm_up(lasts), lasts),
        );
        Ok(meter.end(&Measured { beside: others?.answers, ..good? }))
    }

    /// Measures the plain puts.
    ///
    /// # Errors
    /// Any answer that is not the one wanted.
    pub async fn plain(&self, prepared: &Prepared, lasts: Duration) -> Result<Sample> {
        self.sample(self.same(&prepared.puts, MANY, 200..202).await?, lasts).await
    }

    /// Measures the good writes alone that are compared with those beside stale ones.
    ///
    /// # Errors
    /// Any answer that is not the one wanted.
    pub async fn good_alone(&self, prepared: &Prepared, lasts: Duration) -> Result<Sample> {
        let good = self.same(&prepared.puts, GOOD, 200..202).await?;
        let (meter, pace) = (self.meter(), Pace::PerSecond(GOOD_PER_SECOND));
        Ok(meter.end(&measure(good, pace, warm_up(lasts), lasts).await?))
    }
}

/// Measures a path through the gateway.
///
/// # Errors
/// Any answer that is not the one wanted.
pub async fn ours(
    servers: &Servers,
    prepared: &Prepared,
    path: Path,
    lasts: Duration,
) -> Result<Sample> {
    let at = match path {
        Path::PutEmbedded => At::embedded(servers)?,
        Path::Ceiling => At::empty(servers),
        _ => At::clustered(servers)?,
    };
    match path {
        Path::Put => at.plain(prepared, lasts).await,
        Path::PutClient => {
            let each = prepared.of_clients.iter();
            let each = each.map(|put| AsClient::new(at.address, Arc::clone(put)));
            at.sample(try_join_all(each).await?, lasts).await
        }
        Path::PutOne => at.sample(at.same(&prepared.puts[..1], MANY, 200..202).await?, lasts).await,
        Path::PutAlone => at.sample(at.same(&prepared.puts, 1, 200..202).await?, lasts).await,
        Path::PutEmbedded => {
            at.sample(at.same(&prepared.embedded, MANY, 200..202).await?, lasts).await
        }
        Path::Get => at.sample(at.same(&prepared.gets, MANY, 200..201).await?, lasts).await,
        Path::Large => at.sample(at.same(&prepared.large, 4, 200..202).await?, lasts).await,
        Path::Lock | Path::LockAlone => {
            let count = if path == Path::Lock { MANY } else { 1 };
            let names: Vec<String> = (0..count).map(|number| format!("lock{number}")).collect();
            let lockers = names.iter().map(|name| Locker::new(at.address, name));
            at.sample(try_join_all(lockers).await?, lasts).await
        }
        Path::Goodput => {
            let pace = Pace::PerSecond(GOOD_PER_SECOND * STALE_PER_GOOD);
            let stale = at.same(&prepared.stale, STALE, 412..413).await?;
            at.beside(prepared, stale, pace, lasts).await
        }
        Path::Zombies => {
            let each = prepared.zombies.iter().map(|put| Late::new(at.address, Arc::clone(put)));
            let mut zombies = try_join_all(each).await?;
            // They are storming already: each of them was refused once.
            for zombie in zombies.iter_mut().take(prepared.stale.len()) {
                zombie.call().await?;
            }
            at.beside(prepared, zombies, Pace::Closed, lasts).await
        }
        Path::Ceiling => {
            let nothing = [request("GET", "/", &[], b"").into()];
            at.sample(at.same(&nothing, MANY, 200..201).await?, lasts).await
        }
        Path::ManyResources => {
            let many = prepared.many.as_ref().context("no ledger was filled")?;
            among(servers, many, lasts).await
        }
        Path::HandOver => line::hand_over(servers, prepared.waiters, lasts).await,
    }
}

/// Measures writes to resources at random.
///
/// # Errors
/// Any answer that is not the one wanted.
pub async fn among(servers: &Servers, ledger: &Ledger, lasts: Duration) -> Result<Sample> {
    let callers = try_join_all((0..SOME).map(|number| ledger.writer(number))).await?;
    let gateway = ledger.gateway.pid();
    let meter = Meter::begin(&[gateway, servers.clustered()?.postgres.pid()], Some(gateway));
    Ok(meter.end(&measure(callers, Pace::Closed, warm_up(lasts), lasts).await?))
}
