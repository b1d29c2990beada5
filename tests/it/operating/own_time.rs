//! The ledger's own time after a long stop: its lag is told, and an operator who says that the clock is right ends it.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::{AuditList, Status};
use fence_tests::client::Client;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use crate::setup::{SetUp, ledger_file, on_both};

on_both!(
    the_word_of_an_operator_ends_the_lag,
    a_clock_that_is_behind_changes_nothing,
    the_lag_is_not_ended_without_a_reason,
);

const DAY_MS: i64 = 86_400_000;

/// A ledger, and a gateway that tidies it all the time.
struct Site {
    gateway: Gateway,
    /// Its database; none of a data directory.
    url: Option<String>,
}

impl Site {
    async fn new(setup: SetUp) -> Self {
        let (settings, url) = match setup {
            SetUp::Embedded => (Gateway::embedded(), None),
            SetUp::Clustered => {
                let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
                let url = postgres.database().await;
                (Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()), Some(url))
            }
        };
        let gateway = settings.env("FENCEGATE_SWEEP_INTERVAL", "100ms").start().await;
        Self { gateway, url }
    }

    /// Has the own time, and the time of each key, be so many days ahead of what they are.
    async fn shift(&mut self, days: i64) {
        if let Some(url) = &self.url {
            let shift = format!(
                "ALTER TABLE fencegate.own_time DISABLE TRIGGER own_time_only_rises;
                 UPDATE fencegate.own_time SET at = at + interval '{days} days', pass = pass + 1, boot = 'before';
                 ALTER TABLE fencegate.own_time ENABLE TRIGGER own_time_only_rises;
                 UPDATE fencegate.idempotency_keys SET stored_at = stored_at + interval '{days} days'"
            );
            return Postgres::shared().await.execute(database_in(url), &shift).await;
        }
        self.stop().await;
        let ledger = SqliteConnectOptions::new().filename(ledger_file(&self.gateway));
        let mut connection = ledger.connect().await.unwrap();
        let trigger = "SELECT sql FROM sqlite_master WHERE name = 'own_time_only_rises'";
        let trigger: String = sqlx::query_scalar(trigger).fetch_one(&mut connection).await.unwrap();
        let by_us = days * DAY_MS * 1000;
        let shift = format!(
            "DROP TRIGGER own_time_only_rises;
             UPDATE guard SET own_time = own_time + {by_us}, pass = pass + 1, boot = 'before';
             UPDATE idempotency_keys SET stored_at = stored_at + {by_us};
             {trigger}"
        );
        connection.execute(AssertSqlSafe(shift)).await.unwrap();
        connection.close().await.unwrap();
        self.gateway.restart().await;
    }

    async fn stop(&mut self) {
        self.gateway.term();
        assert!(self.gateway.wait_for_exit().await.success());
    }

    /// `fencegate agree --clock-is-right` beside the gateway, where it may be there.
    async fn trust_clock(&mut self, more: &[&str]) -> (Option<i32>, String, String) {
        let args = [&["agree", "--clock-is-right"], more].concat();
        if self.url.is_some() {
            return self.gateway.run(&args).await;
        }
        self.stop().await;
        let told = self.gateway.run(&args).await;
        self.gateway.restart().await;
        told
    }

    /// Waits until the gateway tells such a lag.
    async fn lags(&self, is_so: impl Fn(i64) -> bool) {
        eventually("the lag is told", async || {
            let status: Status = self.gateway.client().get("/status").send().await.parse();
            status.own_time_behind_ms.filter(|ms| is_so(*ms))
        })
        .await;
    }
}

async fn agreed(client: &Client) -> Vec<String> {
    let list: AuditList =
        client.get("/audit").query("action", "agree").send().await.expect(200).parse();
    list.items.into_iter().filter_map(|entry| entry.reason).collect()
}

const WHY: [&str; 2] = ["--reason", "NTP has it"];

/// A machine that was off for a month: it keeps for a month longer what it had, unless somebody says that this is so.
async fn the_word_of_an_operator_ends_the_lag(setup: SetUp) {
    let mut site = Site::new(setup).await;
    let lock = site.gateway.client().acquire("job:1", "1h").await;
    let put = async |site: &Site| {
        let put = site.gateway.client().put("job:1", "k", "x").under(&lock).idempotency_key("once");
        let put = put.unchecked().send().await;
        assert!(put.status.is_success(), "{}", put.text());
        put.header("idempotent-replayed").is_some()
    };
    assert!(!put(&site).await);
    site.shift(-30).await;
    site.lags(|ms| ms > 29 * DAY_MS).await;
    assert!(put(&site).await, "the key is as young as it was");
    if setup == SetUp::Embedded {
        let args = ["agree", "--clock-is-right", WHY[0], WHY[1]];
        let (code, out, log) = site.gateway.run(&args).await;
        assert!(code == Some(1) && log.contains("in use by another process"), "{out}{log}");
        site.lags(|ms| ms > 29 * DAY_MS).await;
    }

    let (code, out, log) = site.trust_clock(&WHY).await;
    assert_eq!(code, Some(0), "{out}{log}");
    assert!(out.contains("own time: ") && out.contains(" -> "), "{out}");
    site.lags(|ms| ms < DAY_MS).await;
    eventually("the key is let go", async || (!put(&site).await).then_some(())).await;
    let entries = agreed(&site.gateway.client()).await;
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert!(entries[0].starts_with("own time ") && entries[0].ends_with(WHY[1]), "{entries:?}");
}

async fn a_clock_that_is_behind_changes_nothing(setup: SetUp) {
    let mut site = Site::new(setup).await;
    site.shift(30).await;
    site.lags(|ms| ms == 0).await;
    let (code, out, log) = site.trust_clock(&WHY).await;
    assert_eq!((code, out.as_str()), (Some(1), ""), "{log}");
    assert!(log.contains("is not ahead of its own time"), "{log}");
    site.lags(|ms| ms == 0).await;
    assert!(agreed(&site.gateway.client()).await.is_empty());
}

async fn the_lag_is_not_ended_without_a_reason(setup: SetUp) {
    let mut site = Site::new(setup).await;
    site.shift(-30).await;
    for (more, code, says) in
        [(&[][..], 2, "--reason"), (&["--reason", " "][..], 1, "--reason must say why")]
    {
        let (ended, out, log) = site.trust_clock(more).await;
        assert!(ended == Some(code) && log.contains(says), "{out}{log}");
    }
    site.lags(|ms| ms > 29 * DAY_MS).await;
    assert!(agreed(&site.gateway.client()).await.is_empty());
}

/// A wrong `--data-dir` makes no ledger in another place.
#[tokio::test]
async fn a_directory_without_a_ledger_gets_none() {
    let mut gateway = Gateway::embedded().start().await;
    gateway.term();
    gateway.wait_for_exit().await;
    let ledger = ledger_file(&gateway);
    let files = std::fs::read_dir(gateway.data_dir()).unwrap();
    for file in files.map(|file| file.unwrap().path()).filter(|file| file.is_file()) {
        std::fs::remove_file(file).unwrap();
    }
    let (code, out, log) = gateway.run(&["agree", "--clock-is-right", "--reason", "a slip"]).await;
    assert!(code == Some(1) && log.contains("holds no ledger"), "{out}{log}");
    assert!(!ledger.exists());
}
