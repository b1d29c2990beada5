//! Blobs whose bytes are no longer those that were stored: readers of the whole are not given them, and a deep
//! scrub finds them.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::path::PathBuf;

use fence_tests::gateway::Gateway;
use futures::StreamExt as _;

use crate::blobs::rig::{blob_files, body, put, seed_of};
use crate::setup::{SetUp, on_both};

const R: &str = "job:1";
const MIB: usize = 1 << 20;

/// Changes one byte behind the gateway.
fn forge(blob: &PathBuf, at: usize) {
    let mut bytes = std::fs::read(blob).unwrap();
    bytes[at] ^= 1;
    std::fs::write(blob, bytes).unwrap();
}

/// How many bytes of an object come before the answer breaks off; panics if it does not.
async fn broken_off(gateway: &Gateway, key: &str) -> usize {
    let read = gateway.client().read(R, key).unchecked().open().await.unwrap();
    assert_eq!(read.status(), 200);
    let (mut length, mut stream) = (0, read.bytes_stream());
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(bytes) => length += bytes.len(),
            Err(_) => return length,
        }
    }
    panic!("all {length} bytes were given out");
}

async fn readers_of_the_whole_are_not_given_forged_bytes(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    for (key, length, at) in
        [("first", MIB, 0), ("last", MIB, MIB - 1), ("parts", 9 * MIB + 1, 5 * MIB)]
    {
        let before = blob_files(&gateway);
        put(&client, &lock, key, 1, length).await;
        let blob = blob_files(&gateway).into_iter().find(|blob| !before.contains(blob)).unwrap();
        forge(&blob, at);
        assert!(broken_off(&gateway, key).await < length, "{key}");
        let range = "bytes=0-";
        let part = client.read(R, key).header("range", range).unchecked().open().await.unwrap();
        assert!(part.bytes().await.is_err(), "{key}: a part that is the whole is the whole");
        // Nothing is known of the bytes of a part.
        let part = client.read(R, key).header("range", "bytes=8-15").send().await.expect(206);
        assert_eq!(part.body, body(1, length)[8..16], "{key}");
    }
    put(&client, &lock, "sound", 2, MIB).await;
    assert_eq!(seed_of(&client.read(R, "sound").send().await.expect(200).body), 2);
    let metrics = client.get("/metrics").send().await.expect(200).text();
    assert!(metrics.contains("fencegate_blobs_damaged_total 6"), "{metrics}");
    gateway.logged("is not what was stored").await;
    // Whoever has it already reads nothing.
    client.read(R, "first").header("if-none-match", "\"g0-v1\"").send().await.expect(304);
}

async fn a_deep_scrub_finds_forged_bytes(setup: SetUp) {
    let mut gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    put(&client, &lock, "replaced", 1, MIB).await;
    let replaced = blob_files(&gateway).pop().unwrap();
    put(&client, &lock, "replaced", 2, MIB).await;
    forge(&replaced, 7);
    if setup == SetUp::Embedded {
        gateway.kill9();
    }
    let (code, told, log) = gateway.run(&["scrub", "--deep"]).await;
    assert_eq!(code, Some(0), "readers get all there is: {told}{log}");
    assert!(told.contains("blobs with other bytes than were stored: 1"), "{told}");
    assert!(told.contains("job:1 replaced, version 1 (replaced)"), "{told}");

    let current = blob_files(&gateway).into_iter().find(|blob| *blob != replaced).unwrap();
    forge(&current, MIB - 1);
    let (code, told, log) = gateway.run(&["scrub"]).await;
    assert_eq!(code, Some(0), "sizes are as they were: {told}{log}");
    let (code, told, log) = gateway.run(&["scrub", "--deep"]).await;
    assert_eq!(code, Some(1), "{told}{log}");
    assert!(told.contains("blobs with other bytes than were stored: 2"), "{told}");
    assert!(told.contains("job:1 replaced, version 2 (current)"), "{told}");
}

on_both!(readers_of_the_whole_are_not_given_forged_bytes, a_deep_scrub_finds_forged_bytes);
