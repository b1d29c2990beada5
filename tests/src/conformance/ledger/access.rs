//! Whose a token is, and under which rules something was allowed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    Attempt, AuditAction, AuditEntry, AuditFilter, BreakVerdict, By, CommitVerdict, Credential,
    IntentItem, IntentVerdict, JoinItem, JoinVerdict, Ledger, LedgerError, Mark, MarkVerdict,
    Patience, ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict, Resolution, RulesChange,
    RulesChanged, RulesInForce, SealItem, SealKind, SealVerdict, Stock, UploadItem, UploadVerdict,
    WriteItem, WriteVerdict,
};
use fence_core::{LockId, LockState, Refusal, Ttl, WriterName};
use jiff::Timestamp;

use super::build::*;
use super::commits::many;
use super::drains::{intent, open};
use super::marks;
use crate::conformance::pause;

const SKIP: Patience = Patience::Skip;

fn of(principal: &str, item: SealItem) -> SealItem {
    SealItem { by: by(principal), principal: Some(principal_name(principal)), ..item }
}

fn written_by(by: By, item: WriteItem) -> WriteItem {
    WriteItem { by, ..item }
}

async fn renewed(ledger: &dyn Ledger, lock: LockId, by: By) -> RenewVerdict {
    let items = Arc::from([RenewItem { lock, ttl: None, by }]);
    only(ledger.renew(items, SKIP).await.expect("the renewal is decided"))
}

async fn released(ledger: &dyn Ledger, lock: LockId, by: By) -> ReleaseVerdict {
    let items = Arc::from([ReleaseItem { by, ..lock.into() }]);
    only(ledger.release(items, SKIP).await.expect("the release is decided"))
}

async fn apply_rules(ledger: &dyn Ledger, text: &str) -> i64 {
    match ledger.apply_rules(rules_change(text)).await.expect("applied") {
        RulesChanged::InForce(generation) => generation,
        other => panic!("{other:?}"),
    }
}

/// The right token and the right id, in the hands of somebody else, are good for nothing (I16).
pub async fn a_token_is_unknown_to_everybody_else(ledger: &dyn Ledger) {
    let ann = granted(ledger, of("ann", seal(["r"], 10))).await;
    assert_eq!(ann.principal, Some(principal_name("ann")));
    let roles = By::of(principal_name("bob"), ["ann".into()]);
    for other in [by("bob"), roles, By::default()] {
        for item in [put(&ann, "k", "x"), delete(&ann, "k"), delete_all(&ann)] {
            let item = WriteItem { lock: Some(ann.lock), ..written_by(other.clone(), item) };
            assert_eq!(refusal(ledger, item).await, Refusal::Foreign, "a write");
        }
        let item = many(&ann, &[("r", "k", Some("x"))]);
        let item = fence_core::ports::CommitItem { by: other.clone(), ..item };
        let verdict = ledger.commit_many(item, SKIP).await.expect("decided");
        let is_foreign = |it: &CommitVerdict| {
            matches!(it, CommitVerdict::Refused { refusal: Refusal::Foreign, .. })
        };
        assert!(is_foreign(&verdict), "{verdict:?}");
        let item = IntentItem { by: other.clone(), ..intent("r", 10) };
        assert_eq!(open(ledger, item).await, IntentVerdict::Refused(Refusal::Foreign), "an intent");
        let upload = UploadItem {
            blob: None,
            resource: name("r"),
            token: ann.token,
            lock: Some(ann.lock),
            key: None,
            by: other.clone(),
        };
        let begun = ledger.begin_upload(upload).await.expect("decided");
        assert_eq!(begun, UploadVerdict::Refused(Refusal::Foreign), "an upload");
        let renewal = renewed(ledger, ann.lock, other.clone()).await;
        assert_eq!(renewal, RenewVerdict::NotFound, "a renewal");
        assert_eq!(released(ledger, ann.lock, other).await, ReleaseVerdict::NotFound, "a release");
    }
    apply(ledger, written_by(by("ann"), put(&ann, "k", "a"))).await;
    assert!(matches!(renewed(ledger, ann.lock, by("ann")).await, RenewVerdict::Renewed { .. }));
    let gone = released(ledger, ann.lock, by("ann")).await;
    assert!(matches!(gone, ReleaseVerdict::Released { .. }), "{gone:?}");
}

/// What became of a lock is told to those whose it was; of a superseded one the others do not learn that it was one.
pub async fn a_token_that_is_over_is_unknown_to_everybody_else(ledger: &dyn Ledger) {
    let writers = vec![WriterName::new("dora").expect("a name")];
    let ann = granted(ledger, SealItem { writers, ..of("ann", seal(["r"], 10)) }).await;
    released(ledger, ann.lock, by("ann")).await;
    for (who, expected) in
        [("ann", Refusal::Released), ("dora", Refusal::Released), ("bob", Refusal::Foreign)]
    {
        assert_eq!(
            refusal(ledger, written_by(by(who), put(&ann, "k", "x"))).await,
            expected,
            "{who}"
        );
    }
    granted(ledger, of("bob", seal(["r"], 20))).await;
    for who in ["ann", "dora"] {
        let late = refusal(ledger, written_by(by(who), put(&ann, "k", "x"))).await;
        assert!(matches!(late, Refusal::Stale { grants_behind: Some(1), .. }), "{who}: {late:?}");
    }
    for who in ["bob", "eve"] {
        let late = refusal(ledger, written_by(by(who), put(&ann, "k", "x"))).await;
        assert_eq!(late, Refusal::Foreign, "{who}");
    }
    let upload = |who: &str| UploadItem {
        blob: None,
        resource: name("r"),
        token: ann.token,
        lock: None,
        key: None,
        by: by(who),
    };
    let foreign = ledger.begin_upload(upload("eve")).await.expect("decided");
    assert_eq!(foreign, UploadVerdict::Refused(Refusal::Foreign));
    let stale = ledger.begin_upload(upload("dora")).await.expect("decided");
    assert!(matches!(stale, UploadVerdict::Refused(Refusal::Stale { .. })), "{stale:?}");
}

/// Writers write under the token, by name or by role; nothing else of the lock is theirs.
pub async fn writers_write_and_do_nothing_else(ledger: &dyn Ledger) {
    let writers: Vec<_> =
        ["dora", "role:loader"].iter().map(|name| WriterName::new(name).expect("a name")).collect();
    let item = SealItem { writers: writers.clone(), ..of("ann", seal(["r"], 10)) };
    let ann = granted(ledger, item.clone()).await;
    assert_eq!(ann.writers, writers);
    let record = ledger.lock(ann.lock).await.expect("read").expect("known").grant;
    assert_eq!((record.principal, record.writers), (ann.principal.clone(), writers.clone()));
    // The same call again: they are those of the call that was granted.
    let SealVerdict::Again(again) =
        seal_one(ledger, SealItem { number: None, writers: Vec::new(), ..item }).await
    else {
        panic!("another lock")
    };
    assert_eq!(again.writers, writers);
    let loader = By::of(principal_name("carl"), ["reader".into(), "loader".into()]);
    for (number, writer) in (1..).zip([by("ann"), by("dora"), loader.clone()]) {
        let put = written_by(writer, put(&ann, "k", &number.to_string()));
        assert_eq!(apply(ledger, put).await.version, Some(number));
    }
    // A role of that name is no principal of that name.
    for other in [by("loader"), By::of(principal_name("carl"), ["dora".into()])] {
        assert_eq!(refusal(ledger, written_by(other, put(&ann, "k", "x"))).await, Refusal::Foreign);
    }
    for writer in [by("dora"), loader] {
        assert_eq!(renewed(ledger, ann.lock, writer.clone()).await, RenewVerdict::NotFound);
        assert_eq!(released(ledger, ann.lock, writer.clone()).await, ReleaseVerdict::NotFound);
        let kind = SealKind::Transfer { from: ann.lock };
        let item = SealItem {
            kind,
            principal: writer.principal().cloned(),
            by: writer,
            ..seal(["r"], 20)
        };
        assert_eq!(seal_one(ledger, item).await, SealVerdict::NotFound);
    }
    let RenewVerdict::Renewed { grant, .. } = renewed(ledger, ann.lock, by("ann")).await else {
        panic!("not renewed")
    };
    assert_eq!(grant.writers, writers);
}

/// An id is that of its principal: to others it is in use, and no more.
pub async fn an_id_is_of_its_principal(ledger: &dyn Ledger) {
    let item = of("ann", seal(["r"], 10));
    let ann = granted(ledger, item.clone()).await;
    for number in [None, Some(20)] {
        let taken = SealItem { number, ..of("bob", item.clone()) };
        assert_eq!(seal_one(ledger, taken).await, SealVerdict::Conflict);
    }
    let waiter = JoinItem { by: by("ann"), ..join(["r"]) };
    assert_eq!(join_one(ledger, waiter.clone()).await, JoinVerdict::Waiting);
    let taken = JoinItem { by: by("bob"), ..waiter.clone() };
    assert_eq!(join_one(ledger, taken).await, JoinVerdict::Conflict);
    assert_eq!(released(ledger, waiter.lock, by("bob")).await, ReleaseVerdict::NotFound);
    assert_eq!(ledger.position(waiter.lock, None).await.expect("read"), None);
    let ann_s = principal_name("ann");
    assert_eq!(ledger.position(waiter.lock, Some(&ann_s)).await.expect("read"), Some(1));
    // Once it has ended, the id is as little somebody else's.
    released(ledger, ann.lock, by("ann")).await;
    assert_eq!(seal_one(ledger, of("bob", item.clone())).await, SealVerdict::Conflict);
    let turn = turn(&waiter, 20);
    assert_eq!(seal_one(ledger, of("bob", turn.clone())).await, SealVerdict::Conflict);
    granted(ledger, of("ann", turn)).await;
}

/// A lock that is handed over is that of whoever it was handed to.
pub async fn a_transfer_is_to_a_principal(ledger: &dyn Ledger) {
    let ann = granted(ledger, of("ann", seal(["r"], 10))).await;
    let kind = SealKind::Transfer { from: ann.lock };
    let to_bob =
        SealItem { kind, by: by("ann"), principal: Some(principal_name("bob")), ..seal(["r"], 20) };
    let bob = granted(ledger, to_bob).await;
    assert_eq!(bob.principal, Some(principal_name("bob")));
    assert_eq!(refusal(ledger, written_by(by("ann"), put(&bob, "k", "x"))).await, Refusal::Foreign);
    apply(ledger, written_by(by("bob"), put(&bob, "k", "b"))).await;
    assert_eq!(renewed(ledger, bob.lock, by("ann")).await, RenewVerdict::NotFound);
}

/// Each that takes a lock or renews it makes it its own; what is handed over belongs to none until its holder renews it.
pub async fn a_lock_belongs_to_the_credential_that_was_shown_last(ledger: &dyn Ledger) {
    let shows = |who: &str, name: &str, ends: Option<i64>| {
        let ends = ends.map(|at| Timestamp::from_second(at).expect("a time"));
        by(who).showing(Credential { name: name.into(), ends })
    };
    let belongs = async |lock: LockId| {
        let record = ledger.lock(lock).await.expect("read").expect("known");
        record.credential.map(|it| (it.name, it.ends.map(Timestamp::as_second)))
    };
    let is = |name: &str, ends: Option<i64>| Some((name.to_owned(), ends));
    let item = SealItem { by: shows("ann", "key:a1", None), ..of("ann", seal(["a", "b"], 10)) };
    let ann = granted(ledger, item.clone()).await;
    assert_eq!(belongs(ann.lock).await, is("key:a1", None));
    for resource in ["a", "b"] {
        let view = ledger.resource(&name(resource)).await.expect("read").expect("locked");
        assert_eq!(view.lock, ann.lock);
    }
    renewed(ledger, ann.lock, shows("ann", "jti:k8s#1", Some(2_000_000_000))).await;
    assert_eq!(belongs(ann.lock).await, is("jti:k8s#1", Some(2_000_000_000)));
    // The same credential, with another end.
    renewed(ledger, ann.lock, shows("ann", "jti:k8s#1", Some(2_000_000_001))).await;
    assert_eq!(belongs(ann.lock).await, is("jti:k8s#1", Some(2_000_000_001)));
    // The gateway itself has none to show.
    renewed(ledger, ann.lock, by("ann")).await;
    assert_eq!(belongs(ann.lock).await, is("jti:k8s#1", Some(2_000_000_001)));
    let again = SealItem { by: shows("ann", "key:a2", None), number: None, ..item };
    assert!(matches!(seal_one(ledger, again).await, SealVerdict::Again(_)));
    assert_eq!(belongs(ann.lock).await, is("key:a2", None));
    let to_bob = SealItem {
        kind: SealKind::Transfer { from: ann.lock },
        by: shows("ann", "key:a2", None),
        principal: Some(principal_name("bob")),
        ..seal(["a", "b"], 20)
    };
    let bob = granted(ledger, to_bob).await;
    assert_eq!(belongs(bob.lock).await, None);
    assert_eq!(belongs(ann.lock).await, is("key:a2", None), "also once it has ended");
    renewed(ledger, bob.lock, shows("bob", "key:b1", None)).await;
    assert_eq!(belongs(bob.lock).await, is("key:b1", None));
}

/// Whoever handed a lock over is told of it again. Others are not, although they name its id and its principal: not even
/// one whose own lock it superseded.
pub async fn a_transfer_is_repeated_by_whoever_made_it(ledger: &dyn Ledger) {
    let to_bob = |from: LockId, by: By, number: Option<i64>| SealItem {
        kind: SealKind::Transfer { from },
        by,
        principal: Some(principal_name("bob")),
        number,
        ..seal(["r"], 0)
    };
    let ann = granted(ledger, of("ann", seal(["r"], 10))).await;
    let given = to_bob(ann.lock, by("ann"), Some(20));
    let bob = granted(ledger, given.clone()).await;
    let again = SealItem { number: None, ..given.clone() };
    let SealVerdict::Again(told) = seal_one(ledger, again.clone()).await else {
        panic!("it is not told again")
    };
    assert_eq!((told.lock, told.token), (bob.lock, bob.token));
    let by_eve = SealItem { by: by("eve"), ..again.clone() };
    assert_eq!(seal_one(ledger, by_eve).await, SealVerdict::Conflict, "by somebody else");

    // Carl's lock lapses, and bob takes the resource: nobody handed it over.
    let lapsing = SealItem { ttl: Some(Ttl::from_ms(0)), ..seal(["q"], 30) };
    let carl = granted(ledger, of("carl", lapsing)).await;
    let bobs = of("bob", seal(["q"], 40));
    granted(ledger, bobs.clone()).await;
    for attempt in [Attempt::First, Attempt::Rerun] {
        let item = SealItem {
            kind: SealKind::Transfer { from: carl.lock },
            by: by("carl"),
            number: None,
            attempt,
            ..bobs.clone()
        };
        assert_eq!(seal_one(ledger, item).await, SealVerdict::Conflict, "what superseded a lock");
    }
}

/// What was allowed under other rules than those in force decides nothing (I17).
pub async fn nothing_is_decided_under_older_rules(ledger: &dyn Ledger) {
    let none = RulesInForce { generation: 0, text: None };
    assert_eq!(ledger.rules().await.expect("read"), none);
    let ann = granted(ledger, SealItem { by: under("ann", 0), ..of("ann", seal(["r"], 10)) }).await;
    apply(ledger, written_by(under("ann", 0), put(&ann, "k", "a"))).await;
    assert_eq!(apply_rules(ledger, "one").await, 1);
    let one = RulesInForce { generation: 1, text: Some("one".into()) };
    assert_eq!(ledger.rules().await.expect("read"), one);
    assert_eq!(ledger.rules_generation().await.expect("read"), 1);

    for old in [under("ann", 0), under("ann", 2)] {
        let item = SealItem { by: old.clone(), ..of("ann", seal(["q"], 20)) };
        assert_eq!(seal_one(ledger, item.clone()).await, SealVerdict::RulesMoved, "a seal");
        let rerun = SealItem { attempt: Attempt::Rerun, ..item.clone() };
        assert_eq!(seal_one(ledger, rerun).await, SealVerdict::RulesMoved);
        let renewal = renewed(ledger, ann.lock, old.clone()).await;
        assert_eq!(renewal, RenewVerdict::RulesMoved, "a renewal");
        let release = released(ledger, ann.lock, old.clone()).await;
        assert_eq!(release, ReleaseVerdict::RulesMoved, "a release");
        let waiter = JoinItem { by: old.clone(), ..join(["r"]) };
        assert_eq!(join_one(ledger, waiter).await, JoinVerdict::RulesMoved, "a waiter");
        let plain = written_by(old.clone(), put(&ann, "k", "x"));
        for attempt in [Attempt::First, Attempt::Rerun] {
            let item = WriteItem { attempt, ..plain.clone() };
            assert_eq!(commit_one(ledger, item).await, WriteVerdict::RulesMoved, "a write");
        }
        // Not decided, so not buried: allowed anew it takes effect.
        let allowed = WriteItem { attempt: Attempt::Rerun, by: under("ann", 1), ..plain };
        apply(ledger, allowed).await;
        let item = fence_core::ports::CommitItem {
            by: old.clone(),
            ..many(&ann, &[("r", "k", Some("x"))])
        };
        let verdict = ledger.commit_many(item, SKIP).await.expect("decided");
        assert_eq!(verdict, CommitVerdict::RulesMoved, "a commit");
        let item = IntentItem { by: old.clone(), ..intent("r", 10) };
        assert_eq!(open(ledger, item).await, IntentVerdict::RulesMoved, "an intent");
        let resolution =
            || Resolution { reason: "seen".into(), request_id: "r".into(), by: old.clone() };
        let resolved = ledger.resolve_intent(operation_id(), resolution()).await;
        assert_eq!(resolved, Err(LedgerError::RulesMoved), "a resolution");
        let resolved = ledger.resolve_doubts("u", resolution()).await;
        assert_eq!(resolved, Err(LedgerError::RulesMoved), "doubts");
        let mark = fence_core::ports::MarkItem {
            by: old.clone(),
            ..marks::item("r", Mark::Freeze, "fire")
        };
        let marked = ledger.mark(Arc::from([mark]), SKIP).await.expect("decided");
        assert_eq!(marked, [MarkVerdict::RulesMoved], "a mark");
        let item = fence_core::ports::BreakItem {
            resource: name("r"),
            token: ann.token,
            after: std::time::Duration::ZERO,
            reason: "stuck".into(),
            request_id: "r".into(),
            by: old,
        };
        let broken = ledger.break_locks(Arc::from([item]), SKIP).await.expect("decided");
        assert_eq!(broken, [BreakVerdict::RulesMoved], "a break");
    }
    // What became of a write that was sent before may be asked under any rules.
    let done = written_by(under("ann", 1), put(&ann, "k", "y"));
    let version = apply(ledger, done.clone()).await.version;
    let asked = WriteItem { attempt: Attempt::Bury, by: under("ann", 0), ..done };
    assert_eq!(apply(ledger, asked).await.version, version);
    let never = WriteItem { attempt: Attempt::Bury, by: under("ann", 0), ..put(&ann, "k", "z") };
    assert_eq!(commit_one(ledger, never.clone()).await, WriteVerdict::Buried);
    let late = WriteItem { attempt: Attempt::Rerun, by: under("ann", 1), ..never };
    assert_eq!(commit_one(ledger, late).await, WriteVerdict::Buried);
    let end = released(ledger, ann.lock, under("ann", 1)).await;
    assert!(matches!(end, ReleaseVerdict::Released { .. }), "{end:?}");
}

/// A break that has come due was allowed in its time: whoever is refused for older rules stores it all the same, so that
/// all ledgers record it at the same moment.
pub async fn what_older_rules_forbid_stores_a_due_break(ledger: &dyn Ledger) {
    apply_rules(ledger, "one").await;
    for (number, resource) in [(10, "marked"), (11, "broken"), (12, "forwarded")] {
        let ann = held(ledger, resource, number).await;
        break_one(ledger, &ann, 1).await;
        pause(20).await;
        let shown = async || ledger.resource(&name(resource)).await.expect("read").expect("locked");
        assert_eq!(shown().await.state, LockState::Breaking, "nobody has stored it yet");
        match resource {
            "marked" => {
                let mark = marks::item(resource, Mark::Freeze, "fire");
                let mark = fence_core::ports::MarkItem { by: under("ann", 0), ..mark };
                let marked = ledger.mark(Arc::from([mark]), SKIP).await.expect("decided");
                assert_eq!(marked, [MarkVerdict::RulesMoved]);
            }
            "broken" => {
                let item = fence_core::ports::BreakItem {
                    resource: name(resource),
                    token: ann.token,
                    after: Duration::ZERO,
                    reason: "stuck".into(),
                    request_id: "r".into(),
                    by: under("ann", 0),
                };
                let broken = ledger.break_locks(Arc::from([item]), SKIP).await.expect("decided");
                assert_eq!(broken, [BreakVerdict::RulesMoved]);
            }
            _ => {
                let item = IntentItem { by: under("ann", 0), ..intent(resource, number) };
                assert_eq!(open(ledger, item).await, IntentVerdict::RulesMoved);
            }
        }
        assert_eq!(shown().await.state, LockState::Broken, "{resource}");
    }
}

/// What became of a seal may be asked under any rules, so that gives nobody a lock back that has lapsed.
pub async fn a_burial_gives_nobody_a_lock_back(ledger: &dyn Ledger) {
    let item =
        SealItem { by: under("ann", 0), ttl: Some(Ttl::from_ms(0)), ..of("ann", seal(["r"], 10)) };
    let ann = granted(ledger, item.clone()).await;
    apply_rules(ledger, "one").await;
    let asked = SealItem { attempt: Attempt::Bury, ttl: Some(long()), ..item };
    let SealVerdict::Again(told) = seal_one(ledger, asked).await else { panic!("it is not found") };
    assert!(told.lock == ann.lock && told.remaining_ms <= 0, "the lock is held again: {told:?}");
    let bob = SealItem { by: under("bob", 1), ..of("bob", seal(["r"], 20)) };
    granted(ledger, bob).await;
}

/// Of a batch those alone are held back whose rules have moved.
pub async fn each_of_a_batch_is_held_to_its_own_rules(ledger: &dyn Ledger) {
    let ann = granted(ledger, of("ann", seal(["r"], 10))).await;
    apply_rules(ledger, "one").await;
    let write = |rules, text| written_by(under("ann", rules), put(&ann, "k", text));
    let [first, second, third] =
        commit(ledger, [write(1, "a"), write(0, "b"), write(1, "c")]).await;
    assert!(matches!(first, WriteVerdict::Applied { .. }), "{first:?}");
    assert_eq!(second, WriteVerdict::RulesMoved);
    assert!(matches!(third, WriteVerdict::Applied { .. }), "{third:?}");
    let lock = |resource, rules, number| SealItem {
        by: under("bob", rules),
        ..of("bob", seal([resource], number))
    };
    let items = [lock("a", 0, 20), lock("b", 1, 30)];
    let verdicts = ledger.seal(0, Arc::from(items), SKIP).await.expect("decided");
    assert_eq!(verdicts[0], SealVerdict::RulesMoved);
    assert!(matches!(verdicts[1], SealVerdict::Sealed(..)), "{:?}", verdicts[1]);
}

/// Rules follow those that were meant, or nothing changes; what was changed is on record.
pub async fn rules_follow_those_that_were_meant(ledger: &dyn Ledger) {
    let change = |follows, text: &str| RulesChange {
        follows,
        applied_by: Some(principal_name("root")),
        ..rules_change(text)
    };
    let apply = async |change| ledger.apply_rules(change).await.expect("decided");
    assert_eq!(apply(change(Some(0), "one")).await, RulesChanged::InForce(1));
    assert_eq!(apply(change(Some(0), "two")).await, RulesChanged::Overtaken(1));
    assert_eq!(ledger.rules().await.expect("read").text.as_deref(), Some("one"));
    assert_eq!(apply(change(None, "two")).await, RulesChanged::InForce(2));
    assert_eq!(ledger.rules().await.expect("read").text.as_deref(), Some("two"));
    let filter = AuditFilter {
        resource: None,
        action: Some(AuditAction::Access),
        before: None,
        between: None,
        limit: 10,
    };
    let entries = ledger.audit(filter).await.expect("read");
    let seen: Vec<_> = entries
        .iter()
        .map(|(_, entry)| {
            (entry.owner.as_deref(), entry.reason.as_deref(), entry.request_id.as_deref())
        })
        .collect();
    assert_eq!(seen, [(Some("root"), Some("test"), Some("test-request")); 2]);
}

/// Who was refused is on record, with all that is known of it.
pub async fn who_was_refused_is_on_record(ledger: &dyn Ledger) {
    let at = jiff::Timestamp::from_second(1_000_000).expect("a time");
    let denied = AuditEntry {
        owner: Some("ann".into()),
        request_id: Some("r1".into()),
        asked: Some(r#"{"principal":"ann"}"#.into()),
        ..AuditEntry::because(AuditAction::Denied, at, "ann may not write r")
    };
    let unknown = AuditEntry::because(AuditAction::AuthFailed, at, "nobody's");
    ledger.record_refused(Arc::from([denied.clone(), unknown.clone()])).await.expect("recorded");
    for expected in [denied, unknown] {
        let action = Some(expected.action);
        let filter = AuditFilter { resource: None, action, before: None, between: None, limit: 10 };
        let (_, found) = only(ledger.audit(filter).await.expect("read"));
        assert_eq!(AuditEntry { at, ..found }, expected);
    }
}

/// Waits until these have so much: locks, resources, keys, bytes.
async fn have(ledger: &dyn Ledger, expected: &[(&str, [i64; 4])]) {
    let names: Vec<_> = ["ann", "bob", "dora"].map(principal_name).into();
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|(name, [locks, resources, keys, bytes])| {
            let (locks, resources, keys, bytes) = (*locks, *resources, *keys, *bytes);
            (principal_name(name), Stock { locks, resources, keys, bytes })
        })
        .collect();
    let mut found = BTreeMap::new();
    for _ in 0..100 {
        found = ledger.stocks(&names).await.expect("counted");
        if found == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(found, expected);
}

/// Locks count while they are in force, resources for who was the first to lock them, objects for who put what is there.
pub async fn what_principals_have_is_counted(ledger: &dyn Ledger) {
    have(ledger, &[]).await;
    let writers = vec![WriterName::new("dora").expect("a name")];
    let ann = granted(ledger, SealItem { writers, ..of("ann", seal(["r"], 10)) }).await;
    for (key, text) in [("k", "hello"), ("l", "xyz"), ("k", "hi")] {
        apply(ledger, written_by(by("ann"), put(&ann, key, text))).await;
    }
    have(ledger, &[("ann", [1, 1, 2, 5])]).await;
    // In one batch, and again the same object.
    let both = ["12345", "123456"].map(|text| written_by(by("dora"), put(&ann, "l", text)));
    commit(ledger, both).await;
    have(ledger, &[("ann", [1, 1, 1, 2]), ("dora", [0, 0, 1, 6])]).await;
    let item = many(&ann, &[("r", "k", None), ("r", "m", Some("abc")), ("r", "n", Some(""))]);
    let item = fence_core::ports::CommitItem { by: by("ann"), ..item };
    let verdict = ledger.commit_many(item, SKIP).await.expect("decided");
    assert!(matches!(verdict, CommitVerdict::Applied { .. }), "{verdict:?}");
    let bob = granted(ledger, of("bob", seal(["s", "t"], 20))).await;
    let ours = [("ann", [1, 1, 2, 3]), ("dora", [0, 0, 1, 6])];
    have(ledger, &[ours[0], ours[1], ("bob", [1, 2, 0, 0])]).await;
    // Who is second to lock a resource has a lock, and no resource more. Whoever is nobody has nothing.
    released(ledger, bob.lock, by("bob")).await;
    let nobodys = granted(ledger, seal(["s", "u"], 30)).await;
    apply(ledger, put(&nobodys, "k", "x")).await;
    let next = granted(ledger, of("ann", seal(["t"], 40))).await;
    have(ledger, &[("ann", [2, 1, 2, 3]), ours[1], ("bob", [0, 2, 0, 0])]).await;
    break_one(ledger, &next, 0).await;
    apply(ledger, written_by(by("ann"), delete_all(&ann))).await;
    have(ledger, &[("ann", [1, 1, 0, 0]), ("bob", [0, 2, 0, 0])]).await;
}
