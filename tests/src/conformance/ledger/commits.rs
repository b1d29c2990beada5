//! Commits of many puts and deletes: all of it or nothing, one version on each resource.

use fence_core::etag::ObjectCondition;
use fence_core::ports::{
    Applied, Attempt, BlobId, By, CommitItem, CommitResource, CommitStep, CommitVerdict, Did,
    Effect, EventCursor, Grant, Ledger, Mark, MarkItem, Patience, VersionsFilter, WriteItem,
};
use fence_core::{Refusal, ResourceName};
use uuid::Uuid;

use super::build::*;
use super::recommits::blob_step;

/// What a commit does to an object of a resource: puts this text, or deletes it.
pub type Deed<'a> = (&'a str, &'a str, Option<&'a str>);

/// A step that does this.
pub fn step((resource, object, text): Deed<'_>) -> CommitStep {
    let effect = match text {
        Some(text) => put_effect(object, text.as_bytes()),
        None => Effect::Delete { key: key(object) },
    };
    CommitStep { resource: name(resource), object_condition: None, effect }
}

/// A commit of these steps under a grant.
pub fn of_steps(grant: &Grant, steps: Vec<CommitStep>) -> CommitItem {
    let mut names: Vec<ResourceName> = steps.iter().map(|step| step.resource.clone()).collect();
    names.sort();
    names.dedup();
    let resources = names.into_iter().map(|resource| CommitResource { resource, version: None });
    CommitItem {
        operation: operation_id(),
        resources: resources.collect(),
        token: grant.token,
        lock: None,
        sequence: None,
        idempotency: None,
        steps: steps.into(),
        attempt: Attempt::First,
        taken_at: jiff::Timestamp::MAX,
        by: By::default(),
    }
}

/// A commit of these puts and deletes under a grant.
pub fn many(grant: &Grant, deeds: &[Deed<'_>]) -> CommitItem {
    of_steps(grant, deeds.iter().map(|deed| step(*deed)).collect())
}

/// The verdict on a commit.
pub async fn decide(ledger: &dyn Ledger, item: &CommitItem) -> CommitVerdict {
    ledger.commit_many(item.clone(), Patience::Skip).await.expect("the commit is decided")
}

/// A commit that takes effect now.
pub async fn committed(ledger: &dyn Ledger, item: &CommitItem) -> Vec<Applied> {
    match decide(ledger, item).await {
        CommitVerdict::Applied { applied, replayed: false } => applied,
        other => panic!("not applied: {other:?}"),
    }
}

/// What a commit is told that this resource refuses.
pub fn refused_on(resource: &str, step: Option<usize>, refusal: Refusal) -> CommitVerdict {
    CommitVerdict::Refused { refusal, resource: name(resource), step }
}

fn demanding(step: CommitStep, condition: ObjectCondition) -> CommitStep {
    CommitStep { object_condition: Some(condition), ..step }
}

/// The same commit, if this resource is at this version.
pub fn demand_version(item: &CommitItem, resource: &str, version: i64) -> CommitItem {
    let demand = |at: &CommitResource| match at.resource.as_str() == resource {
        true => CommitResource { version: Some(version), ..at.clone() },
        false => at.clone(),
    };
    CommitItem { resources: item.resources.iter().map(demand).collect(), ..item.clone() }
}

fn versions(applied: &[Applied]) -> Vec<(&str, Option<i64>)> {
    applied.iter().map(|one| (one.resource.as_str(), one.version)).collect()
}

/// Ann's lock on two resources.
pub async fn both(ledger: &dyn Ledger) -> Grant {
    granted(ledger, seal(["a", "b"], 10)).await
}

/// However many steps; and the next write takes the next one.
pub async fn each_resource_takes_one_version(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let first = [("b", "k", Some("1")), ("a", "k", Some("2")), ("b", "l", Some("3"))];
    let applied = committed(ledger, &many(&ann, &first)).await;
    assert_eq!(versions(&applied), [("a", Some(1)), ("b", Some(1))]);
    assert!(applied.iter().all(|one| one.kind == "commit" && one.key.is_none()));
    assert_eq!(applied[1].did, [Did::Created, Did::Created]);
    assert_eq!((counts(ledger, "a").await, counts(ledger, "b").await), ((1, 1), (1, 2)));
    let second = [("b", "k", None), ("b", "l", Some("4")), ("b", "m", Some("5"))];
    let applied = committed(ledger, &many(&ann, &second)).await;
    assert_eq!(versions(&applied), [("b", Some(2))]);
    assert_eq!(applied[0].did, [Did::Deleted, Did::Replaced, Did::Created]);
    assert_eq!((counts(ledger, "a").await, counts(ledger, "b").await), ((1, 1), (2, 2)));
    for object in ["l", "m"] {
        let found = look(ledger, "b", object).await;
        assert_eq!(found.object.map(|object| object.tag), Some(tag(2)));
    }
    assert_eq!(text(ledger, "b", "k").await, None);
    assert_eq!(text(ledger, "b", "l").await.as_deref(), Some("4"));
    assert_eq!(text(ledger, "a", "k").await.as_deref(), Some("2"));
    assert_eq!(apply(ledger, put(&ann, "k", "plain")).await.version, Some(2));
}

/// A resource of which there was nothing to change takes no version, but has its operation and key.
pub async fn deleting_nothing_takes_no_version(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let item = many(&ann, &[("a", "k", None), ("b", "k", Some("x")), ("b", "none", None)]);
    let item = CommitItem { idempotency: keyed("once", "p"), ..item };
    let applied = committed(ledger, &item).await;
    assert_eq!(versions(&applied), [("a", None), ("b", Some(1))]);
    assert_eq!(applied[0].did, [Did::Nothing]);
    assert_eq!(applied[1].did, [Did::Created, Did::Nothing]);
    assert_eq!(counts(ledger, "a").await, (0, 0));
    for resource in ["a", "b"] {
        let found = ledger.operation_by_key(&name(resource), "once").await.expect("read");
        let found = found.expect("the key is known");
        assert_eq!((found.operation, found.resource), (item.operation, name(resource)));
    }
    apply(ledger, put(&ann, "k", "of the successor")).await;
    let again = CommitItem { operation: operation_id(), ..item };
    assert_eq!(decide(ledger, &again).await, CommitVerdict::Applied { applied, replayed: true });
    assert_eq!(text(ledger, "a", "k").await.as_deref(), Some("of the successor"));
}

/// Whatever refuses it, on whichever resource: nothing changes anywhere.
pub async fn what_is_refused_in_part_is_refused_whole(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    committed(ledger, &many(&ann, &[("a", "k", Some("a")), ("b", "k", Some("b"))])).await;
    let deeds = [("a", "k", Some("x")), ("b", "k", Some("x")), ("b", "l", None)];
    let item = many(&ann, &deeds);
    let with = |step: usize, condition| {
        let mut steps = item.steps.to_vec();
        steps[step] = demanding(steps[step].clone(), condition);
        CommitItem { steps: steps.into(), ..item.clone() }
    };
    let mismatch = || Refusal::VersionMismatch;
    let other = ObjectCondition::OneOf(vec![tag(7)]);
    for (item, verdict) in [
        (with(1, ObjectCondition::Absent), refused_on("b", Some(1), mismatch())),
        (with(1, other), refused_on("b", Some(1), mismatch())),
        (with(2, ObjectCondition::Exists), refused_on("b", Some(2), mismatch())),
        (demand_version(&item, "b", 2), refused_on("b", None, mismatch())),
        (CommitItem { token: token(11), ..item.clone() }, refused_on("a", None, Refusal::Unknown)),
        (
            CommitItem { lock: Some(lock_id()), ..item.clone() },
            refused_on("a", None, Refusal::LockIdMismatch),
        ),
    ] {
        assert_eq!(decide(ledger, &item).await, verdict);
    }
    let blob = BlobId(Uuid::new_v4());
    let mut steps = item.steps.to_vec();
    steps[1] = blob_step("b", "k", blob);
    let expired = CommitItem { steps: steps.into(), ..item.clone() };
    assert_eq!(decide(ledger, &expired).await, CommitVerdict::UploadExpired { step: 1 });
    for resource in ["a", "b"] {
        assert_eq!(counts(ledger, resource).await, (1, 1));
        assert_eq!(text(ledger, resource, "k").await.as_deref(), Some(resource));
    }
    // Not because of anything else.
    committed(ledger, &with(1, ObjectCondition::Exists)).await;
}

/// The first in name order is named, and those before it stay as they are.
pub async fn one_resource_may_refuse_for_all(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let item = many(&ann, &[("a", "k", Some("x")), ("b", "k", Some("x"))]);
    let mark = async |mark: Mark| {
        let (reason, request_id) = ("test".into(), "test".into());
        let item = MarkItem { resource: name("b"), mark, reason, request_id, by: By::default() };
        ledger.mark([item].into(), Patience::Skip).await.expect("marked");
    };
    mark(Mark::Freeze).await;
    assert_eq!(decide(ledger, &item).await, refused_on("b", None, Refusal::Frozen));
    mark(Mark::Unfreeze).await;
    // Taken over by somebody who wants only this one.
    break_named(ledger, &ann, "b").await;
    assert_eq!(decide(ledger, &item).await, refused_on("b", None, Refusal::Broken));
    held(ledger, "b", 20).await;
    let CommitVerdict::Refused { refusal: Refusal::Stale { .. }, resource, step: None } =
        decide(ledger, &item).await
    else {
        panic!("not stale");
    };
    assert_eq!(resource, name("b"));
    assert_eq!((counts(ledger, "a").await, counts(ledger, "b").await), ((0, 0), (0, 0)));
    let nowhere = many(&ann, &[("a", "k", Some("x")), ("nowhere", "k", Some("x"))]);
    assert_eq!(decide(ledger, &nowhere).await, refused_on("nowhere", None, Refusal::Unknown));
    // On the other resource the token is good.
    committed(ledger, &many(&ann, &[("a", "k", Some("x"))])).await;
}

async fn break_named(ledger: &dyn Ledger, grant: &Grant, resource: &str) {
    let of_it = Grant { resources: vec![name(resource)], ..grant.clone() };
    break_one(ledger, &of_it, 0).await;
}

/// One number for all resources: it must rise on each of them, and does.
pub async fn a_sequence_rises_on_each_resource(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    apply(ledger, WriteItem { sequence: Some(5), ..put(&ann, "k", "x") }).await;
    let item = many(&ann, &[("a", "k", None), ("b", "none", None)]);
    let at = |sequence| CommitItem {
        operation: operation_id(),
        sequence: Some(sequence),
        ..item.clone()
    };
    let late = refused_on("a", None, Refusal::SequenceOutOfOrder);
    assert_eq!(decide(ledger, &at(5)).await, late);
    committed(ledger, &at(6)).await;
    // Also where nothing changed.
    let on_b = CommitItem { sequence: Some(6), ..many(&ann, &[("b", "k", Some("x"))]) };
    assert_eq!(decide(ledger, &on_b).await, refused_on("b", None, Refusal::SequenceOutOfOrder));
    committed(ledger, &CommitItem { sequence: Some(7), ..on_b }).await;
}

/// Conditions are about the state before: no step sees another.
pub async fn conditions_are_about_the_state_before(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let steps = vec![
        demanding(step(("a", "new", Some("x"))), ObjectCondition::Absent),
        demanding(step(("b", "new", Some("x"))), ObjectCondition::Absent),
    ];
    let item = demand_version(&demand_version(&of_steps(&ann, steps), "a", 0), "b", 0);
    committed(ledger, &item).await;
    let steps = vec![
        demanding(step(("a", "new", None)), ObjectCondition::OneOf(vec![tag(3), tag(1)])),
        demanding(step(("b", "new", Some("y"))), ObjectCondition::Exists),
    ];
    let item = demand_version(&of_steps(&ann, steps), "b", 1);
    assert_eq!(versions(&committed(ledger, &item).await), [("a", Some(2)), ("b", Some(2))]);
}

/// A version may be demanded of a resource that is not changed; the token must be good there, too.
pub async fn a_version_may_be_demanded_of_another_resource(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let item = many(&ann, &[("b", "k", Some("x"))]);
    let demand = |resource: &str, version| {
        let demand = CommitResource { resource: name(resource), version: Some(version) };
        let mut resources = item.resources.to_vec();
        resources.push(demand);
        resources.sort_by(|one, other| one.resource.cmp(&other.resource));
        CommitItem { operation: operation_id(), resources: resources.into(), ..item.clone() }
    };
    let mismatch = refused_on("a", None, Refusal::VersionMismatch);
    assert_eq!(decide(ledger, &demand("a", 1)).await, mismatch);
    held(ledger, "newer", 11).await;
    let unknown = refused_on("newer", None, Refusal::Unknown);
    assert_eq!(decide(ledger, &demand("newer", 0)).await, unknown);
    let applied = committed(ledger, &demand("a", 0)).await;
    assert_eq!(versions(&applied), [("a", None), ("b", Some(1))]);
}

/// One event and one line of the history for each resource that took a version.
pub async fn each_version_is_an_event(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let deeds = [("a", "k", Some("x")), ("b", "k", None), ("a", "l", Some("x"))];
    committed(ledger, &many(&ann, &deeds)).await;
    let second = many(&ann, &[("b", "k", Some("x")), ("a", "k", None)]);
    let applied = committed(ledger, &second).await;
    let plain = apply(ledger, put(&ann, "p", "x")).await;
    let head = ledger.number_events().await.expect("a step");
    assert_eq!(head.last.number, 4);
    let page = ledger.events(EventCursor { generation: 0, number: 0 }, 10).await.expect("read");
    let mut seen: Vec<_> = page.events.into_iter().map(|(_, event)| event).collect();
    let key_of = |event: &Applied| (event.resource.clone(), event.version);
    seen.sort_by_key(key_of);
    let of_a: Vec<_> = seen.iter().filter(|one| one.resource.as_str() == "a").collect();
    assert_eq!(seen.len(), 4);
    assert_eq!(of_a[1..], [&applied[0], &plain]);
    assert_eq!(seen[3], applied[1]);
    let filter = VersionsFilter { prefix: "zz".into(), before: None, from: 0, limit: 10 };
    let history = ledger.versions(&name("a"), filter).await.expect("read");
    let kinds: Vec<_> = history.iter().map(|one| (one.kind.as_str(), one.version)).collect();
    assert_eq!(kinds, [("commit", Some(2)), ("commit", Some(1))], "commits are in every prefix");
}

/// Objects that a commit wrote are read at its version, on a ledger that keeps replaced versions.
pub async fn versions_of_a_commit_stay_readable(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    committed(ledger, &many(&ann, &[("a", "k", Some("1")), ("a", "l", Some("1"))])).await;
    committed(ledger, &many(&ann, &[("a", "k", Some("2")), ("a", "l", None)])).await;
    apply(ledger, put(&ann, "k", "3")).await;
    for (object, version, wanted) in
        [("k", 1, Some("1")), ("l", 1, Some("1")), ("k", 2, Some("2")), ("l", 2, None)]
    {
        let found = look_at(ledger, "a", object, Some(version)).await.object;
        let found = found.map(|object| String::from_utf8(body(&object).to_vec()).expect("text"));
        assert_eq!(found.as_deref(), wanted, "{object} at {version}");
    }
}

/// As large as a commit may be.
pub async fn a_thousand_steps_take_one_version(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let names: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    let deeds: Vec<Deed<'_>> = names
        .iter()
        .flat_map(|object| [("a", object.as_str(), Some("x")), ("b", object.as_str(), Some("y"))])
        .collect();
    let applied = committed(ledger, &many(&ann, &deeds)).await;
    assert_eq!(versions(&applied), [("a", Some(1)), ("b", Some(1))]);
    assert_eq!((counts(ledger, "a").await, counts(ledger, "b").await), ((1, 500), (1, 500)));
    let deletes: Vec<Deed<'_>> = names.iter().map(|object| ("b", object.as_str(), None)).collect();
    committed(ledger, &many(&ann, &deletes)).await;
    assert_eq!((counts(ledger, "a").await, counts(ledger, "b").await), ((1, 500), (2, 0)));
}

/// A commit covers what one lock covers: the token of one is unknown where another was granted.
pub async fn resources_of_different_locks_take_no_commit(ledger: &dyn Ledger) {
    let (ann, bob) = (held(ledger, "a", 10).await, held(ledger, "b", 11).await);
    let item = many(&ann, &[("a", "k", Some("x")), ("b", "k", Some("x"))]);
    let unknown = refused_on("b", None, Refusal::Unknown);
    assert_eq!(decide(ledger, &item).await, unknown);
    let known = CommitItem { lock: Some(ann.lock), ..item.clone() };
    assert_eq!(decide(ledger, &known).await, unknown);
    let other = CommitItem { lock: Some(bob.lock), ..item.clone() };
    assert_eq!(decide(ledger, &other).await, refused_on("a", None, Refusal::LockIdMismatch));
    // A resource that the commit only demands a version of counts as well.
    let only = many(&ann, &[("b", "k", Some("x"))]);
    let resources = item.resources.clone();
    assert_eq!(decide(ledger, &CommitItem { resources, ..only }).await, unknown);
    assert_eq!((counts(ledger, "a").await, counts(ledger, "b").await), ((0, 0), (0, 0)));
    committed(ledger, &many(&bob, &[("b", "k", Some("x"))])).await;
}
