//! Reads of objects in parts that broke off before damaged bytes: no rest is given out behind them.

use std::fs;

use bytes::Bytes;
use fence_tests::s3::Request;
use futures::StreamExt as _;

use super::rig::{A, R, Site};
use crate::blobs::rig::blob_files;
use crate::setup::{SetUp, on_both};

on_both!(no_rest_is_given_out_behind_what_is_damaged);

const PART: usize = 5 << 20;

/// Bytes that come before an answer ends, and whether it broke off.
async fn read(answer: reqwest::Response) -> (usize, bool) {
    let (mut length, mut stream) = (0, answer.bytes_stream());
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(bytes) => length += bytes.len(),
            Err(_) => return (length, true),
        }
    }
    (length, false)
}

async fn no_rest_is_given_out_behind_what_is_damaged(setup: SetUp) {
    let site = Site::start(setup).await;
    let (_lock, key) = site.lock(R, "10m").await;
    let upload = site.begin(&key, A).await;
    let parts = [vec![b'a'; PART], vec![b'b'; PART], b"the rest".to_vec()].map(Bytes::from);
    let size: usize = parts.iter().map(Bytes::len).sum();
    let tags = site.send_parts(&key, A, &upload, &parts).await;
    let tag = site.ask(&key, Request::complete(A, &upload, &tags)).await;
    assert!(tag.text().contains("ETag"));
    let middle = blob_files(&site.gateway)
        .into_iter()
        .find(|blob| fs::read(blob).is_ok_and(|bytes| bytes.starts_with(b"bb")))
        .unwrap();
    let mut bytes = fs::read(&middle).unwrap();
    bytes[PART / 2] ^= 1;
    fs::write(&middle, bytes).unwrap();

    let client = site.client();
    let open = async |range: Option<&str>, tag: Option<&str>| {
        let mut get = client.read(R, "a");
        for (name, value) in [("range", range), ("if-range", tag)] {
            if let Some(value) = value {
                get = get.header(name, value);
            }
        }
        get.unchecked().open().await.unwrap()
    };
    let http = reqwest::Client::new();
    let whole = open(None, None).await;
    let tag = whole.headers()["etag"].to_str().unwrap().to_owned();
    let (came, broke) = read(whole).await;
    assert!(broke && (PART..2 * PART).contains(&came), "{came}");
    for from in [came, PART + 1, 2 * PART - 1] {
        let range = format!("bytes={from}-");
        let answer = open(Some(&range), Some(&tag)).await;
        assert_eq!(answer.status(), 206);
        let (more, broke) = read(answer).await;
        assert!(broke && from + more < 2 * PART, "{more} bytes from {from} on");
        let by_s3 = Request::get(A).header("range", &range).header("if-range", &tag);
        let by_s3 = by_s3.sign(site.s3, &key).request(&http, &format!("http://{}", site.s3));
        let (more, broke) = read(by_s3.send().await.unwrap()).await;
        assert!(broke && from + more < 2 * PART, "over S3, {more} bytes from {from} on");
    }
    let sound = open(Some(&format!("bytes={}-", 2 * PART)), Some(&tag)).await;
    assert_eq!(read(sound).await, (size - 2 * PART, false), "the part behind it is sound");
    let (before, broke) =
        read(open(Some(&format!("bytes=7-{}", PART - 1)), Some(&tag)).await).await;
    assert_eq!((before, broke), (PART - 7, false), "so is the one before it");
}
