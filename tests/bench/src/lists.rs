//! Lists of a ledger of very many resources: a page must cost what it holds.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use hdrhistogram::Histogram;

use crate::fill::{fill, name};
use crate::http::{Connection, request};
use crate::servers::quiet;
use crate::{fill_sqlite, usage};

/// Half of the answers may take no longer.
const P50_MAX: Duration = Duration::from_millis(20);
/// Questions of each kind before it counts, and then.
const WARM: usize = 50;
const ASKED: usize = 500;

/// How lists are measured.
#[derive(Debug, clap::Args)]
pub struct Lists {
    /// Resources in each ledger
    #[arg(long, default_value_t = 5_000_000)]
    resources: u64,
}

impl Lists {
    /// Measures on both ledgers, one after the other, and prints what comes out. Says whether each list is as fast as
    /// it must be.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(self.resources >= 1_000, "--resources is at least 1000");
        let mut all_well = true;
        for is_embedded in [true, false] {
            all_well &= match is_embedded {
                true => self.embedded().await?,
                false => self.clustered().await?,
            };
        }
        Ok(all_well)
    }

    async fn embedded(&self) -> Result<bool> {
        let mut gateway = quiet(Gateway::embedded()).start().await;
        gateway.term();
        gateway.wait_for_exit().await;
        fill_sqlite::fill(&gateway.data_dir().join("ledger.sqlite"), self.resources).await?;
        gateway.restart().await;
        self.ask("SQLite", &gateway).await
    }

    async fn clustered(&self) -> Result<bool> {
        let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
        let ledger = postgres.database().await;
        let settings = quiet(Gateway::clustered(&ledger, &etcd.endpoint(), &etcd.prefix()));
        let mut gateway = settings.start().await;
        gateway.term();
        gateway.wait_for_exit().await;
        // Resource 0 of each stride is left out; here all but the very first are filled.
        let url = postgres.owner_url(database_in(&ledger));
        fill(&url, self.resources, self.resources).await?;
        gateway.restart().await;
        self.ask("Postgres", &gateway).await
    }

    /// The cursor of a page in the last quarter.
    async fn cursor(&self, gateway: &Gateway) -> Result<String> {
        let prefix = name(self.resources * 3 / 4);
        let path = format!("/resources?limit=1&prefix={}", &prefix[..prefix.len() - 2]);
        let mut connection = Connection::open(gateway.address()).await?;
        let answer = connection.ask(&request("GET", &path, &[], b"")).await?;
        let page: serde_json::Value = serde_json::from_slice(answer.body)?;
        Ok(page["next_cursor"].as_str().context("a cursor")?.to_owned())
    }

    async fn ask(&self, ledger: &str, gateway: &Gateway) -> Result<bool> {
        let one = name(self.resources / 2 + 1);
        let deep = self.cursor(gateway).await?;
        let lists = [
            ("resources", "/resources?limit=100".to_owned(), 100),
            ("locks", "/locks?limit=100".to_owned(), 100),
            ("a prefix of one", format!("/resources?limit=100&prefix={one}"), 1),
            ("a prefix of one, locks", format!("/locks?limit=100&prefix={one}"), 1),
            ("a page far behind", format!("/resources?limit=100&cursor={deep}"), 100),
        ];
        let mut all_well = true;
        for (what, path, wanted) in lists {
            let question = request("GET", &path, &[], b"");
            let mut connection = Connection::open(gateway.address()).await?;
            let mut micros = Histogram::<u64>::new(3)?;
            for number in 0..WARM + ASKED {
                let began = Instant::now();
                let answer = connection.ask(&question).await?;
                let took = began.elapsed();
                ensure!(answer.status == 200, "{path}: {}", answer.body.escape_ascii());
                if number == 0 {
                    let page: serde_json::Value = serde_json::from_slice(answer.body)?;
                    let rows = page.as_object().and_then(|page| {
                        page.values().find_map(|value| value.as_array().map(Vec::len))
                    });
                    ensure!(rows == Some(wanted), "{path}: {rows:?} rows, not {wanted}");
                }
                if number >= WARM {
                    micros.record(took.as_micros() as u64)?;
                }
            }
            let [p50_ms, p99_ms] =
                [0.5, 0.99].map(|share| micros.value_at_quantile(share) as f64 / 1000.0);
            let is_well = p50_ms < P50_MAX.as_secs_f64() * 1000.0;
            all_well &= is_well;
            println!(
                "{ledger}, {} resources, {what}: p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms; wanted p50 below {} ms{}",
                self.resources,
                P50_MAX.as_millis(),
                if is_well { "" } else { ": NOT MET" },
            );
        }
        let memory = usage::memory_mib(&[gateway.pid()]);
        println!("{ledger}: the gateway takes {memory:.0} MiB");
        Ok(all_well)
    }
}
