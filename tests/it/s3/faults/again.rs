//! What is sent again is told what its first sending did, and what is another call is not.

use fence_tests::s3::{Request, text_of, texts};

use super::refused::{refuse_all, row};
use super::rig::{A, R, Site};
use crate::setup::{SetUp, on_both};

on_both!(
    a_completion_with_other_parts_was_not_carried_out,
    a_copy_whose_source_is_another_since_was_carried_out,
    uploads_are_listed_past_a_common_prefix,
);

async fn a_completion_with_other_parts_was_not_carried_out(setup: SetUp) {
    let site = Site::start(setup).await;
    let (_lock, key) = site.lock(R, "10m").await;
    let reader = site.reader().await;
    let id = site.begin(&key, A).await;
    let tags = site.send_parts(&key, A, &id, &["one".into(), "two".into()]).await;
    let done = site.ask(&key, Request::complete(A, &id, &tags[..1])).await;
    let again = site.ask(&key, Request::complete(A, &id, &tags[..1])).await;
    assert_eq!(again.header("x-fence-verdict"), Some("replayed"));
    assert_eq!(again.header("etag"), done.header("etag"));
    let other = [tags[1].clone()];
    let rows = vec![
        row("more parts", Request::complete(A, &id, &tags).sign(site.s3, &key), NO_UPLOAD),
        row("another part", Request::complete(A, &id, &other).sign(site.s3, &key), NO_UPLOAD),
    ];
    refuse_all(&site, &reader, rows).await;
}

const NO_UPLOAD: (u16, &str) = (404, "NoSuchUpload");

async fn a_copy_whose_source_is_another_since_was_carried_out(setup: SetUp) {
    let site = Site::start(setup).await;
    let (_lock, key) = site.lock(R, "10m").await;
    site.ask(&key, Request::put(A, "first")).await;
    let copy = |target: &str, id: &str| Request::copy(target, A).call_id(id);
    let calls = [
        ("/lake/r/b", "0190d4a7-1111-4111-8111-000000000001"),
        // Onto itself: what it demands of its source is not so any more.
        (A, "0190d4a7-1111-4111-8111-000000000002"),
    ];
    for (target, id) in calls {
        let source = site.ask(&key, Request::get(A)).await;
        let source = source.header("etag").expect("a tag").to_owned();
        let copy = || {
            let demands = copy(target, id).header("x-amz-copy-source-if-match", &source);
            demands.header("x-amz-metadata-directive", "REPLACE").header("x-amz-meta-of", id)
        };
        let first = site.ask(&key, copy()).await;
        if target != A {
            site.ask(&key, Request::put(A, "another")).await;
        }
        let again = site.ask(&key, copy()).await;
        assert_eq!(again.header("x-fence-verdict"), Some("replayed"), "{target}");
        assert_eq!(text_of(&again.text(), "ETag"), text_of(&first.text(), "ETag"), "{target}");
        assert_eq!(again.header("x-resource-version"), first.header("x-resource-version"));
    }
    // Its source is gone.
    site.ask(&key, Request::delete(A)).await;
    let (target, id) = calls[0];
    site.ask(&key, copy(target, id)).await;
    assert_eq!(site.bytes(&key, "/lake/r/b").await.as_deref(), Some(&b"first"[..]));
}

async fn uploads_are_listed_past_a_common_prefix(setup: SetUp) {
    let site = Site::start(setup).await;
    let (_lock, key) = site.lock(R, "10m").await;
    let reader = site.reader().await;
    for object in ["x/1", "x/2", "y"] {
        site.begin(&key, &format!("/lake/r/{object}")).await;
    }
    let page = async |marker: &str| {
        let list = Request::get("/lake").word("uploads").query("prefix", "r/");
        let list = list.query("delimiter", "/").query("max-uploads", "1");
        site.ask(&reader, list.query("key-marker", marker)).await.text()
    };
    let first = page("").await;
    assert_eq!(text_of(&first, "NextKeyMarker"), Some("r/x/"), "{first}");
    let second = page("r/x/").await;
    assert_eq!(texts(&second, "Key"), ["r/y"], "{second}");
    assert_eq!(text_of(&second, "IsTruncated"), Some("false"), "{second}");
}
