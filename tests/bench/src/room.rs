//! Room: as many wait at a gateway as it takes connections. Who must get through then, and how soon?

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fence_core::wire::Lock;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::http::{Connection, request};
use crate::load::histogram;
use crate::locks::lock_all;
use crate::usage::allow_files;

/// 99 of 100 answers may take no longer.
const P99_MAX: Duration = Duration::from_secs(1);
/// How long the crowd has to come, and how long somebody waits who is turned away.
const GATHERS: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_secs(1);

/// How room is measured.
#[derive(Debug, clap::Args)]
pub struct Room {
    /// Connections that the gateway takes; a quarter more try to wait
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Calls of each kind
    #[arg(long, default_value_t = 300)]
    calls: usize,
}

impl Room {
    /// Measures on both set-ups, and prints what comes out. Says whether all get through in time.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(self.connections > 0 && self.calls > 0, "all are above 0");
        allow_files(self.crowd() as u64 + 1_000)?;
        let max = self.connections.to_string();
        let set = |settings: fence_tests::gateway::Settings| {
            settings.flag("--log", "warn").env("FENCEGATE_CONNECTIONS_MAX", &max)
        };
        let embedded = set(Gateway::embedded()).start().await;
        let is_well = self.measure("embedded", &embedded).await?;
        drop(embedded);
        let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
        let ledger = postgres.database().await;
        let settings = Gateway::clustered(&ledger, &etcd.endpoint(), &etcd.prefix());
        let clustered = set(settings).start().await;
        Ok(self.measure("etcd and Postgres", &clustered).await? && is_well)
    }

    fn crowd(&self) -> usize {
        self.connections + self.connections / 4
    }

    async fn measure(&self, what: &str, gateway: &Gateway) -> Result<bool> {
        let at = gateway.address();
        let names = |kind: &str| -> Vec<String> {
            (0..self.calls).map(|number| format!("{kind}{number}")).collect()
        };
        let to_renew = lock_all(gateway, &names("renew")).await?;
        let to_release = lock_all(gateway, &names("release")).await?;
        let to_break = names("break");
        lock_all(gateway, &to_break).await?;
        lock_all(gateway, &["line".to_owned()]).await?;
        let mut crowd = JoinSet::new();
        for number in 0..self.crowd() {
            crowd.spawn(wait(at, number));
        }
        tokio::time::sleep(GATHERS).await;
        let path = |lock: &Lock, what: &str| format!("/locks/{}{what}", lock.id);
        let json = [("content-type", "application/json")];
        let reason = br#"{"reason":"measured"}"#;
        let kinds: [(&str, Vec<Vec<u8>>); 4] = [
            ("/healthz", vec![request("GET", "/healthz", &[], b""); self.calls]),
            (
                "renewal",
                to_renew
                    .iter()
                    .map(|lock| request("POST", &path(lock, "/renew"), &[], b""))
                    .collect(),
            ),
            (
                "release",
                to_release
                    .iter()
                    .map(|lock| request("DELETE", &path(lock, ""), &[], b""))
                    .collect(),
            ),
            (
                "break",
                to_break
                    .iter()
                    .map(|name| request("POST", &format!("/resources/{name}/break"), &json, reason))
                    .collect(),
            ),
        ];
        let mut all_well = true;
        for (kind, requests) in kinds {
            let micros = ask_each(at, &requests).await?;
            let [p50_ms, p99_ms] =
                [0.5, 0.99].map(|share| micros.value_at_quantile(share) as f64 / 1000.0);
            let is_well = p99_ms <= P99_MAX.as_secs_f64() * 1000.0;
            all_well &= is_well;
            println!(
                "{what}, {} connections wanted for waiting: {kind} p50 {p50_ms:.1} ms, p99 {p99_ms:.1} ms, wanted {} ms{}",
                self.crowd(),
                P99_MAX.as_millis(),
                if is_well { "" } else { ": NOT MET" },
            );
        }
        crowd.shutdown().await;
        Ok(all_well)
    }
}

/// Each on a connection of its own, from the moment at which it is opened.
async fn ask_each(at: SocketAddr, requests: &[Vec<u8>]) -> Result<Histogram<u64>> {
    let mut micros = histogram();
    for question in requests {
        let began = Instant::now();
        let mut connection = Connection::open(at).await?;
        let answer = connection.ask(question).await?;
        ensure!((200..300).contains(&answer.status), "{}", answer.body.escape_ascii());
        micros.record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX))?;
    }
    Ok(micros)
}

/// Waits in line, for ever; comes again when turned away.
async fn wait(at: SocketAddr, number: usize) {
    let body = r#"{"resource":"line","ttl":"30s","owner":"crowd","wait":"50s"}"#;
    let question =
        request("POST", "/locks", &[("content-type", "application/json")], body.as_bytes());
    loop {
        if let Ok(mut connection) = Connection::open_numbered(at, number).await {
            while connection.ask(&question).await.is_ok_and(|answer| answer.status == 409) {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}
