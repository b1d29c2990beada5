//! What each path is compared with.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::future::try_join_all;

use crate::line;
use crate::load::{Caller, Pace, measure};
use crate::ours::{At, among};
use crate::paths::Path;
use crate::pgbench::{self, Statement};
use crate::prepared::{LARGE, MANY, Prepared};
use crate::rivals::{EtcdLocker, RedisWriter, S3Writer};
use crate::sample::{Meter, Sample};
use crate::servers::{Servers, body, warm_up};

/// Waiters in the short line.
const FEW_WAITERS: usize = 10;

/// Measures what people would use instead, or what a path must not be slower than.
///
/// # Errors
/// Whatever it says.
pub async fn theirs(
    servers: &Servers,
    prepared: &Prepared,
    path: Path,
    lasts: Duration,
) -> Result<Option<Sample>> {
    let measured = match path {
        Path::Put => pgbench(servers, Statement::WriteOwn, MANY, lasts).await?,
        Path::PutOne => pgbench(servers, Statement::WriteOne, MANY, lasts).await?,
        Path::PutAlone => pgbench(servers, Statement::WriteOwn, 1, lasts).await?,
        Path::Get => pgbench(servers, Statement::Read, MANY, lasts).await?,
        Path::PutEmbedded => {
            let writers = try_join_all((0..MANY).map(|n| RedisWriter::new(servers, n))).await?;
            sample(servers.redis()?.pid(), writers, lasts).await?
        }
        Path::Lock | Path::LockAlone => {
            let count = if path == Path::Lock { MANY } else { 1 };
            let lockers = try_join_all((0..count).map(|n| EtcdLocker::new(servers, n))).await?;
            sample(servers.clustered()?.etcd.pid(), lockers, lasts).await?
        }
        Path::Large => {
            let body = Bytes::from(body(LARGE));
            let each = (0..4).map(|number| S3Writer::new(servers, number, body.clone()));
            sample(servers.store()?.pid(), each.collect::<Result<Vec<_>>>()?, lasts).await?
        }
        Path::PutClient => At::clustered(servers)?.plain(prepared, lasts).await?,
        Path::Goodput | Path::Zombies => {
            At::clustered(servers)?.good_alone(prepared, lasts).await?
        }
        Path::ManyResources => {
            let few = prepared.few.as_ref().context("no ledger was filled")?;
            among(servers, few, lasts).await?
        }
        Path::HandOver => line::hand_over(servers, FEW_WAITERS, lasts).await?,
        Path::Ceiling => return Ok(None),
    };
    Ok(Some(measured))
}

async fn sample<C: Caller>(server: u32, callers: Vec<C>, lasts: Duration) -> Result<Sample> {
    let meter = Meter::begin(&[server], None);
    Ok(meter.end(&measure(callers, Pace::Closed, warm_up(lasts), lasts).await?))
}

async fn pgbench(
    servers: &Servers,
    statement: Statement,
    clients: usize,
    lasts: Duration,
) -> Result<Sample> {
    let clustered = servers.clustered()?;
    let meter = Meter::begin(&[clustered.postgres.pid()], None);
    Ok(meter.end(&pgbench::pgbench(clustered, statement, clients, lasts).await?))
}
