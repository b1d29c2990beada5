//! Uploads in parts (I19): what becomes of them, and of their parts.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    AbortItem, AbortVerdict, Attempt, BlobId, BlobTimes, By, Effect, Grant, KeySpace, Ledger,
    Multipart, MultipartRecord, MultipartsPage, PartItem, PartVerdict, Payload, SealItem,
    UploadItem, UploadVerdict, WriteItem, WriteVerdict,
};
use fence_core::{Refusal, ResourceName};
use uuid::Uuid;

use super::build::*;
use crate::conformance::{AT_ONCE, pause};

const LONG: Duration = Duration::from_secs(3600);

pub(super) fn new_blob() -> BlobId {
    BlobId(Uuid::new_v4())
}

pub(super) fn upload_item(grant: &Grant, blob: BlobId) -> UploadItem {
    UploadItem {
        blob: Some(blob),
        resource: grant.resources[0].clone(),
        token: grant.token,
        lock: None,
        key: None,
        by: By::default(),
    }
}

/// What is uploaded in parts, to this object.
pub(super) fn becomes(resource: &ResourceName, object: &str) -> Multipart {
    Multipart {
        resource: resource.clone(),
        key: key(object),
        content_type: "video/x".into(),
        about: Some("{}".into()),
        principal: None,
    }
}

/// An upload in parts that goes on.
pub(super) async fn begun(ledger: &dyn Ledger, grant: &Grant, object: &str) -> BlobId {
    let upload = new_blob();
    let item = upload_item(grant, upload);
    let multipart = becomes(&grant.resources[0], object);
    let verdict = ledger.begin_multipart(item, multipart).await.expect("decided");
    assert_eq!(verdict, UploadVerdict::Begun);
    upload
}

/// A blob that is on its way.
pub(super) async fn blob(ledger: &dyn Ledger, grant: &Grant) -> BlobId {
    let blob = new_blob();
    let verdict = ledger.begin_upload(upload_item(grant, blob)).await.expect("decided");
    assert_eq!(verdict, UploadVerdict::Begun);
    blob
}

pub(super) fn part(grant: &Grant, upload: BlobId, number: i32, blob: BlobId) -> PartItem {
    let checksum = Some("crc32 abc".to_owned());
    let (resource, token) = (grant.resources[0].clone(), grant.token);
    let (by, sha256) = (By::default(), digest(blob.0.as_bytes()));
    PartItem { upload, resource, token, lock: None, by, number, blob, size: 7, sha256, checksum }
}

/// The wish to end an upload.
pub(super) fn abort(grant: &Grant, upload: BlobId) -> AbortItem {
    let resource = grant.resources[0].clone();
    AbortItem { upload, resource, token: grant.token, lock: None, by: By::default() }
}

pub(super) async fn aborted(ledger: &dyn Ledger, item: AbortItem) -> AbortVerdict {
    ledger.abort_multipart(item).await.expect("decided")
}

pub(super) async fn put(ledger: &dyn Ledger, item: PartItem) -> PartVerdict {
    ledger.put_part(item).await.expect("decided")
}

/// A new part of an upload.
pub(super) async fn stored(
    ledger: &dyn Ledger,
    grant: &Grant,
    upload: BlobId,
    number: i32,
) -> BlobId {
    let blob = blob(ledger, grant).await;
    assert_eq!(put(ledger, part(grant, upload, number, blob)).await, PartVerdict::Stored);
    blob
}

pub(super) fn complete(grant: &Grant, object: &str, upload: BlobId, parts: &[BlobId]) -> WriteItem {
    let effect = Effect::Put {
        key: key(object),
        content_type: "video/x".into(),
        payload: Payload::Blob(upload),
        size: 7 * parts.len() as i64,
        sha256: [9; 32],
        about: Some("{\"a\":1}".into()),
        parts: Some(Arc::from(parts)),
    };
    write(grant, effect)
}

pub(super) async fn numbers(ledger: &dyn Ledger, upload: BlobId) -> Vec<(i32, BlobId)> {
    let parts = ledger.parts(upload, 0, 100).await.expect("read");
    parts.into_iter().map(|(number, part)| (number, part.blob)).collect()
}

/// What is handed out as garbage, in two passes: the second has what the first has made garbage.
async fn garbage(ledger: &dyn Ledger) -> Vec<BlobId> {
    garbage_after(ledger, Duration::ZERO).await
}

/// The same with this rollback horizon.
pub(super) async fn garbage_after(ledger: &dyn Ledger, rollback_horizon: Duration) -> Vec<BlobId> {
    let times =
        BlobTimes { upload: LONG, multipart: LONG, redelete: LONG, rollback_horizon, ..AT_ONCE };
    let mut found = Vec::new();
    for _ in 0..2 {
        pause(2).await;
        let tidied = crate::conformance::tidy(ledger, times, 100, true).await;
        found.extend(tidied.garbage.into_iter().map(|garbage| garbage.blob));
    }
    found.sort_unstable();
    found
}

pub(super) fn sorted<const N: usize>(mut blobs: [BlobId; N]) -> Vec<BlobId> {
    blobs.sort_unstable();
    blobs.into()
}

/// In the order of their numbers, with the digest of their digests, and whatever S3 tells of it. What was not named is
/// garbage.
pub async fn parts_become_an_object(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let third = stored(ledger, &ann, upload, 3).await;
    let first = stored(ledger, &ann, upload, 1).await;
    let unnamed = stored(ledger, &ann, upload, 2).await;
    assert_eq!(numbers(ledger, upload).await, [(1, first), (2, unnamed), (3, third)]);
    assert!(look(ledger, "r", "k").await.object.is_none(), "nobody sees it yet");
    let record = ledger.multipart(upload).await.expect("read").expect("it goes on");
    assert_eq!(record.multipart, becomes(&name("r"), "k"));

    let written = apply(ledger, complete(&ann, "k", upload, &[first, third])).await;
    assert_eq!((written.size, written.sha256), (14, None), "of the whole nobody knows a digest");
    let object = look(ledger, "r", "k").await.object.expect("it is there");
    assert_eq!((object.parts, object.size), (Some(2), 14));
    assert_eq!((object.sha256, object.whole_sha256()), ([9; 32], None));
    assert_eq!(object.about.as_deref(), Some("{\"a\":1}"));
    assert_eq!(object.payload, Payload::Blob(upload));
    assert_eq!(numbers(ledger, upload).await, [(1, first), (3, third)]);
    let known = ledger.operation(written.operation).await.expect("read");
    assert!(known.is_some());
    assert_eq!(ledger.multipart(upload).await.expect("read"), None);
    let pointers = ledger.pointers(None, 10).await.expect("read");
    let mut blobs: Vec<_> = pointers.iter().map(|pointer| (pointer.blob, pointer.size)).collect();
    blobs.sort_unstable();
    assert_eq!(blobs, sorted([first, third]).into_iter().map(|blob| (blob, 7)).collect::<Vec<_>>());
    assert_eq!(garbage(ledger).await, [unnamed]);
    let known = ledger.known_blobs(&[first, third, new_blob()]).await.expect("read");
    assert_eq!(known, [true, true, false]);
}

/// They go with the object, once it is replaced: after the upload itself was handed out.
pub async fn parts_go_with_their_object(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let only_part = stored(ledger, &ann, upload, 1).await;
    apply(ledger, complete(&ann, "k", upload, &[only_part])).await;
    assert_eq!(garbage(ledger).await, []);
    apply(ledger, write(&ann, put_effect("k", b"small"))).await;
    let object = look(ledger, "r", "k").await.object.expect("it is there");
    assert_eq!(
        (object.parts, object.about),
        (None, None),
        "what was told of it before is forgotten"
    );
    assert_eq!(garbage(ledger).await, sorted([upload, only_part]));
    assert_eq!(numbers(ledger, upload).await, []);
}

/// Whoever ends it decides over its parts: none is taken in afterwards, and it is not completed.
pub async fn an_upload_that_was_aborted_is_garbage_with_its_parts(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let first = stored(ledger, &ann, upload, 1).await;
    let late = blob(ledger, &ann).await;
    assert_eq!(aborted(ledger, abort(&ann, upload)).await, AbortVerdict::Aborted);
    assert_eq!(aborted(ledger, abort(&ann, upload)).await, AbortVerdict::NoUpload);
    assert_eq!(put(ledger, part(&ann, upload, 2, late)).await, PartVerdict::NoUpload);
    let item = complete(&ann, "k", upload, &[first]);
    assert_eq!(commit_one(ledger, item).await, WriteVerdict::UploadExpired);
    assert_eq!(garbage(ledger).await, sorted([upload, first]));
    assert_eq!(counts(ledger, "r").await, (0, 0));
}

/// No blob that is uploaded in one piece is ended by that name, nor takes parts.
pub async fn a_blob_is_no_upload_in_parts(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (whole, other) = (blob(ledger, &ann).await, blob(ledger, &ann).await);
    assert_eq!(aborted(ledger, abort(&ann, whole)).await, AbortVerdict::NoUpload);
    assert_eq!(put(ledger, part(&ann, whole, 1, other)).await, PartVerdict::NoUpload);
    assert_eq!(ledger.multipart(whole).await.expect("read"), None);
    assert_eq!(garbage(ledger).await, []);
}

/// The sweeper gives up those that take too long, after a time of their own.
pub async fn uploads_in_parts_have_time_of_their_own(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let first = stored(ledger, &ann, upload, 1).await;
    let times = BlobTimes { multipart: LONG, ..AT_ONCE };
    pause(2).await;
    assert_eq!(crate::conformance::tidy(ledger, times, 100, true).await.uploads, 0);
    assert_eq!(
        put(ledger, part(&ann, upload, 1, first)).await,
        PartVerdict::Stored,
        "the same again"
    );
    let tidied = crate::conformance::tidy(ledger, AT_ONCE, 100, false).await;
    assert_eq!(tidied.uploads, 1);
    let item = complete(&ann, "k", upload, &[first]);
    assert_eq!(commit_one(ledger, item).await, WriteVerdict::UploadExpired);
    assert_eq!(garbage(ledger).await, sorted([upload, first]));
}

/// Under the token sealed last, like any write; and whoever comes after may complete it.
pub async fn a_successor_completes_what_its_predecessor_uploaded(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let first = stored(ledger, &ann, upload, 1).await;
    release_one(ledger, ann.lock).await;
    let bob = granted(ledger, SealItem { owner: "bob".into(), ..seal(["r"], 20) }).await;
    let late = commit_one(ledger, complete(&ann, "k", upload, &[first])).await;
    assert!(matches!(late, WriteVerdict::Refused(Refusal::Stale { .. })), "{late:?}");
    let refused = ledger.begin_multipart(upload_item(&ann, new_blob()), becomes(&name("r"), "k"));
    let refused = refused.await.expect("decided");
    assert!(matches!(refused, UploadVerdict::Refused(Refusal::Stale { .. })), "{refused:?}");
    assert_eq!(numbers(ledger, upload).await, [(1, first)], "a refusal takes nothing away");
    apply(ledger, complete(&bob, "k", upload, &[first])).await;
    assert_eq!(look(ledger, "r", "k").await.object.expect("there").parts, Some(1));
}

/// Nothing happens; the same upload can be completed with what it has.
pub async fn parts_that_are_not_there_complete_nothing(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let old = stored(ledger, &ann, upload, 1).await;
    let new = stored(ledger, &ann, upload, 1).await;
    let item = complete(&ann, "k", upload, &[old]);
    assert_eq!(commit_one(ledger, item.clone()).await, WriteVerdict::PartsDiffer);
    let rerun = WriteItem { attempt: Attempt::Rerun, ..item.clone() };
    assert_eq!(commit_one(ledger, rerun).await, WriteVerdict::PartsDiffer);
    assert_eq!(commit_one(ledger, item).await, WriteVerdict::Buried);
    assert_eq!(counts(ledger, "r").await, (0, 0));
    assert_eq!(numbers(ledger, upload).await, [(1, new)]);
    apply(ledger, complete(&ann, "k", upload, &[new])).await;
    assert_eq!(garbage(ledger).await, [old]);
}

/// Whichever comes last: a statement that was on its way for long takes nothing away.
pub async fn of_two_parts_the_one_begun_last_counts(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let slow = blob(ledger, &ann).await;
    pause(2).await;
    let quick = stored(ledger, &ann, upload, 1).await;
    assert_eq!(put(ledger, part(&ann, upload, 1, slow)).await, PartVerdict::Overtaken);
    assert_eq!(put(ledger, part(&ann, upload, 1, slow)).await, PartVerdict::Expired);
    assert_eq!(numbers(ledger, upload).await, [(1, quick)]);
    assert_eq!(garbage(ledger).await, [slow]);
}

/// A key of one space is not seen in another: neither by a write nor by whoever asks.
pub async fn keys_of_two_spaces_never_meet(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let keyed = |space: KeySpace, object: &str| WriteItem {
        idempotency: keyed(&space.key("once"), object),
        ..write(&ann, put_effect(object, b"x"))
    };
    let spaces = [KeySpace::Native, KeySpace::Sdk, KeySpace::Upload];
    for (at, space) in spaces.into_iter().enumerate() {
        let object = format!("k{at}");
        let first = apply(ledger, keyed(space, &object)).await;
        let again = commit_one(ledger, keyed(space, &object)).await;
        assert_eq!(again, WriteVerdict::Applied { applied: first.clone(), replayed: true });
        let found = ledger.operation_by_key(&name("r"), &space.key("once")).await.expect("read");
        assert_eq!(found.map(|found| found.operation), Some(first.operation));
        let asked = spaces.map(|space| (name("r"), space.key("once")));
        let known = ledger.known_keys(&asked).await.expect("read");
        assert_eq!(known, [true, at > 0, at > 1]);
        let begun = UploadItem { key: Some(space.key("once")), ..upload_item(&ann, new_blob()) };
        assert_eq!(ledger.begin_upload(begun).await.expect("decided"), UploadVerdict::KnownKey);
    }
}

/// In the order of their paths, as far as they are the bucket's.
pub async fn uploads_of_a_bucket_are_listed_in_order(ledger: &dyn Ledger) {
    let mut uploads = Vec::new();
    for (number, resource) in (10..).zip(["b", "b:a", "b:a-b", "bb:a", "b:a0"]) {
        let ann = held(ledger, resource, number).await;
        for object in ["x", "y"] {
            uploads.push((format!("{resource}/{object}"), begun(ledger, &ann, object).await));
        }
        let again = begun(ledger, &ann, "x").await;
        uploads.push((format!("{resource}/x"), again));
    }
    let mut expected: Vec<(String, BlobId)> = uploads
        .into_iter()
        .map(|(place, upload)| (place.replace(':', "/"), upload))
        .filter(|(place, _)| place.starts_with("b/"))
        .collect();
    expected.sort();
    let place = |record: &MultipartRecord| {
        let Multipart { resource, key, .. } = &record.multipart;
        (format!("{}/{}", resource.as_str().replace(':', "/"), key.as_str()), record.upload)
    };
    let mut after = None;
    let mut found = Vec::new();
    loop {
        let page = MultipartsPage { bucket: "b".into(), after, limit: 4 };
        let records = ledger.multiparts(page).await.expect("read");
        let Some(last) = records.last().map(place) else { break };
        found.extend(records.iter().map(place));
        after = Some((last.0, Some(last.1)));
    }
    assert_eq!(found, expected);
    let page = MultipartsPage { bucket: "b".into(), after: Some(("b/a/x".into(), None)), limit: 1 };
    let first = only(ledger.multiparts(page).await.expect("read"));
    assert_eq!(place(&first).0, "b/a/x", "without an id all of the path come");
}
