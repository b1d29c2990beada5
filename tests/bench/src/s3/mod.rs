//! What S3 costs beside the gateway's own API, and large objects beside the S3 server of the tests: each in turn with its
//! rival. And lists of very many objects beside lists of few.

mod lists;
mod objects;
mod parts;

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use fence_core::wire::Lock;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::process::{free_port, loopback};
use fence_tests::s3::Key;
use serde_json::json;

use crate::report::Spread;

/// The bucket, whose keys name resources by their first segment.
const BUCKET: &str = "lake";

/// How S3 is measured.
#[derive(Debug, clap::Args)]
pub struct S3 {
    /// Only these; all, if none is named
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<What>,
    /// How often each of the two is measured
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// How long each lasts in a round, in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Objects in the larger one of the ledgers whose lists are compared
    #[arg(long, default_value_t = 5_000_000)]
    objects: u64,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Objects of 1 KiB and 8 MiB beside the gateway's own API
    Objects,
    /// 1 GiB in 16 parts that are sent at the same time, beside the S3 server that the gateway stores them in
    Parts,
    /// Lists of --objects objects beside those of 10,000, on both ledgers
    Lists,
}

impl S3 {
    /// Measures, and prints what comes out. Says whether all of it is as it must be.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(self.rounds > 0 && self.seconds > 0, "there are rounds, and they last");
        let mut all_well = true;
        let is_wanted = |what| self.only.is_empty() || self.only.contains(&what);
        if is_wanted(What::Objects) {
            all_well &= objects::measured(self.rounds, self.seconds).await?;
        }
        if is_wanted(What::Parts) {
            all_well &= parts::measured(self.rounds).await?;
        }
        if is_wanted(What::Lists) {
            all_well &= lists::measured(self.objects).await?;
        }
        Ok(all_well)
    }
}

/// A gateway that speaks S3.
struct Site {
    gateway: Gateway,
    at: SocketAddr,
}

impl Site {
    /// Starts it, and makes the bucket.
    async fn start(settings: Settings) -> Self {
        let at = loopback(free_port());
        let gateway = settings.flag("--s3-listen", &at.to_string()).start().await;
        let call = gateway.client().call(reqwest::Method::PUT, format!("/buckets/{BUCKET}"));
        let call = call.header("content-type", "application/json");
        call.body(json!({ "depth": 1 }).to_string()).send().await.expect(201);
        Self { gateway, at }
    }

    /// Takes a lock of the bucket that lasts for all of the measurement, and its key.
    async fn lock(&self, name: &str) -> Result<(Lock, Key)> {
        let wanted = json!({ "resource": format!("{BUCKET}:{name}"), "ttl": "24h" });
        let lock: Lock = self.gateway.client().lock(&wanted).send().await.expect(201).parse();
        let key = Key::from(lock.s3.as_ref().context("a lock of a bucket has a key")?);
        Ok((lock, key))
    }
}

/// Prints a row, and says whether the ratio is as high as it must be.
fn told(what: &str, rates: [Spread; 2], ratio: Spread, least: f64) -> bool {
    let is_met = ratio.median >= least;
    let [ours, rival] = rates.map(|spread| spread.median);
    let not = if is_met { "" } else { ": NOT MET" };
    println!("{what}: {ours:.1} beside {rival:.1}, {ratio}, wanted at least {least}{not}");
    is_met
}
