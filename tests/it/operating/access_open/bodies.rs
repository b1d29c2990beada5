//! Large bodies that arrive slowly.

use fence_core::wire::Lock;
use fence_tests::access::{Key, principal, role};
use fence_tests::client::{object_path, resource_path};
use fence_tests::multipart::{BOUNDARY, end, list, part};
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use fence_tests::stores::{Kind, Store};
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection, SqliteConnection};

use super::Site;
use crate::blobs::rig::{impatient, on_store};
use crate::setup::{SetUp, ledger_file, on_both};

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";
const READS: &str = "allow = [\"read\", \"lock\"]\nresources = [\"job:*\"]";

/// Above `inline_bytes_max`.
const LARGE: usize = 400_000;

on_both!(
    a_large_put_whose_right_is_taken_away_while_it_arrives_stores_nothing,
    a_commit_whose_right_is_taken_away_while_its_body_arrives_stores_nothing,
);

/// Looks at what a ledger has of uploads.
enum Looker {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

impl Looker {
    async fn of(setup: SetUp, site: &Site) -> Self {
        match setup {
            SetUp::Clustered => {
                Self::Postgres(Postgres::shared().await.connect(&site.database()).await)
            }
            SetUp::Embedded => {
                let file = SqliteConnectOptions::new().filename(ledger_file(site.last()));
                Self::Sqlite(file.read_only(true).connect().await.unwrap())
            }
        }
    }

    /// Waits until so many uploads are under way.
    async fn until_uploads(&mut self, count: i64) {
        eventually(&format!("{count} uploads are under way"), async || {
            let found: i64 = match self {
                Self::Postgres(connection) => {
                    sqlx::query_scalar("SELECT count(*) FROM fencegate.blob_intents")
                        .fetch_one(connection)
                        .await
                }
                Self::Sqlite(connection) => {
                    sqlx::query_scalar("SELECT count(*) FROM blob_intents")
                        .fetch_one(connection)
                        .await
                }
            }
            .unwrap();
            (found == count).then_some(())
        })
        .await;
    }

    async fn close(self) {
        match self {
            Self::Postgres(connection) => connection.close().await.unwrap(),
            Self::Sqlite(connection) => connection.close().await.unwrap(),
        }
    }
}

async fn a_large_put_whose_right_is_taken_away_while_it_arrives_stores_nothing(setup: SetUp) {
    refused_at_its_end(setup, |ann, lock| {
        let head = format!(
            "PUT {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nX-Fence-Token: {}\r\n\
             X-Lock-Id: {}\r\nContent-Length: {LARGE}\r\n\r\n",
            object_path("job:1", "k"),
            ann.text,
            lock.token,
            lock.id
        );
        (head, vec![7; LARGE])
    })
    .await;
}

async fn a_commit_whose_right_is_taken_away_while_its_body_arrives_stores_nothing(setup: SetUp) {
    refused_at_its_end(setup, |ann, lock| {
        let small = json!({ "op": "put", "resource": "job:1", "key": "s", "body": "s" });
        let large = json!({ "op": "put", "resource": "job:1", "key": "k", "body": "k" });
        let operations = list(&json!({ "operations": [small, large] }));
        let parts = [operations, part("s", "", b"small"), part("k", "", &[7; LARGE]), end()];
        let body = parts.concat();
        let head = format!(
            "POST /commit HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             X-Fence-Token: {}\r\nX-Lock-Id: {}\r\n\
             Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {}\r\n\r\n",
            ann.text,
            lock.token,
            lock.id,
            body.len()
        );
        (head, body)
    })
    .await;
}

/// Sends the most of a request by `ann`, then the rest once `ann` may not write any more.
async fn refused_at_its_end(setup: SetUp, request: impl FnOnce(&Key, &Lock) -> (String, Vec<u8>)) {
    let store = Store::start(Kind::Folder).await;
    let settings = impatient(on_store(setup.settings().await, &store));
    let ann = Key::new().await;
    let site = Site::on(setup, settings, |rules| rules.text(WORKS, &[("ann", &ann)])).await;
    let lock = site.locked(&ann, "job:1").await;
    let mut looker = Looker::of(setup, &site).await;

    let (head, body) = request(&ann, &lock);
    let (most, rest) = body.split_at(body.len() - 1000);
    let mut connection = RawConnection::open(site.last().address()).await;
    connection.send(head.as_bytes()).await;
    connection.send(most).await;
    // It was let in: what it has sent so far is on its way into the store.
    looker.until_uploads(1).await;
    let less = site.rules.admin() + &role("reads", READS) + &principal("ann", "reads", &[&ann]);
    site.put_in_force(&less).await;
    connection.send(rest).await;
    let answer = connection.answer().await.unwrap();
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (403, "permission-denied"),
        "{}",
        answer.text()
    );

    let client = site.client();
    for key in ["k", "s"] {
        ann.by(client.read("job:1", key)).send().await.refused(404, "object-not-found");
    }
    let seen = ann.by(client.get(resource_path("job:1"))).send().await.expect(200);
    assert_eq!(seen.json()["version"], 0);
    looker.until_uploads(0).await;
    looker.close().await;
    eventually("no blob is left", async || {
        let names =
            store.files().into_iter().filter_map(|file| file.file_name().map(ToOwned::to_owned));
        let mut blobs = names.filter(|name| name != "fencegate-store");
        blobs.next().is_none().then_some(())
    })
    .await;
}
