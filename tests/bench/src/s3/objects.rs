//! Objects by S3 beside the same objects by the gateway's own API: the same gateway, the same locks, in turn.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fence_tests::client::object_path;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::s3::{Key, Request};
use fence_tests::stores::{Kind, Store, on_store};
use futures::future::try_join_all;

use super::{BUCKET, Site, told};
use crate::callers::{Same, put};
use crate::http::request;
use crate::load::{Pace, measure};
use crate::report::Spread;
use crate::servers::{body, quiet, warm_up};

/// Callers of small objects, and of large ones.
const MANY: usize = 64;
const FEW: usize = 4;
const SMALL: usize = 1024;
const LARGE: usize = 8 << 20;

/// The same asked in two ways.
struct Row {
    what: &'static str,
    /// How much of the rate of the gateway's own API is wanted.
    least: f64,
    callers: usize,
    native: Vec<Arc<[u8]>>,
    s3: Vec<Arc<[u8]>>,
}

/// A signed request, whole.
fn whole(request: Request, site: &Site, key: &Key) -> Arc<[u8]> {
    let signed = request.sign(site.at, key);
    [signed.head(signed.body.len()).as_slice(), &signed.body].concat().into()
}

/// Puts and gets of objects of so many bytes.
async fn rows(site: &Site, size: usize, callers: usize) -> Result<[Row; 2]> {
    let (puts, gets, least) = match size {
        SMALL => ("PUT of 1 KiB", "GET of 1 KiB", [0.7, 0.75]),
        _ => ("PUT of 8 MiB", "GET of 8 MiB", [0.95, 0.95]),
    };
    let row = |what, least| Row { what, least, callers, native: Vec::new(), s3: Vec::new() };
    let (mut put_row, mut get_row) = (row(puts, least[0]), row(gets, least[1]));
    let bytes = body(size);
    for number in 0..callers {
        let name = format!("r{size}-{number}");
        let (lock, key) = site.lock(&name).await?;
        let path = format!("/{BUCKET}/{name}/k");
        put_row.native.push(put(&lock, &bytes));
        put_row.s3.push(whole(Request::put(&path, bytes.clone()), site, &key));
        let native = object_path(lock.resources[0].as_str(), "k");
        get_row.native.push(request("GET", &native, &[], b"").into());
        get_row.s3.push(whole(Request::get(&path), site, &key));
    }
    Ok([put_row, get_row])
}

/// Measures all rows on etcd, Postgres and an S3 server.
///
/// # Errors
/// What could not be measured.
pub async fn measured(rounds: usize, seconds: u64) -> Result<bool> {
    let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
    let store = Store::start(Kind::S3).await;
    let ledger = postgres.database().await;
    let settings = quiet(Gateway::clustered(&ledger, &etcd.endpoint(), &etcd.prefix()));
    let site = Site::start(on_store(settings, &store)).await;
    let mut all_well = true;
    for (size, callers) in [(SMALL, MANY), (LARGE, FEW)] {
        for row in rows(&site, size, callers).await? {
            all_well &= measured_row(&site, &row, rounds, seconds).await?;
        }
    }
    Ok(all_well)
}

/// Strictly in turn; which of the two goes first in a round changes.
async fn measured_row(site: &Site, row: &Row, rounds: usize, seconds: u64) -> Result<bool> {
    let lasts = Duration::from_secs(seconds);
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let (address, requests) = match at {
                0 => (site.at, &row.s3),
                _ => (site.gateway.address(), &row.native),
            };
            let each = requests.iter().take(row.callers);
            let each = each.map(|request| Same::new(address, Arc::clone(request), 200..202));
            let callers = try_join_all(each).await?;
            let measured = measure(callers, Pace::Closed, warm_up(lasts), lasts).await?;
            rates[at].push(measured.per_second);
        }
    }
    let ratio = Spread::of(rates[0].iter().zip(&rates[1]).map(|(s3, native)| s3 / native));
    let rates = rates.map(|each| Spread::of(each.into_iter()));
    Ok(told(&format!("{}, answers/s", row.what), rates, ratio, row.least))
}
