//! A copy over S3 whose caller may not read the source any more by the time it is written.

use fence_core::wire::Lock;
use fence_tests::access::{Key, Rules};
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fence_tests::s3::{self, Request};
use reqwest::Method;
use serde_json::json;

use super::{begin, put_rules};
use crate::s3::faults::rig::speaking_s3;
use crate::schedules::forced::run;
use crate::setup::SetUp;

const WORKS: &str =
    "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"lake:r\", \"lake:secret\"]";
const LATER: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"lake:r\"]";

/// Whose queries of this kind wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'";

#[tokio::test]
async fn a_copy_is_written_under_the_rules_that_count_for_its_source() {
    let (settings, s3) = speaking_s3(SetUp::Clustered.settings().await);
    let (rules, ann) = (Rules::new().await, Key::new().await);
    let text = |may: &str| rules.text(may, &[("ann", &ann)]);
    let url = settings.flags().into_iter().find(|(flag, _)| flag == "--postgres").unwrap().1;
    let gateway = SetUp::Clustered.start_ruled(settings, &rules, &text(WORKS)).await;
    let client = gateway.client();
    let make = client.call(Method::PUT, "/buckets/lake");
    let make = make.header("content-type", "application/json");
    rules.admin.by(make.body(json!({ "depth": 1 }).to_string())).send().await.expect(201);
    let locked = async |resource: &str| -> s3::Key {
        let body = json!({ "resource": resource, "ttl": "1h" });
        let lock: Lock = ann.by(client.lock(&body)).send().await.expect(201).parse();
        s3::Key::of(&lock)
    };
    let (key, of_secret) = (locked("lake:r").await, locked("lake:secret").await);
    let put = Request::put("/lake/secret/y", vec![7; 10_000]);
    assert_eq!(put.sign(s3, &of_secret).send(s3).await.status, 200);

    // 1. The copy may read its source, and waits as it begins to store what it reads.
    let postgres = Postgres::shared().await;
    let mut holder = postgres.connect(database_in(&url)).await;
    let mut looker = postgres.connect(database_in(&url)).await;
    run(&mut holder, "BEGIN; LOCK TABLE fencegate.blob_intents IN EXCLUSIVE MODE").await;
    let copy = Request::copy("/lake/r/x", "/lake/secret/y").sign(s3, &key);
    let copied = tokio::spawn(async move { copy.send(s3).await });
    let mut until_waiting = async |query: &str| {
        eventually("it waits", async || {
            let waiting = sqlx::query_scalar(WAITING).bind(query).fetch_one(&mut looker).await;
            (waiting.unwrap_or(0_i64) > 0).then_some(())
        })
        .await;
    };
    until_waiting("begin_upload").await;
    // 2. Other rules are the next to be let in.
    let body = json!({ "rules": text(LATER), "reason": "the test says so" });
    let ruled = begin(rules.admin.by(put_rules(&client, &body)));
    until_waiting("apply_rules").await;
    run(&mut holder, "COMMIT").await;
    // 3. So its write comes too late.
    ruled.await.unwrap().expect(200);
    let answer = copied.await.unwrap();
    assert_eq!(answer.status, 403, "{}", answer.text());
    let written = Request::get("/lake/r/x").sign(s3, &key).send(s3).await;
    assert_eq!(written.status, 404, "{}", written.text());
}
