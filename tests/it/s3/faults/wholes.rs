//! Checksums of objects in parts: what a caller says of the whole is held against the parts, each part tells its own, and
//! parts with another algorithm than their upload's are refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fence_tests::s3::{Request, sha256_of, text_of};
use reqwest::Method;
use sha2::{Digest as _, Sha256};

use super::refused::{refuse_all, row};
use super::rig::{A, R, Site};
use crate::setup::{SetUp, on_both};

on_both!(a_whole_is_what_its_caller_says, no_object_is_larger_than_it_may_be);

const BY_SHA256: &str = "x-amz-checksum-sha256";
const PARTS: [&[u8]; 2] = [&[b'a'; 5 << 20], b"the rest"];
const INVALID: (u16, &str) = (400, "InvalidRequest");

/// Begins an upload whose parts have such checksums.
fn begin(algorithm: &str) -> Request {
    Request::begin(A).header("x-amz-checksum-algorithm", algorithm)
}

async fn a_whole_is_what_its_caller_says(setup: SetUp) {
    let site = Site::start(setup).await;
    let (_lock, key) = site.lock(R, "10m").await;
    let reader = site.reader().await;
    let begun = site.ask(&key, begin("SHA256")).await.text();
    let upload = text_of(&begun, "UploadId").unwrap();
    let mut tags = Vec::new();
    for (number, part) in (1..).zip(PARTS) {
        let part = Request::part(A, upload, number, part).header(BY_SHA256, &sha256_of(part));
        let stored = site.ask(&key, part).await;
        tags.push(stored.header("etag").unwrap().to_owned());
    }
    let of_parts: Vec<u8> = PARTS.iter().flat_map(Sha256::digest).collect();
    let whole = STANDARD.encode(Sha256::digest(of_parts));
    let unnamed = site.ask(&key, Request::begin(A)).await.text();
    let unnamed = text_of(&unnamed, "UploadId").unwrap().to_owned();
    let first = site.send_parts(&key, A, &unnamed, &[PARTS[1].into()]).await;

    let complete = |name: &str, value: &str| {
        Request::complete(A, upload, &tags).header(name, value).sign(site.s3, &key)
    };
    let (other, digest) = (sha256_of(b"other"), (400, "BadDigest"));
    let crc = "x-amz-checksum-crc32c";
    let by_crc = Request::part(A, upload, 1, "abc").header(crc, "Nks/tw==");
    let unknown = Request::complete(A, &unnamed, &first).header(BY_SHA256, &whole);
    refuse_all(
        &site,
        &reader,
        vec![
            row("another whole", complete(BY_SHA256, &format!("{other}-2")), digest),
            row("another number", complete(BY_SHA256, &format!("{whole}-3")), digest),
            row("another algorithm", complete(crc, "Nks/tw=="), INVALID),
            row("another type", complete("x-amz-checksum-type", "FULL_OBJECT"), INVALID),
            row("no checksum", complete(BY_SHA256, "no checksum"), INVALID),
            row("parts that do not tell", unknown.sign(site.s3, &key), INVALID),
            row("a part by another algorithm", by_crc.sign(site.s3, &key), INVALID),
        ],
    )
    .await;

    let told = format!("{whole}-2");
    let complete = Request::complete(A, upload, &tags).header(BY_SHA256, &told);
    let done = site.ask(&key, complete.header("x-amz-checksum-type", "COMPOSITE")).await.text();
    assert_eq!(text_of(&done, "ChecksumSHA256"), Some(told.as_str()));
    let get = |request: Request| request.header("x-amz-checksum-mode", "ENABLED");
    assert_eq!(site.ask(&key, get(Request::get(A))).await.header(BY_SHA256), Some(told.as_str()));
    for (number, bytes) in (1..).zip(PARTS) {
        let part = get(Request::get(A)).query("partNumber", &number.to_string());
        let read = site.ask(&key, part).await;
        assert_eq!(read.body, bytes);
        assert_eq!(read.header(BY_SHA256), Some(sha256_of(bytes).as_str()), "of part {number}");
        assert_eq!(read.header("x-amz-checksum-type"), Some("COMPOSITE"));
    }
}

/// A form of a browser has no signature that is known here, and hears that, not that its key is wrong.
#[tokio::test]
async fn a_form_is_not_served() {
    let site = Site::start(SetUp::Embedded).await;
    let form = Request::new(Method::POST, "/lake")
        .header("content-type", "multipart/form-data; boundary=b")
        .body("--b--");
    let (_, key) = site.lock(R, "10m").await;
    let mut form = form.sign(site.s3, &key);
    form.headers.remove("authorization");
    let answer = form.send(site.s3).await;
    assert_eq!((answer.status, text_of(&answer.text(), "Code")), (501, Some("NotImplemented")));
}

/// Whichever call makes it.
async fn no_object_is_larger_than_it_may_be(setup: SetUp) {
    let max = "FENCEGATE_OBJECT_BYTES_MAX";
    let whole: usize = PARTS.iter().map(|part| part.len()).sum();
    let mut site = Site::of(setup.settings().await.env(max, &(whole - 1).to_string())).await;
    let (_lock, key) = site.lock(R, "10m").await;
    let upload = site.begin(&key, A).await;
    let parts = PARTS.map(bytes::Bytes::from_static);
    let tags = site.send_parts(&key, A, &upload, &parts).await;
    let code = async |site: &Site, request: Request| {
        let answer = request.sign(site.s3, &key).send(site.s3).await;
        let text = answer.text();
        (answer.status, text_of(&text, "Code").unwrap_or_default().to_owned())
    };
    let too_large = (400, "EntityTooLarge".to_owned());
    assert_eq!(code(&site, Request::complete(A, &upload, &tags)).await, too_large);
    site.ask(&key, Request::complete(A, &upload, &tags[..1])).await;

    site.gateway.set_env(max, "100000");
    site.gateway.restart().await;
    assert_eq!(code(&site, Request::copy("/lake/r/b", A)).await, too_large);
    site.gateway.set_env(max, &whole.to_string());
    site.gateway.restart().await;
    site.ask(&key, Request::copy("/lake/r/b", A)).await;
}
