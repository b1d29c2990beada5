//! The two set-ups that the end-to-end tests run on: embedded, and etcd with Postgres.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::{Lock, Resource};
use fence_tests::access::Rules;
use fence_tests::client::{Answer, Client, resource_path};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use uuid::Uuid;

/// What a gateway under test stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetUp {
    Embedded,
    Clustered,
}

/// Runs each of these tests, `async fn name(setup: SetUp)`, on both set-ups.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test] async fn $name() { super::$name($crate::setup::SetUp::Embedded).await; })+
        }
        mod clustered {
            $(#[tokio::test] async fn $name() { super::$name($crate::setup::SetUp::Clustered).await; })+
        }
    };
}
pub(crate) use on_both;

/// Far above anything that is counted in the answers of a test, in milliseconds or bytes.
const HIGH: i64 = 770_000_000_000;

/// The library that shows a program another time, if it is preloaded.
pub fn libfaketime() -> std::path::PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok);
    let found =
        folders.map(|it| it.path().join("faketime/libfaketime.so.1")).find(|path| path.is_file());
    found.expect("libfaketime is missing: apt-get install libfaketime")
}

impl SetUp {
    /// The settings of a gateway with a ledger and a mint of its own.
    pub async fn settings(self) -> Settings {
        match self {
            Self::Embedded => Gateway::embedded(),
            Self::Clustered => {
                let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
                Gateway::clustered(&postgres.database().await, &etcd.endpoint(), &etcd.prefix())
            }
        }
    }

    /// A gateway with a ledger and a mint of its own.
    pub async fn start(self) -> Gateway {
        self.settings().await.start().await
    }

    /// A gateway of these settings with these rules in force.
    pub async fn start_ruled(self, settings: Settings, rules: &Rules, text: &str) -> Gateway {
        let mut gateway = settings.start().await;
        // A data directory gets its rules while no gateway uses it.
        if self == Self::Embedded {
            gateway.term();
            gateway.wait_for_exit().await;
        }
        rules.put_in_force(&gateway, text).await;
        if self == Self::Embedded {
            gateway.spawn();
            gateway.wait_until_ready().await;
        }
        eventually("the rules are known", async || {
            let answer = gateway.client().get("/status").send().await;
            (answer.status == 401).then_some(())
        })
        .await;
        gateway
    }

    /// A gateway whose tokens have so many digits that they stand out wherever they are shown: its
    /// ledger has a high base, as after a disaster of the mint.
    pub async fn start_with_high_tokens(
        self,
        adjust: impl FnOnce(Settings) -> Settings,
    ) -> Gateway {
        match self {
            Self::Embedded => {
                let mut gateway = adjust(Gateway::embedded()).start().await;
                gateway.kill9();
                let ledger = SqliteConnectOptions::new().filename(ledger_file(&gateway));
                let mut connection = ledger.connect().await.unwrap();
                let raise = sqlx::query("UPDATE guard SET base = $1").bind(HIGH);
                raise.execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                gateway.restart().await;
                gateway
            }
            Self::Clustered => {
                let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
                let url = postgres.database().await;
                let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
                let gateway = adjust(settings).start().await;
                let raise = format!("UPDATE fencegate.seal_guard SET base = {HIGH}");
                postgres.execute(database_in(&url), &raise).await;
                gateway
            }
        }
    }
}

/// The SQLite file of an embedded gateway.
pub fn ledger_file(gateway: &Gateway) -> std::path::PathBuf {
    let mut files = std::fs::read_dir(gateway.data_dir()).unwrap().map(|file| file.unwrap().path());
    let is_ledger = |file: &std::path::PathBuf| {
        std::fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3"))
    };
    files.find(is_ledger).expect("the data directory has a ledger")
}

/// A random id of the caller's choice.
pub fn random_id() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}

/// A resource as everybody may see it.
pub async fn look(client: &Client, resource: &str) -> Resource {
    client.get(resource_path(resource)).send().await.expect(200).parse()
}

/// Waits until the resource's lock is in this state.
pub async fn until_state(client: &Client, resource: &str, state: &str) -> Resource {
    eventually(&format!("{resource} is {state}"), async || {
        let answer = client.get(resource_path(resource)).send().await;
        // A read that meets the news of a re-fence is to be asked again.
        let view: Resource = (answer.status != 503).then(|| answer.expect(200).parse())?;
        (view.state.as_str() == state).then_some(view)
    })
    .await
}

/// Stalls past the lock's ttl, then takes its resource over.
pub async fn take_over(client: &Client, resource: &str) -> Lock {
    until_state(client, resource, "expired").await;
    client.acquire(resource, "10m").await
}

/// Fails if an answer shows the token or the id of this lock anywhere.
#[track_caller]
pub fn assert_hides(answer: &Answer, lock: &Lock) {
    let shown = format!("{:?}\n{}", answer.headers, answer.text());
    assert!(!shown.contains(&lock.token.to_string()), "the token is shown: {shown}");
    assert!(!shown.contains(&lock.id.to_string()), "the id is shown: {shown}");
}
