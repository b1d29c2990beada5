//! Copies between stores that stand still: each gives up its place, as an upload does that does not come.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use fence_core::wire::Lock;
use fence_tests::access::{Key, Rules};
use fence_tests::chaos::Direction;
use fence_tests::process::eventually;
use fence_tests::s3::{self, Request, text_of};
use fence_tests::stores::Kind;
use reqwest::Method;
use serde_json::json;

use super::rig::speaking_s3;
use crate::blobs::rig::Apart;
use crate::schedules::forced::run;
use crate::setup::SetUp;

/// Of one upload, a small one takes half.
const WORKS: &str =
    "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"lake:*\"]\nuploads = 1";
/// Takes all of it.
const LARGE: usize = 9 << 20;
/// Read from the store as soon as it is asked for.
const SMALL: usize = 10_000;

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND position('.begin_upload(' IN query) > 0";

/// 1. A copy has its place and its source is open; it is about to store what it reads.
/// 2. The store stands still.
/// 3. It gives up, and says why. Once the store goes on there is room for a copy that needs all of it.
async fn a_copy_gives_up(size: usize, stalled: Direction) {
    let (apart, [settings, _]) = Apart::new(Kind::S3).await;
    let (settings, s3) = speaking_s3(settings.env("FENCEGATE_UPLOAD_TIMEOUT", "10s"));
    let (rules, ann) = (Rules::new().await, Key::new().await);
    let text = rules.text(WORKS, &[("ann", &ann)]);
    let gateway = SetUp::Clustered.start_ruled(settings, &rules, &text).await;
    let client = gateway.client();
    let make = client.call(Method::PUT, "/buckets/lake");
    let make = make.header("content-type", "application/json");
    rules.admin.by(make.body(json!({ "depth": 1 }).to_string())).send().await.expect(201);
    let wish = json!({ "resource": "lake:r", "ttl": "1h" });
    let lock: Lock = ann.by(client.lock(&wish)).send().await.expect(201).parse();
    let key = s3::Key::of(&lock);
    for (path, size) in [("/lake/r/x", size), ("/lake/r/large", LARGE)] {
        let put = Request::put(path, vec![7; size]).sign(s3, &key).send(s3).await;
        assert_eq!(put.status, 200, "{}", put.text());
    }
    // Step 1.
    let (mut holder, mut looker) = (apart.connect().await, apart.connect().await);
    run(&mut holder, "BEGIN; LOCK TABLE fencegate.blob_intents IN EXCLUSIVE MODE").await;
    let copy = Request::copy("/lake/r/y", "/lake/r/x").sign(s3, &key);
    let copied = tokio::spawn(async move { copy.send(s3).await });
    eventually("the copy has its place", async || {
        let waiting: i64 = sqlx::query_scalar(WAITING).fetch_one(&mut looker).await.ok()?;
        (waiting > 0).then_some(())
    })
    .await;
    // Step 2.
    let to_store = apart.to_store.as_ref().expect("S3 is a process");
    to_store.block(stalled).await;
    run(&mut holder, "COMMIT").await;
    // Step 3.
    let answer = copied.await.expect("an answer");
    let text = answer.text();
    assert_eq!(
        (answer.status, text_of(&text, "Code")),
        (503, Some("ServiceUnavailable")),
        "{text}"
    );
    assert!(text.contains("stood still"), "{text}");
    to_store.resume().await;
    let again = Request::copy("/lake/r/y", "/lake/r/large").sign(s3, &key).send(s3).await;
    assert_eq!(again.status, 200, "{}", again.text());
}

#[tokio::test]
async fn a_copy_whose_destination_stands_still_gives_up_its_place() {
    a_copy_gives_up(SMALL, Direction::ToTarget).await;
}

#[tokio::test]
async fn a_copy_whose_source_stands_still_gives_up_its_place() {
    a_copy_gives_up(LARGE, Direction::FromTarget).await;
}
