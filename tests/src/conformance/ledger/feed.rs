//! The history of a resource, and the feed of committed writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use fence_core::ports::{
    Applied, Attempt, EventCursor, EventsPage, Ledger, Patience, Refence, VersionsFilter, WriteItem,
};
use uuid::Uuid;

use super::build::*;

fn at(generation: i64, number: i64) -> EventCursor {
    EventCursor { generation, number }
}

/// The events behind a place, after a step.
async fn page(ledger: &dyn Ledger, after: EventCursor, limit: i64) -> EventsPage {
    let head = ledger.number_events().await.expect("a step");
    assert!(head.whole, "nobody else is at it");
    let page = ledger.events(after, limit).await.expect("events are read");
    assert_eq!(page.last, head.last);
    page
}

/// All events, oldest first; their numbers have no gaps.
async fn all(ledger: &dyn Ledger) -> Vec<Applied> {
    let page = page(ledger, at(0, 0), 1000).await;
    let numbers: Vec<_> = page.events.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=page.last.number).collect::<Vec<_>>());
    page.events.into_iter().map(|(_, event)| event).collect()
}

async fn versions(ledger: &dyn Ledger, resource: &str, filter: VersionsFilter) -> Vec<Applied> {
    ledger.versions(&name(resource), filter).await.expect("the history is read")
}

/// Newest first, without what took no version, and of this resource alone.
pub async fn the_history_of_a_resource_is_newest_first(ledger: &dyn Ledger) {
    let (ann, other) = (held(ledger, "r", 10).await, held(ledger, "other", 11).await);
    let mut made = Vec::new();
    for object in ["a/1", "b", "a/2"] {
        made.push(apply(ledger, put(&ann, object, object)).await);
    }
    apply(ledger, put(&other, "a/1", "other")).await;
    assert_eq!(apply(ledger, delete(&ann, "nothing")).await.version, None);
    made.push(apply(ledger, delete(&ann, "b")).await);
    made.push(apply(ledger, delete_all(&ann)).await);
    made.reverse();
    let filter = VersionsFilter { limit: 100, ..VersionsFilter::default() };
    assert_eq!(versions(ledger, "r", filter.clone()).await, made);

    let paged = VersionsFilter { before: Some(5), limit: 2, ..filter.clone() };
    assert_eq!(versions(ledger, "r", paged).await, made[1..3]);
    let first = VersionsFilter { before: Some(1), ..filter.clone() };
    assert_eq!(versions(ledger, "r", first).await, []);
    let bounded = VersionsFilter { before: Some(5), from: 3, ..filter.clone() };
    assert_eq!(versions(ledger, "r", bounded).await, made[1..3]);
    let prefixed = VersionsFilter { prefix: "a/".into(), ..filter.clone() };
    let found: Vec<_> =
        versions(ledger, "r", prefixed).await.iter().map(|one| one.version.unwrap_or(0)).collect();
    assert_eq!(found, [5, 3, 1], "of such keys, and what removed all of them");
    let wild = VersionsFilter { prefix: "%".into(), ..filter.clone() };
    assert_eq!(versions(ledger, "r", wild).await.len(), 1, "a prefix is no pattern");
    assert_eq!(versions(ledger, "never", filter).await, []);
}

/// Once each, whatever was refused, replayed or had nothing to delete; in a batch, too.
pub async fn every_write_is_one_event_in_version_order(ledger: &dyn Ledger) {
    assert_eq!(all(ledger).await, []);
    let (ann, bob) = (held(ledger, "a", 10).await, held(ledger, "b", 11).await);
    let once = WriteItem { idempotency: keyed("k", "x"), ..put(&ann, "k", "x") };
    let again = WriteItem { operation: operation_id(), ..once.clone() };
    let stale = WriteItem { token: token(9), ..put(&ann, "k", "stale") };
    let items = [
        once.clone(),
        put(&bob, "k", "1"),
        delete(&bob, "nothing"),
        again,
        stale,
        put(&ann, "k", "2"),
        delete(&bob, "k"),
        put(&ann, "k", "3"),
    ];
    let verdicts = commit(ledger, items).await;
    assert!(verdicts.iter().all(|verdict| !format!("{verdict:?}").contains("Busy")));
    let rerun = WriteItem { attempt: Attempt::Rerun, ..once };
    commit_one(ledger, rerun).await;
    let first = all(ledger).await;
    assert_eq!(in_order(&first), [("a".to_owned(), 3), ("b".into(), 2)]);
    assert_eq!(first.iter().filter(|event| event.operation == verdict_of(&verdicts[0])).count(), 1);
    // What came later has higher numbers, and what was numbered stays.
    apply(ledger, delete_all(&ann)).await;
    let more = all(ledger).await;
    assert_eq!(more[..5], first[..]);
    assert_eq!(in_order(&more), [("a".to_owned(), 4), ("b".into(), 2)]);
    assert_eq!((more[5].kind.as_str(), more[5].owner.as_str()), ("delete_all", "ann"));
}

fn verdict_of(verdict: &fence_core::ports::WriteVerdict) -> fence_core::OperationId {
    applied(verdict.clone()).operation
}

/// How many events each resource has; panics unless their versions are 1, 2, 3 ...
fn in_order(events: &[Applied]) -> Vec<(String, i64)> {
    let mut last = BTreeMap::new();
    for event in events {
        let version = last.entry(event.resource.to_string()).or_insert(0);
        *version += 1;
        assert_eq!(event.version, Some(*version), "{}", event.resource);
    }
    last.into_iter().collect()
}

/// A page goes on where the one before ended, and beyond the last there is nothing.
pub async fn events_are_read_in_pages(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let items: Vec<_> = (0..10).map(|n| put(&ann, "k", &n.to_string())).collect();
    ledger.commit(Arc::from(items), Patience::Skip).await.expect("they are decided");
    let everything = all(ledger).await;
    let (mut place, mut found) = (at(0, 0), Vec::new());
    loop {
        let page = page(ledger, place, 4).await;
        assert_eq!(page.void(place), None);
        let Some((number, _)) = page.events.last() else { break };
        place = at(0, *number);
        assert!(page.events.len() <= 4);
        found.extend(page.events.into_iter().map(|(_, event)| event));
    }
    assert_eq!((place, &found), (at(0, 10), &everything));
    let none = page(ledger, at(0, 3), 0).await;
    assert_eq!((none.events.len(), none.last), (0, at(0, 10)));
    let beyond = page(ledger, at(0, i64::MAX), 10).await;
    assert_eq!((beyond.events.len(), beyond.void(at(0, i64::MAX))), (0, Some(at(0, 0))));
}

/// Earlier cursors are void, and the numbers go on.
pub async fn a_re_fence_voids_the_cursors_before_it(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "1")).await;
    assert_eq!(page(ledger, at(0, 0), 10).await.last, at(0, 1));
    // Not numbered yet when it comes.
    apply(ledger, put(&ann, "k", "2")).await;
    let refence = Refence {
        nonce: Uuid::new_v4(),
        number: 10,
        known_base: 0,
        known_generation: 0,
        why: "a test".into(),
        forced: true,
        seen: None,
    };
    ledger.refence(refence).await.expect("a re-fence");
    let page_of = async |place| page(ledger, place, 10).await;
    let old = page_of(at(0, 1)).await;
    assert_eq!(old.void(at(0, 1)), Some(at(1, 1)));
    let floor = ledger.place(None).await.expect("a place").floor;
    let epoch = ledger.epoch().await.expect("an epoch");
    ledger.open_epoch(epoch.nonce).await.expect("it opens");
    assert!(floor > 10);
    let again = held(ledger, "r", 11).await;
    apply(ledger, put(&again, "k", "3")).await;
    let new = page_of(at(1, 1)).await;
    assert_eq!((new.last, new.void(at(1, 1))), (at(1, 3), None));
    let found: Vec<_> = new.events.iter().map(|(number, one)| (*number, one.version)).collect();
    assert_eq!(found, [(2, Some(2)), (3, Some(3))]);
}
