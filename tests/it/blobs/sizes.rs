//! A payload of a quarter of a gibibyte, of a whole one in long runs: it comes back as it was, and the gateway's memory does not grow with it.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads and sleeps on the real clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fence_tests::client::object_path;
use fence_tests::gateway::Gateway;
use fence_tests::stores::{Kind, Store};
use fence_tests::survey;

use crate::blobs::rig::{digest_of, on_store, put, sha256, streamed};

const R: &str = "job:1";
const GROWTH_MAX: u64 = 64 << 20;

/// The highest resident memory while something is done.
async fn highest_rss<T>(gateway: &Gateway, work: impl Future<Output = T>) -> (T, u64) {
    let highest = Arc::new(AtomicU64::new(0));
    let ended = AtomicBool::new(false);
    let watch = async {
        while !ended.load(Ordering::SeqCst) {
            highest.fetch_max(gateway.rss_bytes(), Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let work = async {
        let done = work.await;
        ended.store(true, Ordering::SeqCst);
        done
    };
    let (done, ()) = tokio::join!(work, watch);
    (done, highest.load(Ordering::SeqCst))
}

async fn a_large_payload_goes_through(kind: Kind) {
    let size = survey::size(1 << 27, 1 << 30);
    let store = Store::start(kind).await;
    let gateway = on_store(Gateway::embedded(), &store).start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    // What any first write takes is not counted.
    put(&client, &lock, "small", 1, 9 << 20).await;
    client.read(R, "small").send().await.expect(200);
    let before = gateway.rss_bytes();

    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let path = format!("{}{}", gateway.url(), object_path(R, "big"));
    let request = http
        .put(&path)
        .header("x-fence-token", lock.token.to_string())
        .header("content-length", size.to_string())
        .body(streamed(7, size));
    let (written, after_put) = highest_rss(&gateway, request.send()).await;
    let written = written.unwrap();
    let (status, text) = (written.status(), written.text().await.unwrap());
    assert_eq!(status, 201, "{text}");
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = sha256(7, size);
    assert_eq!(told["sha256"], expected.as_str());

    let read = async { digest_of(http.get(&path).send().await.unwrap()).await };
    let (read, after_get) = highest_rss(&gateway, read).await;
    assert_eq!(read, (size, expected));
    for (what, after) in [("PUT", after_put), ("GET", after_get)] {
        let grown = after.saturating_sub(before);
        println!("{kind:?}: {what} of {size} bytes took {} MiB of memory", grown >> 20);
        assert!(grown < GROWTH_MAX, "{what}: from {before} to {after} bytes");
    }
}

#[tokio::test]
async fn a_large_payload_goes_through_to_a_folder() {
    a_large_payload_goes_through(Kind::Folder).await;
}

#[tokio::test]
async fn a_large_payload_goes_through_to_s3() {
    a_large_payload_goes_through(Kind::S3).await;
}
