//! The conformance suite of blob stores.

use std::ops::Range;

use bytes::Bytes;
use fence_core::ports::{BlobId, Blobs, Listed, StoreMark};
use fencegate::blobs::{BlobsUrl, ObjectBlobs};
use futures::TryStreamExt as _;
use uuid::Uuid;

use crate::stores::Store;

/// The store as a gateway opens it.
pub fn open(store: &Store) -> ObjectBlobs {
    let url = BlobsUrl::parse(&store.url()).expect("the harness gives good URLs");
    let environment = store.env(None).into_iter().map(|(name, value)| (name.to_owned(), value));
    ObjectBlobs::open_with(&url, environment).expect("the store opens")
}

fn new_blob() -> BlobId {
    BlobId(Uuid::new_v4())
}

fn new_mark() -> StoreMark {
    StoreMark { store: Uuid::new_v4(), ledger: Uuid::new_v4() }
}

/// Bytes that are nowhere the same.
fn bytes(count: usize) -> Bytes {
    let mut state = 1_u64;
    let mut bytes = Vec::with_capacity(count.next_multiple_of(8));
    while bytes.len() < count {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(count);
    bytes.into()
}

async fn store(blobs: &dyn Blobs, blob: BlobId, body: &Bytes, piece: usize) {
    let mut upload = blobs.upload(blob, None).await.expect("an upload begins");
    for chunk in body.chunks(piece) {
        upload.push(body.slice_ref(chunk)).await.expect("bytes are taken");
    }
    upload.finish().await.expect("the blob is stored");
}

async fn read(blobs: &dyn Blobs, blob: BlobId, range: Range<u64>) -> Option<Bytes> {
    let stream = blobs.read(blob, range).await.expect("the store answers")?;
    let chunks: Vec<Bytes> = stream.try_collect().await.expect("all bytes come");
    Some(chunks.concat().into())
}

async fn listed(blobs: &dyn Blobs) -> Vec<(BlobId, u64)> {
    let all: Vec<Listed> = blobs.list().try_collect().await.expect("the store lists");
    let mut found: Vec<_> = all
        .into_iter()
        .map(|one| match one {
            Listed::Blob(blob) => (blob.blob, blob.size),
            Listed::Stranger(name) => panic!("{name} is not a blob"),
        })
        .collect();
    found.sort_unstable();
    found
}

/// Whole, with its size; and what is not there is not.
pub async fn what_is_stored_is_read(blobs: &dyn Blobs) {
    let (blob, body) = (new_blob(), bytes(300_000));
    assert_eq!(blobs.size(blob).await, Ok(None));
    assert_eq!(read(blobs, blob, 0..1).await, None);
    store(blobs, blob, &body, 7000).await;
    assert_eq!(blobs.size(blob).await, Ok(Some(300_000)));
    assert!(read(blobs, blob, 0..300_000).await == Some(body));
}

/// From the first byte to the last.
pub async fn parts_of_a_blob_are_read(blobs: &dyn Blobs) {
    let (blob, body) = (new_blob(), bytes(100_000));
    store(blobs, blob, &body, 100_000).await;
    for (from, to) in [(0, 1), (99_999, 100_000), (10, 90_000), (0, 100_000)] {
        let part = read(blobs, blob, from as u64..to as u64).await;
        assert!(part == Some(body.slice(from..to)), "{from}..{to}");
    }
}

/// More than two parts of 8 MiB, in pieces that fit no boundary.
pub async fn large_blobs_are_stored_in_parts(blobs: &dyn Blobs) {
    let (blob, body) = (new_blob(), bytes(20_000_000));
    store(blobs, blob, &body, 999_999).await;
    assert!(read(blobs, blob, 0..20_000_000).await == Some(body.clone()));
    let across = read(blobs, blob, 8_388_600..8_388_620).await;
    assert!(across == Some(body.slice(8_388_600..8_388_620)));
}

/// Crumbs of one byte, and what is not.
pub async fn pieces_of_any_size_are_put_together(blobs: &dyn Blobs) {
    let (blob, body) = (new_blob(), bytes(200_000));
    let mut upload = blobs.upload(blob, None).await.expect("an upload begins");
    let mut rest = body.clone();
    for size in [1, 1, 40_000, 3, 32_767, 32_768, 1].into_iter().chain(std::iter::repeat(11)) {
        if rest.is_empty() {
            break;
        }
        let piece = rest.split_to(size.min(rest.len()));
        upload.push(piece).await.expect("bytes are taken");
    }
    upload.finish().await.expect("the blob is stored");
    assert!(read(blobs, blob, 0..200_000).await == Some(body));
}

/// As the sweeper does it.
pub async fn deletions_may_come_twice(blobs: &dyn Blobs) {
    let blob = new_blob();
    store(blobs, blob, &bytes(10), 10).await;
    for _ in 0..2 {
        blobs.delete(blob, None).await.expect("deleted");
        assert_eq!(read(blobs, blob, 0..1).await, None);
    }
    blobs.delete(new_blob(), None).await.expect("what was never there is deleted as well");
}

/// Small ones and such as came in parts.
pub async fn an_upload_that_was_given_up_leaves_nothing(blobs: &dyn Blobs) {
    for (count, piece) in [(10, 10), (20_000_000, 1_000_000)] {
        let (blob, body) = (new_blob(), bytes(count));
        let mut upload = blobs.upload(blob, Some(count as u64)).await.expect("an upload begins");
        for chunk in body.chunks(piece) {
            upload.push(body.slice_ref(chunk)).await.expect("bytes are taken");
        }
        upload.abort().await;
        assert_eq!(read(blobs, blob, 0..1).await, None);
        assert_eq!(listed(blobs).await, []);
    }
}

/// As the sweeper does with what a killed gateway has left; the gateway may have been frozen only.
pub async fn an_upload_that_others_end_leaves_nothing(blobs: &dyn Blobs) {
    let (blob, body) = (new_blob(), bytes(20_000_000));
    let mut upload = blobs.upload(blob, None).await.expect("an upload begins");
    let handle = upload.begin_parts().await.expect("it is stored in parts");
    upload.push(body).await.expect("bytes are taken");
    blobs.delete(blob, handle.as_deref()).await.expect("deleted");
    // It may succeed where the store has no such thing as ending an upload: then the second deletion
    // finds it.
    let _ = upload.finish().await;
    blobs.delete(blob, handle.as_deref()).await.expect("deleted again");
    assert_eq!(read(blobs, blob, 0..1).await, None);
    assert_eq!(listed(blobs).await, []);
}

/// With their sizes, and nothing else.
pub async fn all_blobs_are_listed(blobs: &dyn Blobs) {
    assert_eq!(listed(blobs).await, []);
    let mut stored: Vec<_> = (1..=20).map(|size| (new_blob(), size)).collect();
    for (blob, size) in &stored {
        store(blobs, *blob, &bytes(*size as usize), 100).await;
    }
    blobs.set_mark(new_mark()).await.expect("the mark is no blob");
    stored.sort_unstable();
    assert_eq!(listed(blobs).await, stored);
}

/// Of two gateways that set it, one prevails.
pub async fn the_first_mark_stays(blobs: &dyn Blobs) {
    assert_eq!(blobs.mark().await, Ok(None));
    let first = new_mark();
    blobs.set_mark(first).await.expect("the mark is set");
    assert_eq!(blobs.mark().await, Ok(Some(first)));
    let second = blobs.set_mark(new_mark()).await;
    assert!(second.is_ok(), "{second:?}");
    assert_eq!(blobs.mark().await, Ok(Some(first)));
}
