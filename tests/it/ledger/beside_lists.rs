//! Lists that do not come to an end: operators and single locks do not stand behind them. And long histories: a page
//! looks through a part of them.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use fence_core::wire::VersionList;
use fence_tests::client::resource_path;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use serde_json::json;
use sqlx::{Connection as _, Executor as _};
use tokio::task::JoinSet;

use crate::schedules::stuck_rows::waiting;

#[tokio::test]
async fn operators_and_looks_at_a_lock_do_not_stand_behind_lists() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let url = postgres.database().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = settings.env("FENCEGATE_REQUEST_TIMEOUT", "20s").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let other = client.acquire("job:2", "10m").await;
    let mut foreign = postgres.connect(database_in(&url)).await;
    let mut transaction = foreign.begin().await.unwrap();
    transaction.execute("LOCK TABLE fencegate.rejections IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let mut lists = JoinSet::new();
    for _ in 0..20 {
        lists.spawn(client.get("/rejections").send());
    }
    // All the room that lists have; the others wait for it.
    waiting(database_in(&url), 6).await;

    let body = json!({ "reason": "the test says so" });
    client.lock_of(&lock).send().await.expect(200);
    client.break_lock("job:1", &body).send().await.expect(200);
    assert_eq!(client.lock_of(&lock).send().await.expect(200).json()["reason"], body["reason"]);
    client.post(format!("{}/freeze", resource_path("job:2")), &body).send().await.expect(200);
    client.post(format!("{}/unfreeze", resource_path("job:2")), &body).send().await.expect(200);
    let transfer = json!({ "owner": "next" });
    let path = format!("/locks/{}/transfer", other.id);
    client.post(path, &transfer).send().await.expect(201);
    let fence = json!({ "id": uuid::Uuid::new_v4() });
    client.fence("job:3", &fence).send().await.expect(201);
    assert_eq!(lists.len(), 20);
    assert!(lists.try_join_next().is_none(), "a list came to an end: nothing was in the way");
    transaction.rollback().await.unwrap();
    for list in lists.join_all().await {
        list.expect(200);
    }
}

#[tokio::test]
async fn a_page_of_a_history_looks_through_a_part_of_it() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "a/first", "x").under(&lock).send().await.expect(201);
    client.put("job:1", "b/second", "x").under(&lock).send().await.expect(201);
    let columns = "kind, generation, token, created, size, sha256, owner, committed_at";
    let more = format!(
        "INSERT INTO fencegate.operations (id, resource, version, key, {columns})
         SELECT gen_random_uuid(), resource, 2 + i, 'b/' || i, {columns}
         FROM fencegate.operations CROSS JOIN generate_series(1, 24998) i
         WHERE resource = 'job:1' AND version = 2"
    );
    postgres.execute(database_in(&url), &more).await;

    let path = format!("{}/versions", resource_path("job:1"));
    let mut cursor: Option<String> = None;
    let mut pages = Vec::new();
    loop {
        let mut call = client.get(path.clone()).query("prefix", "a/");
        if let Some(cursor) = &cursor {
            call = call.query("cursor", cursor);
        }
        let page: VersionList = call.send().await.expect(200).parse();
        pages.push(page.items.len());
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, [0, 0, 1], "pages of 10,000 versions each");
    let whole: VersionList = client.get(path.clone()).send().await.expect(200).parse();
    assert_eq!((whole.items.len(), whole.items[0].version), (100, 25_000));
    // A page that is full is followed by the next as ever.
    let page = client.get(path).query("prefix", "b").query("limit", "1000").send().await;
    let page: VersionList = page.expect(200).parse();
    assert_eq!((page.items.len(), page.next_cursor.as_deref()), (1_000, Some("24001")));
}
