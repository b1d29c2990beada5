//! What it costs to be seen: a line in the log for each write, and metrics that are fetched.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, binary};
use fence_tests::postgres::Postgres;
use tempfile::TempDir;

use crate::pairs::{Pairs, Site, tidied_often};
use crate::servers::logging;

/// How much longer the median answer of a caller alone may take, in microseconds.
const MORE_MAX_US: f64 = 20.0;
/// How often metrics are fetched.
const SCRAPED_EVERY: Duration = Duration::from_secs(1);

/// How it is measured.
#[derive(Debug, clap::Args)]
pub struct Seen {
    /// Pairs of measurements, without log and metrics and with them
    #[arg(long, default_value_t = 20)]
    pairs: usize,
    /// How long each of the two lasts in a pair, in seconds, which go in turn
    #[arg(long, default_value_t = 27)]
    seconds: u64,
}

impl Seen {
    /// Measures, and prints what comes out. Says whether it costs no more than it may.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
        tidied_often(&postgres).await;
        let home = TempDir::new()?;
        let unread = unread(&home)?;
        let of = async |prefix: &str, log: &str| {
            let prefix = format!("{}{prefix}", etcd.prefix());
            let settings =
                Gateway::clustered(&postgres.database().await, &etcd.endpoint(), &prefix);
            logging(settings, log).binary(unread.clone()).start().await
        };
        let dark = Site::new(of("dark", "off").await, None).await?;
        let seen = Site::new(of("seen", "info").await, None).await?;
        let metrics = format!("{}/metrics", seen.gateway.url());
        let scrapes = tokio::spawn(async move {
            loop {
                tokio::time::sleep(SCRAPED_EVERY).await;
                // What is measured are the writes; a page that does not come costs less, and shows in the figures below.
                let page = reqwest::get(&metrics).await;
                if page.is_err() {
                    eprintln!("the metrics could not be fetched");
                }
            }
        });
        let pairs = Pairs { pairs: self.pairs, seconds: self.seconds };
        let cost = pairs.run([&dark, &seen], ["in the dark", "seen"]).await;
        scrapes.abort();
        let cost = cost?;
        let is_cheap = cost.told(MORE_MAX_US);
        let [without, with] = &cost.spent;
        println!(
            "processor time of the gateway for a write, in us: {without} in the dark, {with} seen"
        );
        Ok(is_cheap)
    }
}

/// The gateway, with nobody who reads its log: who keeps it costs what that costs.
fn unread(home: &TempDir) -> Result<PathBuf> {
    let script = home.path().join("fencegate");
    let gateway = binary();
    std::fs::write(
        &script,
        format!("#!/bin/sh\nexec '{}' \"$@\" 2>/dev/null\n", gateway.display()),
    )?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(script)
}
