//! How uploads in parts end: under the rule, and with time left for a ledger that goes back; and that nothing of an object
//! clings to what takes its place.

use std::time::Duration;

use fence_core::ports::{
    AbortItem, AbortVerdict, By, Effect, Ledger, LedgerError, PartItem, PartVerdict, Refence,
    RulesChanged, SealItem, UploadItem, UploadVerdict,
};
use fence_core::{LockId, Refusal};
use uuid::Uuid;

use super::build::*;
use super::multipart::{
    abort, aborted, becomes, begun, blob, complete, garbage_after, new_blob, numbers, part,
    put as put_part, sorted, stored, upload_item,
};
use crate::conformance::pause;

/// Whoever's lock has passed on takes nothing from its successor, however late it comes (I3).
pub async fn a_late_abort_ends_nothing(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let first = stored(ledger, &ann, upload, 1).await;
    let other = AbortItem { lock: Some(LockId(Uuid::new_v4())), ..abort(&ann, upload) };
    let refused = aborted(ledger, other).await;
    assert_eq!(refused, AbortVerdict::Refused(Refusal::LockIdMismatch));
    let elsewhere = AbortItem { resource: name("other"), ..abort(&ann, upload) };
    assert_eq!(aborted(ledger, elsewhere).await, AbortVerdict::NoUpload);
    release_one(ledger, ann.lock).await;
    let ended = aborted(ledger, abort(&ann, upload)).await;
    assert_eq!(ended, AbortVerdict::Refused(Refusal::Released));
    let bob = granted(ledger, SealItem { owner: "bob".into(), ..seal(["r"], 20) }).await;
    let late = aborted(ledger, abort(&ann, upload)).await;
    assert!(matches!(late, AbortVerdict::Refused(Refusal::Stale { .. })), "{late:?}");
    assert_eq!(numbers(ledger, upload).await, [(1, first)]);
    apply(ledger, complete(&bob, "k", upload, &[first])).await;
    assert_eq!(aborted(ledger, abort(&bob, upload)).await, AbortVerdict::NoUpload);
    assert_eq!(look(ledger, "r", "k").await.object.expect("there").parts, Some(1));
}

/// A part that comes late takes no part's place: what a holder may complete is changed by no smaller token once its own was
/// given out (I3). What was a part already is told to be one, whatever became of the token since.
pub async fn a_late_part_is_not_stored(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let first = stored(ledger, &ann, upload, 1).await;
    let late = part(&ann, upload, 1, blob(ledger, &ann).await);
    let other = PartItem { lock: Some(LockId(Uuid::new_v4())), ..late.clone() };
    let refused = put_part(ledger, other).await;
    assert_eq!(refused, PartVerdict::Refused(Refusal::LockIdMismatch));
    let elsewhere = PartItem { resource: name("other"), ..late.clone() };
    assert_eq!(put_part(ledger, elsewhere).await, PartVerdict::NoUpload);
    release_one(ledger, ann.lock).await;
    assert_eq!(put_part(ledger, late.clone()).await, PartVerdict::Refused(Refusal::Released));
    let bob = granted(ledger, SealItem { owner: "bob".into(), ..seal(["r"], 20) }).await;
    let stale = put_part(ledger, late).await;
    assert!(matches!(stale, PartVerdict::Refused(Refusal::Stale { .. })), "{stale:?}");
    assert_eq!(put_part(ledger, part(&ann, upload, 1, first)).await, PartVerdict::Stored);
    assert_eq!(numbers(ledger, upload).await, [(1, first)]);
    apply(ledger, complete(&bob, "k", upload, &[first])).await;
}

/// What older rules allowed stores no part (I17), nor does somebody else's token (I16).
pub async fn a_part_is_held_to_the_rules_in_force(ledger: &dyn Ledger) {
    let item =
        SealItem { by: by("ann"), principal: Some(principal_name("ann")), ..seal(["r"], 10) };
    let ann = granted(ledger, item).await;
    let begin = |blob| UploadItem { by: by("ann"), ..upload_item(&ann, blob) };
    let (upload, blob) = (new_blob(), new_blob());
    let begun = ledger.begin_multipart(begin(upload), becomes(&name("r"), "k")).await;
    assert_eq!(begun, Ok(UploadVerdict::Begun));
    assert_eq!(ledger.begin_upload(begin(blob)).await, Ok(UploadVerdict::Begun));
    let applied = ledger.apply_rules(rules_change("one")).await.expect("applied");
    let RulesChanged::InForce(generation) = applied else { panic!("{applied:?}") };
    let part_by = |by: By| PartItem { by, ..part(&ann, upload, 1, blob) };
    let older = ledger.put_part(part_by(by("ann").under(generation - 1))).await;
    assert_eq!(older, Err(LedgerError::RulesMoved));
    let bob = put_part(ledger, part_by(by("bob").under(generation))).await;
    assert_eq!(bob, PartVerdict::Refused(Refusal::Foreign));
    assert_eq!(numbers(ledger, upload).await, [], "nothing was stored");
    let own = put_part(ledger, part_by(by("ann").under(generation))).await;
    assert_eq!(own, PartVerdict::Stored);
    let known = ledger.put_part(part_by(by("ann").under(generation - 1))).await;
    assert_eq!(known, Ok(PartVerdict::Stored), "what is known is told");
}

/// What older rules allowed ends no upload (I17), nor does somebody else's token (I16).
pub async fn an_abort_is_held_to_the_rules_in_force(ledger: &dyn Ledger) {
    let item =
        SealItem { by: by("ann"), principal: Some(principal_name("ann")), ..seal(["r"], 10) };
    let ann = granted(ledger, item).await;
    let upload = new_blob();
    let begin = UploadItem { by: by("ann"), ..upload_item(&ann, upload) };
    let begun = ledger.begin_multipart(begin, becomes(&name("r"), "k")).await;
    assert_eq!(begun, Ok(UploadVerdict::Begun));
    let applied = ledger.apply_rules(rules_change("one")).await.expect("applied");
    let RulesChanged::InForce(generation) = applied else { panic!("{applied:?}") };
    let abort_by = |by: By| AbortItem { by, ..abort(&ann, upload) };
    let older = ledger.abort_multipart(abort_by(by("ann").under(generation - 1))).await;
    assert_eq!(older, Err(LedgerError::RulesMoved));
    let bob = aborted(ledger, abort_by(by("bob").under(generation))).await;
    assert_eq!(bob, AbortVerdict::Refused(Refusal::Foreign));
    assert!(ledger.multipart(upload).await.expect("read").is_some(), "it goes on");
    let own = aborted(ledger, abort_by(by("ann").under(generation))).await;
    assert_eq!(own, AbortVerdict::Aborted);
}

/// An older copy of the ledger may have a part in an upload that goes on, which anybody may complete: it stays for the
/// rollback horizon once it is nobody's any more, however that came (I9).
pub async fn parts_stay_while_a_copy_may_have_them(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (first, second) = (begun(ledger, &ann, "k").await, begun(ledger, &ann, "l").await);
    let old = stored(ledger, &ann, first, 1).await;
    let new = stored(ledger, &ann, first, 1).await;
    let unnamed = stored(ledger, &ann, first, 2).await;
    apply(ledger, complete(&ann, "k", first, &[new])).await;
    let of_second = stored(ledger, &ann, second, 1).await;
    assert_eq!(aborted(ledger, abort(&ann, second)).await, AbortVerdict::Aborted);
    let horizon = Duration::from_millis(400);
    assert_eq!(garbage_after(ledger, horizon).await, [], "it may come back");
    let known = ledger.known_blobs(&[old, unnamed, of_second]).await.expect("read");
    assert_eq!(known, [true; 3], "no orphans");
    pause(500).await;
    let found = garbage_after(ledger, horizon).await;
    assert_eq!(found, sorted([old, unnamed, second, of_second]));
}

/// A ledger that went back may have the intent of a part again that was deleted since: nobody makes it a part then (I9).
/// What was a part already stays one.
pub async fn a_void_part_is_not_taken(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let upload = begun(ledger, &ann, "k").await;
    let before = stored(ledger, &ann, upload, 1).await;
    let late = blob(ledger, &ann).await;
    let refence = Refence {
        nonce: Uuid::new_v4(),
        number: 0,
        known_base: 0,
        known_generation: 0,
        why: "test".into(),
        forced: true,
        seen: None,
    };
    ledger.refence(refence).await.expect("re-fenced");
    let void = put_part(ledger, part(&ann, upload, 2, late)).await;
    assert_eq!(void, PartVerdict::Refused(Refusal::Void));
    assert_eq!(numbers(ledger, upload).await, [(1, before)]);
    let void = aborted(ledger, abort(&ann, upload)).await;
    assert_eq!(void, AbortVerdict::Refused(Refusal::Void));
}

/// What S3 tells of an object goes with it, whatever takes its place and however.
pub async fn nothing_told_of_an_object_clings_to_the_next(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let told = |about: Option<&str>| match put_effect("k", b"x") {
        Effect::Put { key, content_type, payload, size, sha256, parts, .. } => Effect::Put {
            key,
            content_type,
            payload,
            size,
            sha256,
            about: about.map(Into::into),
            parts,
        },
        other => other,
    };
    let about = async || {
        let object = look(ledger, "r", "k").await.object.expect("it is there");
        (object.about.as_deref().map(str::to_owned), object.parts)
    };
    let put = async |about: Option<&str>| apply(ledger, write(&ann, told(about))).await;
    put(Some("{\"a\":1}")).await;
    assert_eq!(about().await, (Some("{\"a\":1}".into()), None));
    put(None).await;
    assert_eq!(about().await, (None, None), "of the next nothing is told");
    put(Some("{\"b\":2}")).await;
    put(Some("{\"c\":3}")).await;
    assert_eq!(about().await, (Some("{\"c\":3}".into()), None));
    // In one batch, and in one act of several.
    let batch = [write(&ann, told(Some("{\"d\":4}"))), write(&ann, told(None))];
    commit(ledger, batch).await.into_iter().for_each(|verdict| drop(applied(verdict)));
    assert_eq!(about().await, (None, None), "nor in a batch");
    put(Some("{\"e\":5}")).await;
    apply(ledger, delete(&ann, "k")).await;
    put(None).await;
    assert_eq!(about().await, (None, None), "nor after a deletion");
    let upload = begun(ledger, &ann, "k").await;
    let first = stored(ledger, &ann, upload, 1).await;
    apply(ledger, complete(&ann, "k", upload, &[first])).await;
    put(None).await;
    assert_eq!(about().await, (None, None), "nor that it was in parts");
}
