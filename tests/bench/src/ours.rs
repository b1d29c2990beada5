//! Each path through the gateway.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;

use crate::callers::{AsClient, Late, Locker, Same};
use crate::http::request;
use crate::ledgers::Ledger;
use crate::line;
use crate::load::{Caller as _, Measured, Pace, measure};
use crate::paths::Path;
use crate::prepared::{MANY, Prepared};
use crate::sample::{Meter, Sample};
use crate::servers::{Servers, warm_up};

/// Good writes in a second while stale ones are refused, and how many times as many those are.
const GOOD_PER_SECOND: f64 = 300.0;
const STALE_PER_GOOD: f64 = 10.0;
/// Who send those: so many that each is done with one, which may be answered late, before the next is due.
const STALE: usize = 1_000;
/// Callers who write to the ledger of many resources.
const SOME: usize = 16;

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
        Path::PutEmbedded => servers.embedded.address(),
        Path::Ceiling => servers.empty,
        _ => servers.clustered.address(),
    };
    let same = async |requests: &[Arc<[u8]>], count: usize, wanted: Range<u16>| {
        let each = (0..count).map(|number| {
            Same::new(at, Arc::clone(&requests[number % requests.len()]), wanted.clone())
        });
        measure(try_join_all(each).await?, Pace::Closed, warm_up(lasts), lasts).await
    };
    let meter = match path {
        Path::PutEmbedded => Meter::begin(&[servers.embedded.pid()], Some(servers.embedded.pid())),
        // The server is a part of this process.
        Path::Ceiling => Meter::begin(&[], None),
        // They begin to measure later.
        Path::ManyResources => {
            let ledgers = prepared.ledgers.as_ref().context("no ledger was filled")?;
            return among(servers, &ledgers.large, lasts).await;
        }
        Path::HandOver => return line::hand_over(servers, prepared.waiters, lasts).await,
        _ => clustered(servers),
    };
    let measured = match path {
        Path::Put => plain(servers, prepared, lasts).await,
        Path::PutClient => {
            let each = prepared.of_clients.iter().map(|put| AsClient::new(at, Arc::clone(put)));
            measure(try_join_all(each).await?, Pace::Closed, warm_up(lasts), lasts).await
        }
        Path::PutOne => same(&prepared.puts[..1], MANY, 200..202).await,
        Path::PutAlone => same(&prepared.puts, 1, 200..202).await,
        Path::PutEmbedded => same(&prepared.embedded, MANY, 200..202).await,
        Path::Get => same(&prepared.gets, MANY, 200..201).await,
        Path::Large => same(&prepared.large, 4, 200..202).await,
        Path::Lock | Path::LockAlone => {
            let count = if path == Path::Lock { MANY } else { 1 };
            let names: Vec<String> = (0..count).map(|number| format!("lock{number}")).collect();
            let lockers = try_join_all(names.iter().map(|name| Locker::new(at, name))).await?;
            measure(lockers, Pace::Closed, warm_up(lasts), lasts).await
        }
        Path::Goodput => {
            let each = (0..STALE).map(|number| {
                let put = &prepared.stale[number % prepared.stale.len()];
                Same::new(at, Arc::clone(put), 412..413)
            });
            let rate = Pace::PerSecond(GOOD_PER_SECOND * STALE_PER_GOOD);
            let stale = try_join_all(each).await?;
            let (good, stale) = tokio::join!(
                good_alone(servers, prepared, lasts),
                measure(stale, rate, warm_up(lasts), lasts),
            );
            stale?;
            good
        }
        Path::Zombies => {
            let each = prepared.zombies.iter().map(|put| Late::new(at, Arc::clone(put)));
            let mut zombies = try_join_all(each).await?;
            // They are storming already: each of them was refused once.
            for zombie in zombies.iter_mut().take(prepared.stale.len()) {
                zombie.call().await?;
            }
            let (good, zombies) = tokio::join!(
                good_alone(servers, prepared, lasts),
                measure(zombies, Pace::Closed, warm_up(lasts), lasts),
            );
            zombies?;
            good
        }
        Path::Ceiling => same(&[request("GET", "/", &[], b"").into()], MANY, 200..201).await,
        Path::ManyResources | Path::HandOver => unreachable!("they have returned"),
    }?;
    Ok(meter.end(&measured))
}

/// What the gateway on etcd, Postgres and the S3 server takes, with all of them.
pub fn clustered(servers: &Servers) -> Meter {
    let gateway = servers.clustered.pid();
    let all = [gateway, servers.postgres.pid(), servers.etcd.pid(), servers.store.pid()];
    Meter::begin(&all, Some(gateway))
}

/// The plain puts.
///
/// # Errors
/// Any answer that is not the one wanted.
pub async fn plain(servers: &Servers, prepared: &Prepared, lasts: Duration) -> Result<Measured> {
    let at = servers.clustered.address();
    let each = prepared.puts.iter().map(|put| Same::new(at, Arc::clone(put), 200..202));
    measure(try_join_all(each).await?, Pace::Closed, warm_up(lasts), lasts).await
}

/// The good writes of the comparison with stale ones.
///
/// # Errors
/// Any answer that is not the one wanted.
pub async fn good_alone(
    servers: &Servers,
    prepared: &Prepared,
    lasts: Duration,
) -> Result<Measured> {
    let at = servers.clustered.address();
    let each = prepared.puts.iter().take(32).map(|put| Same::new(at, Arc::clone(put), 200..202));
    let callers = try_join_all(each).await?;
    measure(callers, Pace::PerSecond(GOOD_PER_SECOND), warm_up(lasts), lasts).await
}

/// Writes to resources at random.
///
/// # Errors
/// Any answer that is not the one wanted.
pub async fn among(servers: &Servers, ledger: &Ledger, lasts: Duration) -> Result<Sample> {
    let callers = try_join_all((0..SOME).map(|number| ledger.writer(number))).await?;
    let gateway = ledger.gateway.pid();
    let meter = Meter::begin(&[gateway, servers.postgres.pid()], Some(gateway));
    let measured = measure(callers, Pace::Closed, warm_up(lasts), lasts).await?;
    Ok(meter.end(&measured))
}
