//! 1 GiB in 16 parts that are sent at the same time: through the gateway, and to the S3 server that it stores them in, in
//! turn. And what memory the gateway takes for it.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::raw::RawAnswer;
use fence_tests::s3::{Key, Request, text_of};
use fence_tests::stores::{Kind, Store, on_store};
use futures::future::try_join_all;

use super::{BUCKET, Site, told};
use crate::report::Spread;
use crate::servers::{body, quiet};
use crate::usage::peak_mib;

const PARTS: usize = 16;
const PART_MIB: usize = 64;
/// How much of the rate of the server itself is wanted.
const LEAST: f64 = 0.9;
/// How much memory the gateway may take, in MiB.
const MEMORY_MAX_MIB: f64 = 300.0;

/// Where it goes, and who signs.
struct Target {
    at: SocketAddr,
    key: Key,
    path: String,
}

impl Target {
    async fn ask(&self, request: Request) -> Result<RawAnswer> {
        let what = format!("{} {}", request.method, request.path);
        let answer = request.sign(self.at, &self.key).send(self.at).await;
        ensure!((200..300).contains(&answer.status), "{what}: {}", answer.text());
        Ok(answer)
    }

    /// Uploads it once; returns MiB in a second.
    async fn upload(&self, part: &Bytes) -> Result<f64> {
        let began = Instant::now();
        let begun = self.ask(Request::begin(&self.path)).await?.text();
        let upload = text_of(&begun, "UploadId").context("an upload has an id")?;
        let tags = try_join_all((1..=PARTS).map(async |number| {
            let answer = self.ask(Request::part(&self.path, upload, number, part.clone())).await?;
            anyhow::Ok(answer.header("etag").context("a part has a tag")?.to_owned())
        }));
        let tags = tags.await?;
        self.ask(Request::complete(&self.path, upload, &tags)).await?;
        Ok((PARTS * PART_MIB) as f64 / began.elapsed().as_secs_f64())
    }
}

/// Measures both in turn.
///
/// # Errors
/// What could not be measured.
pub async fn measured(rounds: usize) -> Result<bool> {
    let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
    let store = Store::start(Kind::S3).await;
    let ledger = postgres.database().await;
    let settings = quiet(Gateway::clustered(&ledger, &etcd.endpoint(), &etcd.prefix()));
    let site = Site::start(on_store(settings, &store)).await;
    let variables = store.env(None);
    let variable = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        Ok::<_, anyhow::Error>(found.context("the store has a key")?.1.clone())
    };
    let key =
        Key { id: variable("AWS_ACCESS_KEY_ID")?, secret: variable("AWS_SECRET_ACCESS_KEY")? };
    let (_lock, of_lock) = site.lock("large").await?;
    let ours = Target { at: site.at, key: of_lock, path: format!("/{BUCKET}/large/k") };
    let at = store.address().context("it listens")?;
    let rival = Target { at, key, path: "/blobs/direct".to_owned() };
    let part = Bytes::from(body(PART_MIB << 20));
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let rate = [&ours, &rival][at].upload(&part).await?;
            rates[at].push(rate);
        }
    }
    let ratio = Spread::of(rates[0].iter().zip(&rates[1]).map(|(ours, rival)| ours / rival));
    let rates = rates.map(|each| Spread::of(each.into_iter()));
    let what = format!("{PARTS} parts of {PART_MIB} MiB at the same time, MiB/s");
    let is_fast = told(&what, rates, ratio, LEAST);
    let peak_mib = peak_mib(site.gateway.pid());
    let is_small = peak_mib < MEMORY_MAX_MIB;
    let not = if is_small { "" } else { ": NOT MET" };
    println!(
        "memory of the gateway: {peak_mib:.0} MiB at most, wanted below {MEMORY_MAX_MIB}{not}"
    );
    Ok(is_fast && is_small)
}
