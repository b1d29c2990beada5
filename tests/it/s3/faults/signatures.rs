//! Who signed a request, and what of it: whatever is not as it was signed is refused, and so is what was signed at another
//! time or with another key.

use fence_tests::s3::{Key, Request};
use fencegate_s3::sign::PayloadHash;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;

use super::refused::{Row, refuse_all, row};
use super::rig::{A, R, Site, key_in};
use crate::s3::keys::root;
use crate::setup::{SetUp, on_both};

on_both!(what_is_not_as_it_was_signed_is_refused, what_other_keys_sign_is_refused);

const NO_MATCH: (u16, &str) = (403, "SignatureDoesNotMatch");
const DENIED: (u16, &str) = (403, "AccessDenied");
const SKEWED: (u16, &str) = (403, "RequestTimeTooSkewed");

/// A request of each kind that changes something.
fn writes(upload: &str, tags: &[String]) -> [(&'static str, Request); 7] {
    [
        ("a put", Request::put(A, "after")),
        ("a delete", Request::delete(A)),
        ("many deletes", Request::delete_many("lake", &["r/a"])),
        ("the begin of an upload", Request::begin(A)),
        ("a part", Request::part(A, upload, 1, "after")),
        ("a completion", Request::complete(A, upload, tags)),
        ("an abort", Request::abort(A, upload)),
    ]
}

/// As soon as one digit of the signature is another one.
fn flipped(authorization: &str) -> String {
    let (text, last) = authorization.split_at(authorization.len() - 1);
    format!("{text}{}", if last == "0" { "1" } else { "0" })
}

fn spoiled(site: &Site, key: &Key, upload: &str, tags: &[String]) -> Vec<Row> {
    let mut rows = Vec::new();
    let wrong = Key { secret: "x".repeat(43), ..key.clone() };
    for (what, request) in writes(upload, tags) {
        let signed = request.clone().sign(site.s3, key);
        let authorization = signed.headers["authorization"].to_str().unwrap();
        let other = signed.clone().with("authorization", &flipped(authorization));
        rows.push(row(format!("{what}, its signature another"), other, NO_MATCH));
        let other = request.clone().sign(site.s3, &wrong);
        rows.push(row(format!("{what}, by another secret"), other, NO_MATCH));
        let mut moved = signed.clone();
        moved.target = moved.target.replace("/lake/r/a", "/lake/r/b").replace("/lake?", "/lakes?");
        if moved.target != signed.target {
            rows.push(row(format!("{what}, to another object"), moved, NO_MATCH));
        }
        let mut asks_more = signed.clone();
        asks_more.target.push_str(if asks_more.target.contains('?') { "&acl" } else { "?acl" });
        rows.push(row(format!("{what}, with more in its query"), asks_more, NO_MATCH));
        let mut done_otherwise = signed.clone();
        done_otherwise.method = Method::PATCH;
        rows.push(row(format!("{what}, by another method"), done_otherwise, NO_MATCH));
        for (name, value) in [
            ("x-amz-copy-source", "/lake/r/b"),
            ("x-amz-meta-a", "b"),
            ("x-fence-token", "1"),
            ("x-amz-acl", "private"),
            ("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
        ] {
            let more = signed.clone().with(name, value);
            rows.push(row(format!("{what}, with {name} unsigned"), more, DENIED));
        }
        for hours in [-1, 1] {
            let at = Timestamp::now() + SignedDuration::from_hours(hours);
            let (late, _) = request.clone().sign_as(site.s3, key, PayloadHash::Unsigned, at);
            rows.push(row(format!("{what}, off by {hours} h"), late, SKEWED));
        }
        let anonymous = {
            let mut signed = signed;
            signed.headers.remove("authorization");
            signed
        };
        rows.push(row(format!("{what}, by nobody"), anonymous, DENIED));
    }
    rows
}

fn presigned(site: &Site, key: &Key) -> Vec<Row> {
    let now = Timestamp::now();
    let put = || Request::put(A, "after");
    let minutes = |minutes| now + SignedDuration::from_mins(minutes);
    let url = put().presign(site.s3, key, 60, now);
    let both = {
        let signed = put().sign(site.s3, key);
        let mut url = url.clone();
        url.headers
            .extend(signed.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        url
    };
    let mut other_object = url.clone();
    other_object.target = other_object.target.replace("/r/a?", "/r/b?");
    let mut longer = url.clone();
    longer.target = longer.target.replace("X-Amz-Expires=60", "X-Amz-Expires=600");
    let mut signed_otherwise = url.clone();
    signed_otherwise.method = Method::DELETE;
    let with_copy = url.clone().with("x-amz-copy-source", "/lake/r/b");
    let mut version_2 = url.clone();
    version_2.target =
        format!("/lake/r/a?AWSAccessKeyId={}&Signature=x&Expires=9999999999", key.id);
    vec![
        row("a URL and a header", both, (400, "InvalidRequest")),
        row("a URL after its time", put().presign(site.s3, key, 60, minutes(-2)), DENIED),
        row("a URL before its time", put().presign(site.s3, key, 60, minutes(60)), SKEWED),
        row("a URL for another object", other_object, NO_MATCH),
        row("a URL for longer", longer, NO_MATCH),
        row("a URL for another method", signed_otherwise, NO_MATCH),
        row("a URL and a source", with_copy, DENIED),
        row("a URL of version 2", version_2, (400, "InvalidRequest")),
    ]
}

async fn what_is_not_as_it_was_signed_is_refused(setup: SetUp) {
    let site = Site::start(setup).await;
    let (_lock, key) = site.lock(R, "10m").await;
    let reader = site.reader().await;
    site.ask(&key, Request::put(A, "before")).await;
    site.ask(&key, Request::put("/lake/r/b", "beside")).await;
    let upload = site.begin(&key, A).await;
    let tags = site.send_parts(&key, A, &upload, &["a part".into()]).await;
    let mut rows = spoiled(&site, &key, &upload, &tags);
    rows.extend(presigned(&site, &key));
    refuse_all(&site, &reader, rows).await;
    // What was spoiled in each was all that was wrong.
    site.ask(&key, Request::put(A, "after")).await;
    let url = Request::put(A, "later").presign(site.s3, &key, 60, Timestamp::now());
    assert_eq!(url.send(site.s3).await.status, 200);
    assert_eq!(site.bytes(&reader, A).await.as_deref(), Some(&b"later"[..]));
}

async fn what_other_keys_sign_is_refused(setup: SetUp) {
    let site = Site::start(setup).await;
    let (lock, key) = site.lock(R, "10m").await;
    let (_beside, of_other) = site.lock("lake:other", "10m").await;
    let reader = site.reader().await;
    let admin = site.client().post("/admin/s3-keys", &json!({ "rights": "admin" })).send().await;
    let admin = key_in(&json!({ "s3": {
        "endpoint": "", "region": "", "access_key_id": admin.json()["access_key_id"],
        "secret_access_key": admin.json()["secret_access_key"],
    } }));
    site.ask(&key, Request::put(A, "before")).await;
    let upload = site.begin(&key, A).await;
    let tags = site.send_parts(&key, A, &upload, &["a part".into()]).await;
    let of_other_root = {
        let keys = super::super::keys::keys(&root());
        let made = keys.of_lock(lock.token, lock.id);
        Key { id: made.id, secret: made.secret.reveal().to_owned() }
    };
    let made_up = Key { id: key.id.replace("FG1", "AKIA"), ..key.clone() };
    let nobodys = (403, "InvalidAccessKeyId");
    let missing = (403, "FenceTokenMissing");
    let mut rows = Vec::new();
    let other_token = (lock.token.get() + 1).to_string();
    for (what, request) in writes(&upload, &tags) {
        let by = |key: &Key| request.clone().sign(site.s3, key);
        rows.push(row(format!("{what}, by a key of another root"), by(&of_other_root), nobodys));
        rows.push(row(format!("{what}, by a key that is made up"), by(&made_up), nobodys));
        rows.push(row(format!("{what}, by a key that reads"), by(&reader), missing));
        rows.push(row(format!("{what}, by an administrator's key"), by(&admin), missing));
        let other = request.clone().header("x-fence-token", &other_token).sign(site.s3, &key);
        rows.push(row(format!("{what}, with another token"), other, (403, "FenceTokenMalformed")));
        if request.path == "/lake" {
            // Each of many is refused for itself.
            continue;
        }
        let unknown = (403, "FenceTokenUnknown");
        rows.push(row(format!("{what}, by the key of another resource"), by(&of_other), unknown));
        // What has no effect of its own is refused early only for what can never be mended.
        if ["the begin of an upload", "a part"].contains(&what) {
            continue;
        }
        let token = request.clone().header("x-fence-token", &lock.token.to_string());
        let token = token.header("x-lock-id", "0190d4a7-0000-7000-8000-000000000000");
        let refused = (403, "LockIdMismatch");
        let signed = token.sign(site.s3, &admin);
        rows.push(row(format!("{what}, with the id of another lock"), signed, refused));
    }
    refuse_all(&site, &reader, rows).await;
    let many = Request::delete_many("lake", &["r/a"]).sign(site.s3, &of_other).send(site.s3).await;
    assert_eq!(fence_tests::s3::text_of(&many.text(), "Code"), Some("FenceTokenUnknown"));
    assert_eq!(site.bytes(&reader, A).await.as_deref(), Some(&b"before"[..]));
}
