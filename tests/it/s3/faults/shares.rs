//! Shares of principals over S3: one keeps no room from others.

use fence_core::wire::Lock;
use fence_tests::access::{Key, Rules};
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use fence_tests::s3::{self, Request, text_of};
use reqwest::Method;
use serde_json::json;

use super::rig::speaking_s3;
use crate::setup::{SetUp, on_both};

on_both!(a_copy_has_a_place_among_its_callers_uploads);

const WORKS: &str =
    "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"lake:*\"]\nuploads = 1";
/// An upload of which no more than this is known takes a whole place.
const LARGE: usize = 9 << 20;

async fn a_copy_has_a_place_among_its_callers_uploads(setup: SetUp) {
    let (settings, s3) = speaking_s3(setup.settings().await);
    let (rules, ann, bob) = (Rules::new().await, Key::new().await, Key::new().await);
    let text = rules.text(WORKS, &[("ann", &ann), ("bob", &bob)]);
    let gateway = setup.start_ruled(settings, &rules, &text).await;
    let client = gateway.client();
    let make = client.call(Method::PUT, "/buckets/lake");
    let make = make.header("content-type", "application/json");
    rules.admin.by(make.body(json!({ "depth": 1 }).to_string())).send().await.expect(201);
    let locked = async |key: &Key, resource: &str| -> s3::Key {
        let body = json!({ "resource": resource, "ttl": "1h" });
        let lock: Lock = key.by(client.lock(&body)).send().await.expect(201).parse();
        s3::Key::of(&lock)
    };
    let (of_ann, of_bob) = (locked(&ann, "lake:a").await, locked(&bob, "lake:b").await);
    for (key, path) in [(&of_ann, "/lake/a/x"), (&of_bob, "/lake/b/x")] {
        let put = Request::put(path, vec![7; 100_000]).sign(s3, key).send(s3).await;
        assert_eq!(put.status, 200, "{}", put.text());
    }
    let copy = async |key: &s3::Key, from: &str, to: &str| {
        let copied = Request::copy(to, from).sign(s3, key).send(s3).await;
        let text = copied.text();
        (copied.status, text_of(&text, "Code").unwrap_or_default().to_owned())
    };

    let put = Request::put("/lake/a/y", vec![7; LARGE]).sign(s3, &of_ann);
    let mut wire = RawConnection::open(s3).await;
    wire.send(&put.head(LARGE)).await;
    wire.send(&put.body[..LARGE / 2]).await;
    let refused = (503, "SlowDown".to_owned());
    eventually("the upload has its place", async || {
        (copy(&of_ann, "/lake/a/x", "/lake/a/z").await == refused).then_some(())
    })
    .await;
    assert_eq!(copy(&of_bob, "/lake/b/x", "/lake/b/z").await.0, 200, "others have theirs");
    drop(wire);
    eventually("its place is given back", async || {
        (copy(&of_ann, "/lake/a/x", "/lake/a/z").await.0 == 200).then_some(())
    })
    .await;
}
