//! What each path is compared with.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::future::try_join_all;

use crate::line;
use crate::load::{Pace, measure};
use crate::ours::{among, clustered, good_alone, plain};
use crate::paths::Path;
use crate::pgbench::{Statement, pgbench};
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
    let pid = match path {
        Path::PutEmbedded => servers.redis.pid(),
        Path::Lock | Path::LockAlone => servers.etcd.pid(),
        Path::Large => servers.store.pid(),
        _ => servers.postgres.pid(),
    };
    let warm = warm_up(lasts);
    let meter = match path {
        Path::ManyResources => {
            let ledgers = prepared.ledgers.as_ref().context("no ledger was filled")?;
            return among(servers, &ledgers.small, lasts).await.map(Some);
        }
        Path::HandOver => return line::hand_over(servers, FEW_WAITERS, lasts).await.map(Some),
        Path::Ceiling => return Ok(None),
        Path::PutClient | Path::Goodput | Path::Zombies => clustered(servers),
        _ => Meter::begin(&[pid], None),
    };
    let measured = match path {
        Path::Put => pgbench(servers, Statement::WriteOwn, MANY, lasts).await?,
        Path::PutClient => plain(servers, prepared, lasts).await?,
        Path::PutOne => pgbench(servers, Statement::WriteOne, MANY, lasts).await?,
        Path::PutAlone => pgbench(servers, Statement::WriteOwn, 1, lasts).await?,
        Path::Get => pgbench(servers, Statement::Read, MANY, lasts).await?,
        Path::PutEmbedded => {
            let writers = try_join_all((0..MANY).map(|n| RedisWriter::new(servers, n))).await?;
            measure(writers, Pace::Closed, warm, lasts).await?
        }
        Path::Lock | Path::LockAlone => {
            let count = if path == Path::Lock { MANY } else { 1 };
            let lockers = try_join_all((0..count).map(|n| EtcdLocker::new(servers, n))).await?;
            measure(lockers, Pace::Closed, warm, lasts).await?
        }
        Path::Large => {
            let body = Bytes::from(body(LARGE));
            let each = (0..4).map(|number| S3Writer::new(servers, number, body.clone()));
            measure(each.collect::<Result<Vec<_>>>()?, Pace::Closed, warm, lasts).await?
        }
        Path::Goodput | Path::Zombies => good_alone(servers, prepared, lasts).await?,
        Path::ManyResources | Path::HandOver | Path::Ceiling => unreachable!("they have returned"),
    };
    Ok(Some(meter.end(&measured)))
}
