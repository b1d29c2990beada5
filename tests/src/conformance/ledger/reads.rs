//! What the ledger shows: objects, holders, locks, lists, refused writes.

use std::sync::Arc;

use fence_core::ports::{
    Grant, Ledger, LockRecord, Page, Payload, ReadItem, Rejection, RejectionFilter, ResourceView,
    SealItem, SealKind, Which, WriteItem,
};
use fence_core::{LockEnd, LockState, Refusal, Supersession, Token, Ttl};

use super::build::*;
use super::marks::mark_one;

fn page(prefix: &str, after: Option<&str>, limit: i64) -> Page {
    Page { prefix: prefix.into(), after: after.map(Into::into), limit }
}

async fn resources(ledger: &dyn Ledger, page: Page, which: Which) -> Vec<String> {
    let views = ledger.resources(page, which).await.expect("read");
    views.iter().map(|view| view.resource.to_string()).collect()
}

async fn objects(ledger: &dyn Ledger, resource: &str, page: Page) -> Vec<String> {
    let objects = ledger.objects(&name(resource), page).await.expect("read");
    assert!(objects.iter().all(|object| object.payload == Payload::NONE), "lists have no bytes");
    objects.iter().map(|object| object.key.to_string()).collect()
}

/// In the order of the items, also the same twice, and what is not there.
pub async fn a_batch_of_reads_answers_in_order(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    held(ledger, "empty", 11).await;
    for object in ["a", "b"] {
        apply(ledger, put(&ann, object, object)).await;
    }
    let wanted = [("r", "b"), ("none", "a"), ("r", "a"), ("empty", "a"), ("r", "c"), ("r", "b")];
    let items = wanted.map(|(resource, object)| ReadItem {
        resource: name(resource),
        key: key(object),
        version: None,
    });
    let found = ledger.read(Arc::from(items)).await.expect("read");
    let found: Vec<_> = found
        .iter()
        .map(|one| (one.object.as_ref().map(|object| body(object).to_vec()), one.resource_version))
        .collect();
    let (a, b) = (Some(b"a".to_vec()), Some(b"b".to_vec()));
    let two = Some(2);
    assert_eq!(
        found,
        [(b.clone(), two), (None, None), (a, two), (None, Some(0)), (None, two), (b, two)]
    );
}

/// Neither expired nor broken nor released, in the order asked.
pub async fn holders_are_the_live_ones(ledger: &dyn Ledger) {
    held(ledger, "held", 10).await;
    let breaking = held(ledger, "breaking", 11).await;
    break_one(ledger, &breaking, 60_000).await;
    let broken = held(ledger, "broken", 12).await;
    break_one(ledger, &broken, 0).await;
    let released = held(ledger, "released", 13).await;
    release_one(ledger, released.lock).await;
    expired(ledger, "expired", 14).await;
    let names = ["released", "held", "none", "breaking", "expired", "broken", "held"].map(name);
    let holders = holders(ledger, &names).await;
    let states: Vec<_> = holders.iter().map(|h| h.as_ref().map(|h| h.state)).collect();
    let (leased, breaking) = (Some(LockState::Leased), Some(LockState::Breaking));
    assert_eq!(states, [None, leased, None, breaking, None, None, leased]);
    let holder = holders[1].as_ref().expect("held");
    assert_eq!((holder.resource.as_str(), holder.owner.as_str()), ("held", "ann"));
    assert!(holder.age_ms >= 0 && holder.remaining_ms > 0);
}

/// All of one's own while it lives, and how it ended.
pub async fn a_lock_record_follows_its_lock(ledger: &dyn Ledger) {
    let item = seal(["a", "b"], 10);
    assert_eq!(ledger.lock(item.lock).await.expect("read"), None);
    let grant = granted(ledger, item).await;
    apply(ledger, put(&grant, "k", "a")).await;
    let record = ledger.lock(grant.lock).await.expect("read").expect("known");
    assert_eq!((record.ended, record.grant.state), (None, LockState::Leased));
    assert_eq!((record.grant.token, &record.grant.owner), (grant.token, &grant.owner));
    assert_eq!((record.grant.resources, record.grant.ttl), (grant.resources.clone(), long()));
    assert_eq!(record.grant.versions, [1, 0]);
    renew_for(ledger, grant.lock, Some(short())).await;
    expire().await;
    let record = ledger.lock(grant.lock).await.expect("read").expect("known");
    assert_eq!((record.ended, record.grant.state), (None, LockState::Expired));
    assert!(record.grant.remaining_ms < 0);
    release_one(ledger, grant.lock).await;
    let record = ledger.lock(grant.lock).await.expect("read").expect("kept");
    assert_eq!((record.grant.state, record.grant.remaining_ms), (LockState::Released, 0));
    let (how, at) = record.ended.expect("it ended");
    assert_eq!(how, LockEnd::Released);
    assert!(at >= record.grant.acquired_at);
}

/// Many at once, in the order asked, the same twice, and what is not there.
pub async fn locks_are_read_in_the_order_asked(ledger: &dyn Ledger) {
    let ann = held(ledger, "a", 10).await;
    let pair = granted(ledger, seal(["b", "c"], 11)).await;
    let ids = [pair.lock, lock_id(), ann.lock, pair.lock];
    let records = ledger.locks(&ids).await.expect("read");
    let found: Vec<_> = records.iter().map(|one| one.as_ref().map(|one| one.grant.lock)).collect();
    assert_eq!(found, [Some(pair.lock), None, Some(ann.lock), Some(pair.lock)]);
    for (id, record) in ids.iter().zip(&records) {
        let alone = ledger.lock(*id).await.expect("read");
        let plain = |record: &LockRecord| (record.grant.resources.clone(), record.renewed_at);
        assert_eq!(alone.as_ref().map(plain), record.as_ref().map(plain));
    }
    assert_eq!(ledger.locks(&[]).await, Ok(vec![]));
}

/// When the ttl last began, the break that is to come, and what put a newer token in its place.
pub async fn a_lock_record_says_what_is_happening_to_it(ledger: &dyn Ledger) {
    let record = async |grant: &Grant| ledger.lock(grant.lock).await.expect("read").expect("known");
    let ann = held(ledger, "r", 5).await;
    let fresh = record(&ann).await;
    assert_eq!(
        (fresh.renewed_at, fresh.break_due, fresh.superseded_by),
        (ann.acquired_at, None, None)
    );
    crate::conformance::pause(2).await;
    renew_one(ledger, ann.lock).await;
    assert!(record(&ann).await.renewed_at > ann.acquired_at);
    break_one(ledger, &ann, 60_000).await;
    let breaking = record(&ann).await;
    let due = breaking.break_due.expect("it is being broken");
    assert!((50_000..=60_000).contains(&due.in_ms) && due.at > breaking.renewed_at, "{due:?}");
    break_one(ledger, &ann, 0).await;
    let broken = record(&ann).await;
    assert_eq!((broken.break_due, broken.superseded_by), (None, None));

    // Taken over on one of its resources, and not the first.
    let pair = granted(ledger, SealItem { ttl: Some(short()), ..seal(["a", "b"], 11) }).await;
    expire().await;
    let bob = held(ledger, "b", 15).await;
    assert_eq!(record(&pair).await.superseded_by, Some(Supersession::Grant));
    let to = SealItem { kind: SealKind::Transfer { from: bob.lock }, ..seal(["b"], 30) };
    granted(ledger, to).await;
    assert_eq!(record(&bob).await.superseded_by, Some(Supersession::Transfer));
    // A lock that had ended before its successor came did not end by it.
    let (released, _) = succession(ledger, "s").await;
    assert_eq!(record(&released).await.superseded_by, None);
}

/// State, owner, counters and token of the lock sealed last.
pub async fn a_resource_shows_what_its_lock_is_doing(ledger: &dyn Ledger) {
    assert_eq!(ledger.resource(&name("r")).await.expect("read"), None);
    let (_, bob) = succession(ledger, "r").await;
    apply(ledger, put(&bob, "k", "a")).await;
    apply(ledger, put(&bob, "k", "b")).await;
    let view = ledger.resource(&name("r")).await.expect("read").expect("locked");
    assert_eq!((view.state, view.owner.as_str()), (LockState::Leased, "bob"));
    assert_eq!((view.version, view.objects, view.token), (2, 1, token(20)));
    assert!(view.age_ms >= 0 && view.remaining_ms > 0 && view.renewed_at >= view.acquired_at);
    crate::conformance::pause(3).await;
    renew_one(ledger, bob.lock).await;
    let renewed = ledger.resource(&name("r")).await.expect("read").expect("locked");
    assert_eq!(renewed.acquired_at, view.acquired_at);
    assert!(renewed.renewed_at > view.renewed_at);
    renew_for(ledger, bob.lock, Some(short())).await;
    expire().await;
    let lapsed = ledger.resource(&name("r")).await.expect("read").expect("locked");
    assert_eq!(lapsed.state, LockState::Expired);
    assert!(lapsed.remaining_ms < 0);
}

/// Many at once, in the order asked, the same twice, and what is not there.
pub async fn resources_are_read_in_the_order_asked(ledger: &dyn Ledger) {
    let ann = held(ledger, "a", 10).await;
    held(ledger, "b", 11).await;
    apply(ledger, put(&ann, "k", "x")).await;
    waiting(ledger, ["a", "c"]).await;
    let views = ledger.views(&["b", "none", "a", "b", "c"].map(name)).await.expect("read");
    let seen = |view: &ResourceView| (view.resource.to_string(), view.version, view.waiting);
    let seen: Vec<_> = views.iter().map(|view| view.as_ref().map(seen)).collect();
    let (a, b) = (Some(("a".to_owned(), 1, 1)), Some(("b".to_owned(), 0, 0)));
    // Somebody waits for `c`, and nobody ever held it.
    assert_eq!(seen, [b.clone(), None, a, b, None]);
    assert_eq!(ledger.views(&[]).await, Ok(vec![]));
}

/// A grant, another state, a version, a mark: each is news. A renewal, a waiter and time alone are not.
pub async fn the_face_of_a_resource_changes_with_what_is_news(ledger: &dyn Ledger) {
    let view = async || ledger.resource(&name("r")).await.expect("read").expect("locked");
    let ann = held(ledger, "r", 10).await;
    let mut last = view().await;
    crate::conformance::pause(5).await;
    renew_one(ledger, ann.lock).await;
    let waiter = waiting(ledger, ["r"]).await;
    let same = view().await;
    assert!(same.face() == last.face() && same != last, "{same:?}");
    let mut is_news = async |what: &str| {
        let now = view().await;
        assert!(now.face() != last.face(), "{what}: {now:?}");
        last = now;
    };
    apply(ledger, put(&ann, "k", "x")).await;
    is_news("a version").await;
    break_one(ledger, &ann, 60_000).await;
    is_news("a break that is to come").await;
    release_one(ledger, ann.lock).await;
    is_news("a release").await;
    granted(ledger, turn(&waiter, 20)).await;
    is_news("a grant").await;
    for mark in fence_core::ports::Mark::ALL {
        mark_one(ledger, "r", mark, "x").await;
        is_news(mark.as_str()).await;
    }
    renew_for(ledger, waiter.lock, Some(short())).await;
    expire().await;
    is_news("its end").await;
}

/// How long its lock lasts from a renewal, how long ago that was, and when a break comes due, alone and in lists.
pub async fn a_resource_says_how_long_its_lock_lasts(ledger: &dyn Ledger) {
    let view = async |resource: &str| {
        let view = ledger.resource(&name(resource)).await.expect("read").expect("locked");
        let listed =
            only(ledger.resources(page(resource, None, 9), Which::All).await.expect("read"));
        assert_eq!(
            (listed.ttl, listed.breaks_in_ms.is_some()),
            (view.ttl, view.breaks_in_ms.is_some())
        );
        assert!(listed.renewed_ms >= view.renewed_ms);
        view
    };
    let ann = held(ledger, "r", 10).await;
    let fresh = view("r").await;
    assert_eq!((fresh.ttl, fresh.breaks_in_ms), (long(), None));
    crate::conformance::pause(40).await;
    let old = view("r").await;
    assert!(old.renewed_ms >= fresh.renewed_ms + 30 && old.renewed_ms <= old.age_ms, "{old:?}");
    renew_for(ledger, ann.lock, Some(Ttl::from_ms(7_000))).await;
    let renewed = view("r").await;
    assert_eq!(renewed.ttl, Ttl::from_ms(7_000));
    // It was renewed after the pause, however long that took.
    assert!(renewed.age_ms >= renewed.renewed_ms + 30, "{renewed:?}");

    break_one(ledger, &ann, 5_000).await;
    let breaking = view("r").await;
    assert!(breaking.breaks_in_ms.is_some_and(|left| (1..=5_000).contains(&left)));
    break_one(ledger, &ann, 0).await;
    assert_eq!(view("r").await.breaks_in_ms, None);

    // An infinite lock has a minute until it is confirmed.
    let eve = granted(ledger, SealItem { ttl: Some(Ttl::INFINITE), ..seal(["s"], 20) }).await;
    assert_eq!(view("s").await.ttl, Ttl::UNCONFIRMED);
    renew_one(ledger, eve.lock).await;
    assert!(view("s").await.ttl.is_infinite());
}

/// In byte order, by prefix, after a name, up to a limit.
pub async fn resources_are_listed_in_byte_order(ledger: &dyn Ledger) {
    let names = ["z", "a:2", "a:10", "A", "a", "b~", "b#", "a:1", "_", "ab"];
    for (resource, number) in names.into_iter().zip(10..) {
        held(ledger, resource, number).await;
    }
    let mut sorted = names.map(String::from);
    sorted.sort_unstable();
    assert_eq!(resources(ledger, page("", None, 100), Which::All).await, sorted);
    assert_eq!(resources(ledger, page("", None, 3), Which::All).await, sorted[..3]);
    assert_eq!(resources(ledger, page("", Some(&sorted[2]), 3), Which::All).await, sorted[3..6]);
    assert_eq!(resources(ledger, page("a:", None, 9), Which::All).await, ["a:1", "a:10", "a:2"]);
    assert_eq!(resources(ledger, page("a:", Some("a:1"), 1), Which::All).await, ["a:10"]);
    assert_eq!(resources(ledger, page("a", Some("a:5"), 9), Which::All).await, ["ab"]);
    assert_eq!(resources(ledger, page("b#", None, 9), Which::All).await, ["b#"]);
    assert_eq!(resources(ledger, page("none", None, 9), Which::All).await, [""; 0]);
    assert_eq!(resources(ledger, page("a", Some("b"), 9), Which::All).await, [""; 0]);
}

/// Of all, of those that were not released, and of those that are held, after a name and up to a limit.
pub async fn resources_are_listed_by_what_their_locks_do(ledger: &dyn Ledger) {
    held(ledger, "held", 10).await;
    let broken = held(ledger, "broken", 11).await;
    break_one(ledger, &broken, 0).await;
    let breaking = held(ledger, "breaking", 12).await;
    break_one(ledger, &breaking, 60_000).await;
    let released = held(ledger, "a-released", 13).await;
    release_one(ledger, released.lock).await;
    expired(ledger, "expired", 14).await;
    let all = ["a-released", "breaking", "broken", "expired", "held"];
    assert_eq!(resources(ledger, page("", None, 9), Which::All).await, all);
    assert_eq!(resources(ledger, page("", None, 9), Which::Taken).await, all[1..]);
    assert_eq!(resources(ledger, page("", None, 2), Which::Taken).await, all[1..3]);
    assert_eq!(resources(ledger, page("", None, 9), Which::Held).await, ["breaking", "held"]);
    assert_eq!(resources(ledger, page("", None, 1), Which::Held).await, ["breaking"]);
    assert_eq!(resources(ledger, page("", Some("breaking"), 1), Which::Held).await, ["held"]);
}

/// What was never sealed is no resource.
pub async fn a_refused_seal_makes_no_resource(ledger: &dyn Ledger) {
    seal_one(ledger, seal(["r"], 0)).await;
    assert_eq!(resources(ledger, page("", None, 9), Which::All).await, [""; 0]);
    assert_eq!(holders(ledger, &[name("r")]).await, [None]);
}

/// In byte order, of one resource, by prefix, after a key, up to a limit.
pub async fn objects_are_listed_in_byte_order(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let other = held(ledger, "r2", 11).await;
    apply(ledger, put(&other, "a/other", "x")).await;
    let keys = ["b", "a/b", "a-b", "a/b/c", "a", "Z", "é", "a/%", "a/_x", "𝄞", "日本"];
    for object in keys {
        apply(ledger, put(&ann, object, "body")).await;
    }
    let mut sorted = keys.map(String::from);
    sorted.sort_unstable();
    assert_eq!(objects(ledger, "r", page("", None, 100)).await, sorted);
    assert_eq!(objects(ledger, "r", page("", Some("a"), 2)).await, ["a-b", "a/%"]);
    assert_eq!(objects(ledger, "r", page("a/", None, 9)).await, ["a/%", "a/_x", "a/b", "a/b/c"]);
    assert_eq!(objects(ledger, "r", page("a/b", Some("a/b"), 9)).await, ["a/b/c"]);
    assert_eq!(objects(ledger, "r", page("a/_", None, 9)).await, ["a/_x"]);
    assert_eq!(objects(ledger, "r", page("日", None, 9)).await, ["日本"]);
    assert_eq!(objects(ledger, "none", page("", None, 9)).await, [""; 0]);
    let listed = ledger.objects(&name("r"), page("b", None, 1)).await.expect("read");
    let object = only(listed);
    assert_eq!((object.size, object.tag, object.sha256), (4, tag(1), digest(b"body")));
}

/// No trace of it.
pub async fn an_unknown_operation_is_unknown(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    assert_eq!(ledger.operation(operation_id()).await.expect("read"), None);
    assert_eq!(ledger.operation_by_key(&name("r"), "once").await.expect("read"), None);
}

/// Each by itself, in the order that was asked for; keys are of one resource each.
pub async fn keys_are_known_once_they_took_effect(ledger: &dyn Ledger) {
    let (ann, bob) = (held(ledger, "r", 10).await, held(ledger, "s", 11).await);
    apply(ledger, WriteItem { idempotency: keyed("o'\"nce", "x"), ..put(&ann, "k", "x") }).await;
    let refused = put(&bob, "k", "x");
    let refused =
        WriteItem { idempotency: keyed("late", "x"), resource_version: Some(9), ..refused };
    assert_eq!(refusal(ledger, refused).await, Refusal::VersionMismatch);
    let asked =
        [("s", "o'\"nce"), ("r", "o'\"nce"), ("s", "late"), ("r", "o'\"nce"), ("never", "k")];
    let asked: Vec<_> = asked.iter().map(|(one, key)| (name(one), (*key).to_owned())).collect();
    let known = ledger.known_keys(&asked).await.expect("read");
    assert_eq!(known, [false, true, false, true, false]);
    assert_eq!(ledger.known_keys(&[]).await.expect("read"), [false; 0]);
}

/// Refused writes of one resource.
fn rejection(resource: &str, reason: &str, number: u32) -> Rejection {
    let at = format!("\"2026-01-02T03:04:05.{number:06}Z\"");
    Rejection {
        at: serde_json::from_str(&at).expect("a time"),
        resource: name(resource),
        key: (!number.is_multiple_of(2)).then(|| key("a/é'\"")),
        reason: reason.into(),
        token: Token::new(i64::from(number) * i64::from(u32::MAX)),
        grants_behind: Some(i64::from(number)),
        superseded_ms: number.is_multiple_of(3).then_some(-5),
        owner: number.is_multiple_of(3).then(|| "o'\"ö".into()),
        request_id: format!("req-{number}"),
        times: 1,
    }
}

/// Newest first, whole, by resource, by reason, from a number on, up to a limit.
pub async fn rejections_are_listed_newest_first(ledger: &dyn Ledger) {
    let rows = [("r", "stale"), ("s", "stale"), ("r", "unknown"), ("r", "stale"), ("s", "unknown")];
    let all: Vec<Rejection> = rows
        .iter()
        .zip(0..)
        .map(|((resource, reason), i)| rejection(resource, reason, i))
        .collect();
    ledger.record_rejections(Arc::from(&all[..2])).await.expect("kept");
    ledger.record_rejections(Arc::from(&all[2..])).await.expect("kept");
    ledger.record_rejections(Arc::from([])).await.expect("kept");
    let list = async |resource: Option<&str>, reason: Option<&str>, before, limit| {
        let filter = RejectionFilter {
            resource: resource.map(name),
            reason: reason.map(Into::into),
            before,
            between: None,
            limit,
        };
        ledger.rejections(filter).await.expect("read")
    };
    let found = list(None, None, None, 100).await;
    let whole: Vec<Rejection> = found.iter().rev().map(|(_, one)| one.clone()).collect();
    assert_eq!(whole, all);
    assert!(found.windows(2).all(|pair| pair[0].0 > pair[1].0), "numbers fall");
    let ids = |found: &[(i64, Rejection)]| -> Vec<String> {
        found.iter().map(|(_, one)| one.request_id.clone()).collect()
    };
    assert_eq!(ids(&list(Some("r"), None, None, 100).await), ["req-3", "req-2", "req-0"]);
    assert_eq!(ids(&list(None, Some("stale"), None, 2).await), ["req-3", "req-1"]);
    assert_eq!(ids(&list(Some("s"), Some("unknown"), None, 9).await), ["req-4"]);
    assert_eq!(ids(&list(None, None, Some(found[1].0), 2).await), ["req-2", "req-1"]);
    assert_eq!(ids(&list(Some("none"), None, None, 9).await), [""; 0]);
}
