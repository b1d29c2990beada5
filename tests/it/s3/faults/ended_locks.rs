//! Keys of locks that have ended, however they did: they write nothing any more, and read on.

use fence_tests::s3::{Key, Request, text_of};
use jiff::Timestamp;
use serde_json::json;

use super::refused::{Row, refuse_all, row};
use super::rig::{A, R, Site};
use crate::setup::{SetUp, on_both, take_over};

on_both!(keys_of_ended_locks_write_nothing, keys_of_before_a_refence_write_nothing);

/// All writes of a holder who does not know that its lock has ended. `upload` is its own, with one part.
fn late(site: &Site, key: &Key, upload: (&str, &[String]), why: (u16, &'static str)) -> Vec<Row> {
    let (upload, tags) = upload;
    let writes = [
        ("a put", Request::put(A, "late")),
        ("a put on what it knows", Request::put(A, "late").header("if-match", "\"g0-v1\"")),
        ("a large put", Request::put(A, vec![b'l'; 600_000])),
        ("a put that asks first", Request::put(A, "late").header("expect", "100-continue")),
        ("a delete", Request::delete(A)),
        ("a delete of nothing", Request::delete("/lake/r/none")),
        ("a copy", Request::copy("/lake/r/late", A)),
        ("the begin of an upload", Request::begin(A)),
        ("a part", Request::part(A, upload, 2, "late")),
        ("a copied part", Request::part(A, upload, 2, "").header("x-amz-copy-source", A)),
        ("a completion", Request::complete(A, upload, tags)),
        ("an abort", Request::abort(A, upload)),
    ];
    let mut rows = Vec::new();
    for (what, request) in writes {
        let presigned = request.clone();
        rows.push(row(what, request.sign(site.s3, key), why));
        if presigned.headers.is_empty() {
            let url = presigned.presign(site.s3, key, 3600, Timestamp::now());
            rows.push(row(format!("{what} by a URL"), url, why));
        }
    }
    rows
}

/// What its owner is told when it deletes many: each for itself is refused.
async fn delete_many_is_told(site: &Site, key: &Key, code: &str) {
    let many = Request::delete_many("lake", &["r/a", "r/none"]).sign(site.s3, key);
    let told = many.send(site.s3).await.text();
    assert_eq!(fence_tests::s3::texts(&told, "Code"), [code, code], "{told}");
}

async fn keys_of_ended_locks_write_nothing(setup: SetUp) {
    let site = Site::start(setup).await;
    let (client, reader) = (site.client(), site.reader().await);
    for (end, code) in [
        ("superseded", "FenceTokenStale"),
        ("released", "FenceTokenReleased"),
        ("broken", "FenceTokenBroken"),
        ("handed over", "FenceTokenStale"),
    ] {
        let ttl = if end == "superseded" { "2s" } else { "10m" };
        let (lock, key) = site.lock(R, ttl).await;
        site.ask(&key, Request::put(A, format!("before it was {end}"))).await;
        let upload = site.begin(&key, A).await;
        let tags = site.send_parts(&key, A, &upload, &["a part".into()]).await;
        let mut next = None;
        match end {
            "superseded" => next = Some(take_over(&client, R).await),
            "released" => drop(client.release(&lock).send().await.expect(204)),
            "broken" => {
                let now = json!({ "after": "0s", "reason": "test" });
                client.break_lock(R, &now).send().await.expect(200);
            }
            _ => {
                let transfer = json!({ "owner": "next" });
                let path = format!("/locks/{}/transfer", lock.id);
                next = Some(client.post(path, &transfer).send().await.expect(201).parse());
            }
        }
        let url = Request::get(A).presign(site.s3, &key, 3600, Timestamp::now());
        let rows = late(&site, &key, (&upload, &tags), (403, code));
        refuse_all(&site, &reader, rows).await;
        let before = site.picture(&reader).await;
        delete_many_is_told(&site, &key, code).await;
        assert_eq!(site.picture(&reader).await, before, "{end}");
        // It reads on, as long as the lock is known.
        let read = url.send(site.s3).await;
        assert_eq!((read.status, read.text()), (200, format!("before it was {end}")));
        if let Some(next) = next {
            client.release(&next).send().await.expect(204);
        }
    }
}

async fn keys_of_before_a_refence_write_nothing(setup: SetUp) {
    let mut site = Site::start(setup).await;
    let reader = site.reader().await;
    let (_lock, key) = site.lock(R, "10m").await;
    site.ask(&key, Request::put(A, "before")).await;
    let upload = site.begin(&key, A).await;
    let tags = site.send_parts(&key, A, &upload, &["a part".into()]).await;
    site.gateway.term();
    site.gateway.wait_for_exit().await;
    let (code, told, log) = site.gateway.run(&["refence", "--force", "--reason", "test"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    site.gateway.spawn();
    site.gateway.wait_until_ready().await;
    let rows = late(&site, &key, (&upload, &tags), (403, "FenceTokenVoid"));
    refuse_all(&site, &reader, rows).await;
    delete_many_is_told(&site, &key, "FenceTokenVoid").await;
    // Whoever holds it now completes what was uploaded before.
    let (_lock, next) = site.lock(R, "10m").await;
    let done = site.ask(&next, Request::complete(A, &upload, &tags)).await.text();
    assert!(text_of(&done, "ETag").is_some(), "{done}");
    assert_eq!(site.bytes(&reader, A).await.as_deref(), Some(&b"a part"[..]));
}
