//! A part over S3 whose sender may not write any more by the time that it has arrived.

use fence_core::wire::Lock;
use fence_tests::access::{Key, Rules};
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use fence_tests::s3::{self, Request, text_of, texts};
use reqwest::Method;
use serde_json::json;

use super::put_rules;
use crate::s3::faults::rig::speaking_s3;
use crate::setup::SetUp;

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\", \"list\"]\nresources = [\"lake:r\"]";
const LATER: &str = "allow = [\"lock\", \"read\", \"list\"]\nresources = [\"lake:r\"]";

const PATH: &str = "/lake/r/x";
const SIZE: usize = 2 << 20;

#[tokio::test]
async fn a_part_whose_right_is_taken_away_while_it_arrives_is_not_stored() {
    let (settings, s3) = speaking_s3(SetUp::Clustered.settings().await);
    let (rules, ann) = (Rules::new().await, Key::new().await);
    let text = |may: &str| rules.text(may, &[("ann", &ann)]);
    let url = settings.flags().into_iter().find(|(flag, _)| flag == "--postgres").unwrap().1;
    let gateway = SetUp::Clustered.start_ruled(settings, &rules, &text(WORKS)).await;
    let client = gateway.client();
    let make = client.call(Method::PUT, "/buckets/lake");
    let make = make.header("content-type", "application/json");
    rules.admin.by(make.body(json!({ "depth": 1 }).to_string())).send().await.expect(201);
    let body = json!({ "resource": "lake:r", "ttl": "1h" });
    let lock: Lock = ann.by(client.lock(&body)).send().await.expect(201).parse();
    let key = s3::Key::of(&lock);
    let begun = Request::begin(PATH).sign(s3, &key).send(s3).await.text();
    let upload = text_of(&begun, "UploadId").unwrap();

    // 1. The part was let in, and most of it is here.
    let part = Request::part(PATH, upload, 1, vec![7; SIZE]).sign(s3, &key);
    let mut wire = RawConnection::open(s3).await;
    wire.send(&part.head(SIZE)).await;
    wire.send(&part.body[..SIZE / 2]).await;
    let mut looker = Postgres::shared().await.connect(database_in(&url)).await;
    eventually("the part is begun", async || {
        let intents = sqlx::query_scalar("SELECT count(*) FROM fencegate.blob_intents");
        let intents: i64 = intents.fetch_one(&mut looker).await.unwrap();
        (intents == 2).then_some(())
    })
    .await;
    // 2. The right to write is taken away.
    let body = json!({ "rules": text(LATER), "reason": "the test says so" });
    rules.admin.by(put_rules(&client, &body)).send().await.expect(200);
    // 3. What comes after that is refused, and changes nothing of what others may complete.
    wire.send(&part.body[SIZE / 2..]).await;
    let answer = wire.answer().await.unwrap();
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert_eq!(text_of(&answer.text(), "Code"), Some("AccessDenied"));
    let parts = Request::get(PATH).query("uploadId", upload).sign(s3, &key).send(s3).await;
    assert_eq!((parts.status, texts(&parts.text(), "PartNumber").len()), (200, 0));
}
