//! Blobs as the ledger sees them: intents, pointers, replaced versions, garbage.

use std::time::Duration;

use fence_core::ports::{
    Attempt, BlobId, BlobTimes, By, Effect, Grant, Ledger, Payload, Refence, SealItem, Tidied,
    UploadItem, UploadVerdict, WriteItem, WriteVerdict,
};
use fence_core::{LockId, Refusal};
use uuid::Uuid;

use super::build::*;
use crate::conformance::AT_ONCE;
use crate::conformance::pause;

const LONG: Duration = Duration::from_secs(3600);

/// Nothing is kept, and garbage is handed out once.
const NOW: BlobTimes = BlobTimes { redelete: LONG, ..AT_ONCE };

/// Uploads that were begun go on; all else is tidied.
const UPLOADS_GO_ON: BlobTimes = BlobTimes { upload: LONG, multipart: LONG, ..NOW };

fn upload(grant: &Grant, blob: Option<BlobId>) -> UploadItem {
    UploadItem {
        blob,
        resource: grant.resources[0].clone(),
        token: grant.token,
        lock: None,
        key: None,
        by: By::default(),
    }
}

/// A blob that is on its way.
async fn begun(ledger: &dyn Ledger, grant: &Grant) -> BlobId {
    let blob = BlobId(Uuid::new_v4());
    let verdict = ledger.begin_upload(upload(grant, Some(blob))).await.expect("decided");
    assert_eq!(verdict, UploadVerdict::Begun);
    blob
}

fn put_blob(grant: &Grant, object: &str, blob: BlobId) -> WriteItem {
    let effect = Effect::Put {
        key: key(object),
        content_type: "video/x".into(),
        payload: Payload::Blob(blob),
        size: 5_000_000_000,
        sha256: digest(blob.0.as_bytes()),
        about: None,
        parts: None,
    };
    write(grant, effect)
}

/// An object whose bytes are in a blob.
async fn stored(ledger: &dyn Ledger, grant: &Grant, object: &str) -> BlobId {
    let blob = begun(ledger, grant).await;
    apply(ledger, put_blob(grant, object, blob)).await;
    blob
}

async fn tidied(ledger: &dyn Ledger, times: BlobTimes) -> Tidied {
    crate::conformance::tidy(ledger, times, 100, true).await
}

async fn garbage(ledger: &dyn Ledger, times: BlobTimes) -> Vec<BlobId> {
    let mut found: Vec<_> =
        tidied(ledger, times).await.garbage.into_iter().map(|garbage| garbage.blob).collect();
    found.sort_unstable();
    found
}

async fn known(ledger: &dyn Ledger, blob: BlobId) -> bool {
    only(ledger.known_blobs(&[blob]).await.expect("read"))
}

fn sorted<const N: usize>(mut blobs: [BlobId; N]) -> Vec<BlobId> {
    blobs.sort_unstable();
    blobs.into()
}

/// Its intent is consumed, and readers are told where the bytes are.
pub async fn a_put_makes_a_blob_an_objects(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let blob = begun(ledger, &ann).await;
    assert!(known(ledger, blob).await);
    let applied = apply(ledger, put_blob(&ann, "k", blob)).await;
    assert_eq!((applied.version, applied.size), (Some(1), 5_000_000_000));
    let object = look(ledger, "r", "k").await.object.expect("it is there");
    assert_eq!((object.payload, object.size), (Payload::Blob(blob), 5_000_000_000));
    assert_eq!(garbage(ledger, NOW).await, [], "its intent is gone");
    assert!(known(ledger, blob).await);
    let pointer = only(ledger.pointers(None, 10).await.expect("read"));
    assert_eq!((pointer.blob, pointer.key, pointer.current), (blob, key("k"), true));
    assert_eq!(ledger.pointers(Some(blob), 10).await.expect("read"), []);
}

/// It took no effect; and a rerun that finds that is buried, so that it never will.
pub async fn a_put_without_an_intent_has_no_effect(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = put_blob(&ann, "k", BlobId(Uuid::new_v4()));
    assert_eq!(commit_one(ledger, item.clone()).await, WriteVerdict::UploadExpired);
    assert_eq!(counts(ledger, "r").await, (0, 0));
    let rerun = WriteItem { attempt: Attempt::Rerun, ..item.clone() };
    assert_eq!(commit_one(ledger, rerun).await, WriteVerdict::UploadExpired);
    assert_eq!(commit_one(ledger, item).await, WriteVerdict::Buried);
}

/// In one batch and in two.
pub async fn an_intent_is_consumed_once(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let blob = begun(ledger, &ann).await;
    let [first, second] =
        commit(ledger, [put_blob(&ann, "a", blob), put_blob(&ann, "b", blob)]).await;
    applied(first);
    assert_eq!(second, WriteVerdict::UploadExpired);
    assert_eq!(commit_one(ledger, put_blob(&ann, "c", blob)).await, WriteVerdict::UploadExpired);
    assert_eq!(counts(ledger, "r").await, (1, 1));
}

/// The sweeper and a commit take the same row: one of the two.
pub async fn an_upload_that_was_given_up_is_not_committed(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let blob = begun(ledger, &ann).await;
    assert!(ledger.note_upload(blob, "a handle").await.expect("noted"));
    let swept = tidied(ledger, NOW).await;
    assert_eq!((swept.uploads, swept.versions), (1, 0));
    let handed_out = only(swept.garbage);
    assert_eq!((handed_out.blob, handed_out.handle.as_deref()), (blob, Some("a handle")));
    assert_eq!(commit_one(ledger, put_blob(&ann, "k", blob)).await, WriteVerdict::UploadExpired);
    assert!(!ledger.note_upload(blob, "too late").await.expect("no harm"));
}

/// The client may try again with the same body under another token, so the sweeper has time.
pub async fn a_refused_put_leaves_its_intent(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let blob = begun(ledger, &ann).await;
    release_one(ledger, ann.lock).await;
    let bob = SealItem { owner: "bob".into(), ..seal(["r"], 20) };
    granted(ledger, bob).await;
    assert!(matches!(refusal(ledger, put_blob(&ann, "k", blob)).await, Refusal::Stale { .. }));
    assert_eq!(garbage(ledger, UPLOADS_GO_ON).await, []);
    assert_eq!(garbage(ledger, NOW).await, [blob]);
}

/// For readers, for a ledger that goes back, and for those who ask for versions.
pub async fn a_replaced_blob_stays_for_a_while(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let old = stored(ledger, &ann, "k").await;
    let new = stored(ledger, &ann, "k").await;
    for times in [
        BlobTimes { reader_grace: LONG, ..NOW },
        BlobTimes { rollback_horizon: LONG, ..NOW },
        BlobTimes { versions: LONG, ..NOW },
    ] {
        assert_eq!(garbage(ledger, times).await, [], "{times:?}");
    }
    let version = look_at(ledger, "r", "k", Some(1)).await.object.expect("it is kept");
    assert_eq!((version.payload, version.tag), (Payload::Blob(old), tag(1)));
    let current = look_at(ledger, "r", "k", Some(2)).await.object.expect("it is current");
    assert_eq!(current.payload, Payload::Blob(new));
    assert_eq!(look_at(ledger, "r", "k", Some(3)).await.object, None);
    let pointers = ledger.pointers(None, 10).await.expect("read");
    let mut flags: Vec<_> = pointers.iter().map(|one| (one.current, one.blob)).collect();
    flags.sort_unstable();
    assert_eq!(flags, [(false, old), (true, new)]);

    assert_eq!(garbage(ledger, NOW).await, [old]);
    assert_eq!(look_at(ledger, "r", "k", Some(1)).await.object, None);
    assert!(known(ledger, new).await);
}

/// With time in between.
pub async fn garbage_is_deleted_twice(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let blob = begun(ledger, &ann).await;
    let first = tidied(ledger, NOW).await.garbage;
    assert_eq!((first[0].blob, first[0].again), (blob, false));
    assert_eq!(garbage(ledger, NOW).await, [], "handed out to one at a time");
    ledger.blobs_deleted(&first, NOW).await.expect("noted");
    assert_eq!(garbage(ledger, NOW).await, [], "the second time is to come");
    // Another gateway that was slow with the first time does not bring the second one forward.
    ledger.blobs_deleted(&first, NOW).await.expect("no harm");
    assert!(known(ledger, blob).await);
}

/// Nothing is left to be known of it then.
pub async fn garbage_is_forgotten_after_the_second_time(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let blob = begun(ledger, &ann).await;
    let times = BlobTimes { redelete: Duration::ZERO, ..NOW };
    for again in [false, true] {
        let handed_out = tidied(ledger, times).await.garbage;
        assert_eq!((handed_out[0].blob, handed_out[0].again), (blob, again));
        assert!(known(ledger, blob).await);
        ledger.blobs_deleted(&handed_out, times).await.expect("noted");
    }
    assert_eq!(garbage(ledger, times).await, []);
    assert!(!known(ledger, blob).await);
}

/// Of one object and of all.
pub async fn deletions_replace_blobs_as_well(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let one = stored(ledger, &ann, "one").await;
    let two = stored(ledger, &ann, "two").await;
    let three = stored(ledger, &ann, "three").await;
    apply(ledger, put(&ann, "small", "text")).await;
    apply(ledger, delete(&ann, "one")).await;
    assert_eq!(garbage(ledger, UPLOADS_GO_ON).await, [one]);
    apply(ledger, delete_all(&ann)).await;
    assert_eq!(garbage(ledger, UPLOADS_GO_ON).await, sorted([two, three]));
}

/// What a batch puts and replaces again was never seen by anybody, and is garbage all the same.
pub async fn blobs_replaced_in_their_own_batch_are_found(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let first = stored(ledger, &ann, "k").await;
    let second = begun(ledger, &ann).await;
    let third = begun(ledger, &ann).await;
    let fourth = begun(ledger, &ann).await;
    let verdicts = commit(
        ledger,
        [
            put_blob(&ann, "k", second),
            put_blob(&ann, "k", third),
            delete(&ann, "k"),
            put_blob(&ann, "k", fourth),
            put(&ann, "other", "text"),
        ],
    )
    .await;
    verdicts.into_iter().for_each(|verdict| drop(applied(verdict)));
    assert_eq!(garbage(ledger, NOW).await, sorted([first, second, third]));
    let fifth = begun(ledger, &ann).await;
    let sixth = begun(ledger, &ann).await;
    let verdicts =
        commit(ledger, [put_blob(&ann, "a", fifth), delete_all(&ann), put_blob(&ann, "a", sixth)]);
    verdicts.await.into_iter().for_each(|verdict| drop(applied(verdict)));
    assert_eq!(garbage(ledger, UPLOADS_GO_ON).await, sorted([fourth, fifth]));
    let object = look(ledger, "r", "a").await.object.expect("it is there");
    assert_eq!(object.payload, Payload::Blob(sixth));
}

/// A pin keeps it, and is never shortened.
pub async fn what_is_being_read_is_no_garbage(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let old = stored(ledger, &ann, "k").await;
    stored(ledger, &ann, "k").await;
    ledger.pin_blobs(&[old, old], LONG).await.expect("pinned");
    ledger.pin_blobs(&[old], Duration::ZERO).await.expect("a pin is never shortened");
    assert_eq!(garbage(ledger, NOW).await, []);
    assert!(look_at(ledger, "r", "k", Some(1)).await.object.is_some());
}

/// Only what stays refused whatever happens, and only without a key that took effect.
pub async fn uploads_in_vain_are_refused_early(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, WriteItem { idempotency: keyed("paid", "x"), ..put(&ann, "k", "x") }).await;
    release_one(ledger, ann.lock).await;
    let bob = held(ledger, "r", 11).await;
    let early = async |item: UploadItem| ledger.begin_upload(item).await.expect("decided");
    let blob = || Some(BlobId(Uuid::new_v4()));
    match early(upload(&ann, blob())).await {
        UploadVerdict::Refused(Refusal::Stale { grants_behind, owner, .. }) => {
            assert_eq!((grants_behind, owner.as_deref()), (Some(1), Some("ann")));
        }
        other => panic!("not stale: {other:?}"),
    }
    let known = UploadItem { key: Some("paid".into()), ..upload(&ann, blob()) };
    assert_eq!(early(known).await, UploadVerdict::KnownKey);
    let never = UploadItem { token: token(99), ..upload(&bob, blob()) };
    assert_eq!(early(never).await, UploadVerdict::Refused(Refusal::Unknown));
    let nowhere = UploadItem { resource: name("never-locked"), ..upload(&bob, blob()) };
    assert_eq!(early(nowhere).await, UploadVerdict::Refused(Refusal::Unknown));
    let mistaken = UploadItem { lock: Some(LockId(Uuid::new_v4())), ..upload(&bob, blob()) };
    assert_eq!(early(mistaken).await, UploadVerdict::Begun);
    assert_eq!(early(upload(&bob, None)).await, UploadVerdict::Begun);
    release_one(ledger, bob.lock).await;
    assert_eq!(early(upload(&bob, blob())).await, UploadVerdict::Refused(Refusal::Released));
    // Only those that were begun left an intent.
    assert_eq!(tidied(ledger, NOW).await.uploads, 1);
}

/// Only the act that stores it makes it final: until then a clock step could take it back.
pub async fn a_break_that_is_due_but_not_stored_refuses_no_upload(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    break_one(ledger, &ann, 1).await;
    crate::conformance::pause(20).await;
    let early = async || {
        let item = upload(&ann, Some(BlobId(Uuid::new_v4())));
        ledger.begin_upload(item).await.expect("decided")
    };
    assert_eq!(early().await, UploadVerdict::Begun);
    assert_eq!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Broken);
    assert_eq!(early().await, UploadVerdict::Refused(Refusal::Broken));
}

/// Another worker redelivers: the first answer, and its own upload is garbage.
pub async fn a_replayed_put_leaves_its_blob(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (first, again) = (begun(ledger, &ann).await, begun(ledger, &ann).await);
    let item = |blob| WriteItem {
        idempotency: keyed("paid", "the same body"),
        ..put_blob(&ann, "k", blob)
    };
    let original = apply(ledger, item(first)).await;
    assert_eq!(replayed(commit_one(ledger, item(again)).await), original);
    assert_eq!(garbage(ledger, NOW).await, [again]);
}

/// By whoever comes first.
pub async fn a_ledger_is_bound_to_one_store(ledger: &dyn Ledger) {
    assert_eq!(ledger.blob_store().await, Ok(None));
    let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
    assert_eq!(ledger.bind_blob_store(one).await, Ok(one));
    assert_eq!(ledger.bind_blob_store(two).await, Ok(one));
    assert_eq!(ledger.blob_store().await, Ok(Some(one)));
}

/// Each pass is bounded, and nothing is forgotten for it.
pub async fn passes_are_bounded(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    for _ in 0..5 {
        begun(ledger, &ann).await;
    }
    let mut passes = Vec::new();
    for _ in 0..4 {
        let swept = crate::conformance::tidy(ledger, NOW, 2, true).await;
        passes.push((swept.uploads, swept.garbage.len()));
    }
    assert_eq!(passes, [(2, 2), (2, 2), (1, 1), (0, 0)]);
}

/// On a ledger that keeps replaced versions, also of payloads that it has itself.
pub async fn replaced_versions_stay_readable(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "one")).await;
    let verdicts = commit(
        ledger,
        [put(&ann, "k", "two"), put(&ann, "k", "three"), put(&ann, "l", "four"), delete(&ann, "k")],
    );
    verdicts.await.into_iter().for_each(|verdict| drop(applied(verdict)));
    apply(ledger, put(&ann, "m", "six")).await;
    apply(ledger, delete_all(&ann)).await;
    for (object, version, text) in
        [("k", 1, "one"), ("k", 2, "two"), ("k", 3, "three"), ("l", 4, "four"), ("m", 6, "six")]
    {
        let found = look_at(ledger, "r", object, Some(version)).await;
        let found = found.object.unwrap_or_else(|| panic!("{object} at {version} is kept"));
        assert_eq!((body(&found), found.tag), (text.as_bytes(), tag(version)));
    }
    for (object, version) in [("k", 4), ("k", 5), ("l", 3), ("m", 7)] {
        assert_eq!(look_at(ledger, "r", object, Some(version)).await.object, None);
    }
    assert_eq!(look(ledger, "r", "k").await.object, None);
    let kept = BlobTimes { versions: LONG, ..NOW };
    assert_eq!(tidied(ledger, kept).await.versions, 0);
    assert_eq!(tidied(ledger, NOW).await.versions, 5);
    assert_eq!(look_at(ledger, "r", "k", Some(1)).await.object, None);
}

/// And one that does not keep them keeps nothing.
pub async fn replaced_versions_are_gone(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "one")).await;
    apply(ledger, put(&ann, "k", "two")).await;
    assert_eq!(look_at(ledger, "r", "k", Some(1)).await.object, None);
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("two"));
    assert_eq!(tidied(ledger, NOW).await.versions, 0);
}

/// A gateway whose store is not the one that has the garbage takes part in all but that.
pub async fn garbage_is_handed_out_to_those_who_can_delete_it(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let blob = begun(ledger, &ann).await;
    let swept = crate::conformance::tidy(ledger, NOW, 10, false).await;
    assert_eq!((swept.uploads, swept.garbage), (1, vec![]));
    assert_eq!(garbage(ledger, NOW).await, [blob]);
}

/// Whoever restored the ledger may still decide otherwise, and then needs what it does not know of.
pub async fn nothing_is_deleted_for_a_while_after_a_re_fence(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let blob = begun(ledger, &ann).await;
    let refence = Refence {
        nonce: Uuid::new_v4(),
        number: 0,
        known_base: 0,
        known_generation: 0,
        why: "test".into(),
        forced: true,
        seen: None,
    };
    assert!(ledger.may_delete(LONG).await.expect("decided"));
    ledger.refence(refence).await.expect("re-fenced");
    assert!(!ledger.may_delete(LONG).await.expect("decided"));
    assert!(ledger.may_delete(Duration::ZERO).await.expect("decided"));
    let held = BlobTimes { rollback_horizon: LONG, ..NOW };
    let swept = tidied(ledger, held).await;
    assert_eq!((swept.uploads, swept.garbage), (1, vec![]));
    assert_eq!(garbage(ledger, NOW).await, [blob]);
}

/// Whoever read the pointer just before has not pinned the blob yet, and a restore may bring it back.
pub async fn the_blob_of_a_forgotten_version_stays_for_a_while(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let short = Duration::from_millis(50);
    for times in [
        BlobTimes { reader_grace: short, ..UPLOADS_GO_ON },
        BlobTimes { rollback_horizon: short, ..UPLOADS_GO_ON },
    ] {
        let blob = stored(ledger, &ann, "k").await;
        apply(ledger, put(&ann, "k", "small")).await;
        pause(100).await;
        let swept = tidied(ledger, times).await;
        assert_eq!((swept.versions, swept.garbage), (1, vec![]), "forgotten, and still there");
        assert!(known(ledger, blob).await, "no orphan");
        pause(100).await;
        assert_eq!(garbage(ledger, times).await, [blob]);
    }
    // Who began just before and reads for long has pinned it by then.
    let blob = stored(ledger, &ann, "k").await;
    apply(ledger, put(&ann, "k", "small")).await;
    pause(100).await;
    let times = BlobTimes { reader_grace: short, ..UPLOADS_GO_ON };
    assert_eq!(tidied(ledger, times).await.versions, 1);
    ledger.pin_blobs(&[blob], LONG).await.expect("pinned");
    pause(100).await;
    assert_eq!(garbage(ledger, times).await, []);
}
