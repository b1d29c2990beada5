//! The audit: what each act leaves in it, and that nothing changes it.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    Asked, AuditAction, AuditEntry, AuditFilter, BreakItem, Credential, Grant, GrantEntry, Ledger,
    Mark, Patience, ReleaseItem, Request, Retention, SealItem, SealKind, SealVerdict,
};
use fence_core::{GrantEnd, WriterName};

use jiff::Timestamp;

use super::build::*;
use super::marks::mark_one;
use crate::conformance::{Operator, pause};

/// The entries that this filter finds, newest first.
async fn found(ledger: &dyn Ledger, filter: AuditFilter) -> Vec<(i64, AuditEntry)> {
    ledger.audit(filter).await.expect("the audit is read")
}

fn all() -> AuditFilter {
    AuditFilter { limit: 1000, ..AuditFilter::default() }
}

/// What happened, oldest first, in a few words: action, resource, owner, owner before, token.
async fn story(ledger: &dyn Ledger) -> Vec<String> {
    let mut entries = found(ledger, all()).await;
    entries.reverse();
    let words = |(_, entry): &(i64, AuditEntry)| {
        let or_none = |text: &Option<String>| text.clone().unwrap_or("-".into());
        let resource = entry.resource.as_ref().map(ToString::to_string);
        let token = entry.token.map(|token| token.to_string());
        format!(
            "{} {} {} {} {}",
            entry.action.as_str(),
            or_none(&resource),
            or_none(&entry.owner),
            or_none(&entry.previous_owner),
            or_none(&token),
        )
    };
    entries.iter().map(words).collect()
}

/// Whose, and whom it put an end to: an expired lock and one that handed over, but none that had been
/// released or broken. What is refused, or known already, leaves nothing.
pub async fn grants_are_audited(ledger: &dyn Ledger) {
    expired(ledger, "r", 10).await;
    let bob = granted(ledger, SealItem { owner: "bob".into(), ..seal(["r"], 20) }).await;
    let transfer = SealItem {
        kind: SealKind::Transfer { from: bob.lock },
        owner: "carl".into(),
        ..seal(["r"], 30)
    };
    let carl = granted(ledger, transfer.clone()).await;
    assert!(matches!(seal_one(ledger, transfer).await, SealVerdict::Again(_)));
    assert!(matches!(seal_one(ledger, seal(["r"], 40)).await, SealVerdict::Held(_)));
    release_one(ledger, carl.lock).await;
    assert_eq!(seal_one(ledger, seal(["r"], 30)).await, SealVerdict::NumberTooLow);
    let broken = held(ledger, "r", 40).await;
    break_one(ledger, &broken, 0).await;
    held(ledger, "r", 50).await;
    assert_eq!(
        story(ledger).await,
        [
            "grant r ann - 10",
            "grant r bob ann 20",
            "transfer r carl bob 30",
            "grant r ann - 40",
            "break r ann - 40",
            "grant r ann - 50",
        ]
    );
}

/// Ends of the grants on this resource but the newest, oldest first; each time is that of the act.
async fn ends(ledger: &dyn Ledger, resource: &str) -> Vec<Option<GrantEnd>> {
    let mut grants = found(ledger, AuditFilter { resource: Some(name(resource)), ..all() }).await;
    grants.retain(|(_, entry)| entry.action.is_of_grant());
    grants.reverse();
    let first = grants.first().map(|(_, entry)| (entry.previous_end, entry.previous_ended_at));
    assert_eq!(first, Some((None, None)), "there was none before the first");
    let end = |pair: &[(i64, AuditEntry)]| {
        let [(_, grant), (_, next)] = pair else { panic!("a pair") };
        let at = next.previous_ended_at;
        match next.previous_end {
            Some(GrantEnd::Released | GrantEnd::Broken) => {
                assert!(at.is_some_and(|at| grant.at <= at && at <= next.at), "{pair:?}");
            }
            Some(GrantEnd::Void) => assert_eq!(at, None, "{pair:?}"),
            _ => assert_eq!(at, Some(next.at), "{pair:?}"),
        }
        next.previous_end
    };
    grants.windows(2).map(end).collect()
}

async fn ended_at(ledger: &dyn Ledger, resource: &str) -> Option<Timestamp> {
    ledger.resource(&name(resource)).await.expect("read").expect("locked once").ended_at
}

/// The act that ends a grant records how and when; while the lock may still come back nothing says that it has ended.
pub async fn how_a_grant_ended_is_recorded(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    assert_eq!(ended_at(ledger, "r").await, None);
    release_one(ledger, ann.lock).await;
    let released_at = ended_at(ledger, "r").await;
    let bob = held(ledger, "r", 20).await;
    assert_eq!(ended_at(ledger, "r").await, None);
    break_one(ledger, &bob, 0).await;
    let broken_at = ended_at(ledger, "r").await;
    let carl = held(ledger, "r", 30).await;
    break_one(ledger, &carl, 20).await;
    assert_eq!(ended_at(ledger, "r").await, None);
    pause(40).await;
    expired(ledger, "r", 40).await;
    assert_eq!(ended_at(ledger, "r").await, None);
    let dora = held(ledger, "r", 50).await;
    let transfer = SealItem { kind: SealKind::Transfer { from: dora.lock }, ..seal(["r"], 60) };
    granted(ledger, transfer).await;
    granted(ledger, fence("r", 70, None, true)).await;
    granted(ledger, fence("r", 80, None, false)).await;
    expired(ledger, "r", 90).await;
    granted(ledger, fence("r", 100, None, true)).await;
    use GrantEnd::{Broken, Fenced, Lapsed, Released, Transferred};
    let expected =
        [Released, Broken, Broken, Lapsed, Transferred, Fenced, Lapsed, Lapsed, Lapsed].map(Some);
    assert_eq!(ends(ledger, "r").await, expected);
    let entries = found(ledger, all()).await;
    let before = |number: i64| {
        let entry = entries
            .iter()
            .find(|(_, entry)| entry.action.is_of_grant() && entry.token == Some(token(number)));
        entry.and_then(|(_, entry)| entry.previous_ended_at)
    };
    assert!(released_at.is_some() && broken_at.is_some());
    assert_eq!((before(20), before(30)), (released_at, broken_at));
}

/// On each resource for itself; one that has lapsed and is handed over by its holder has not lapsed.
pub async fn a_grant_ends_on_each_of_its_resources(ledger: &dyn Ledger) {
    let both = granted(ledger, seal(["a", "b"], 10)).await;
    break_one(ledger, &Grant { resources: vec![name("a")], ..both.clone() }, 0).await;
    release_one(ledger, both.lock).await;
    granted(ledger, seal(["a", "b"], 20)).await;
    assert_eq!(ends(ledger, "a").await, [Some(GrantEnd::Broken)]);
    assert_eq!(ends(ledger, "b").await, [Some(GrantEnd::Released)]);
    let late = expired(ledger, "c", 30).await;
    let transfer = SealItem { kind: SealKind::Transfer { from: late.lock }, ..seal(["c"], 40) };
    granted(ledger, transfer).await;
    assert_eq!(ends(ledger, "c").await, [Some(GrantEnd::Transferred)]);
}

/// A re-fence ends what stands, whenever that was; what had been given back before was.
pub async fn a_refence_ends_what_stands(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let freed = held(ledger, "s", 20).await;
    release_one(ledger, freed.lock).await;
    let nonce = uuid::Uuid::new_v4();
    ledger.refence(super::disasters::forced(nonce)).await.expect("re-fenced");
    ledger.open_epoch(nonce).await.expect("opened");
    held(ledger, "r", 1).await;
    held(ledger, "s", 2).await;
    assert_eq!(ends(ledger, "r").await, [Some(GrantEnd::Void)]);
    assert_eq!(ends(ledger, "s").await, [Some(GrantEnd::Released)]);
}

/// One entry for each, in their order.
pub async fn a_grant_of_several_resources_is_audited_on_each(ledger: &dyn Ledger) {
    expired(ledger, "b", 10).await;
    granted(ledger, SealItem { owner: "bob".into(), ..seal(["c", "a", "b"], 20) }).await;
    assert_eq!(
        story(ledger).await,
        ["grant b ann - 10", "grant a bob - 20", "grant b bob ann 20", "grant c bob - 20"]
    );
}

/// When asked for, with the reason, and when it came due, also of what is broken already; not what shortened nothing.
pub async fn breaks_are_audited(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    for after in [3_600_000, 7_200_000, 3_600_000, 30] {
        break_one(ledger, &ann, after).await;
    }
    pause(50).await;
    break_one(ledger, &ann, 0).await;
    break_one(ledger, &ann, 0).await;
    assert_eq!(
        story(ledger).await,
        [
            "grant r ann - 10",
            "break r ann - 10",
            "break r ann - 10",
            "broken r ann - 10",
            "break r ann - 10",
            "break r ann - 10",
        ]
    );
    for (_, entry) in found(ledger, all()).await {
        let asked = (entry.reason.as_deref(), entry.request_id.as_deref());
        match entry.action {
            AuditAction::Break => assert_eq!(asked, (Some("test"), Some("test-request"))),
            _ => assert_eq!(asked, (None, None)),
        }
    }
}

/// Who asked, by what, from where and by which request; nothing of what the gateway does by itself. And of a grant whose it
/// is, and all else that must not be changed without anybody's noticing.
pub async fn the_audit_has_who_asked(ledger: &dyn Ledger) {
    let request = |id: &str| Request {
        peer: Some("192.0.2.1".into()),
        request_id: id.into(),
        gateway_request_id: Some("own".into()),
    };
    let asks = |id: &str| {
        by("ann")
            .showing(Credential { name: "key:a1".into(), ends: None })
            .asked_by(Some(Arc::new(request(id))))
    };
    let writers: Vec<_> =
        ["bob", "role:loader"].map(|name| WriterName::new(name).expect("a name")).into();
    let item = SealItem { by: asks("seal"), writers, ..seal(["a", "r"], 10) };
    let item = SealItem { principal: Some(principal_name("ann")), ..item };
    let lock = item.lock;
    granted(ledger, item).await;
    let (reason, request_id) = ("test".to_owned(), "break".to_owned());
    let item = BreakItem {
        resource: name("r"),
        token: token(10),
        after: Duration::ZERO,
        reason,
        request_id,
        by: asks("break"),
    };
    ledger.break_locks(Arc::from([item]), Patience::Skip).await.expect("decided");
    let item = ReleaseItem { by: by("ann"), ..lock.into() };
    ledger.release(Arc::from([item]), Patience::Skip).await.expect("decided");
    held(ledger, "r", 20).await;

    let entries = found(ledger, all()).await;
    let asked = |entry: &AuditEntry| -> Option<Asked> {
        entry.asked.as_deref().map(|asked| serde_json::from_str(asked).expect("who asked"))
    };
    let expected = |id: &str| {
        Some(Asked {
            principal: Some("ann".into()),
            credential: Some("key:a1".into()),
            peer: Some("192.0.2.1".into()),
            request_id: Some(id.into()),
            gateway_request_id: Some("own".into()),
        })
    };
    let told: Vec<_> = entries.iter().map(|(_, entry)| asked(entry)).collect();
    assert_eq!(told, [None, expected("break"), expected("seal"), expected("seal")]);
    let grant = |ordinal, leads, lock, is_anns: bool| {
        Some(GrantEntry {
            lock: GrantEntry::digest_of(lock),
            ordinal,
            leads,
            principal: is_anns.then(|| "ann".into()),
            writers: is_anns.then(|| "bob role:loader".into()),
        })
    };
    let [last, broken, on_r, on_a] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(on_a.1.grant, grant(1, true, lock, true));
    assert_eq!(on_r.1.grant, grant(1, false, lock, true));
    assert_eq!(broken.1.grant, None);
    let last = last.1.grant.as_ref().expect("a grant");
    assert_eq!((last.ordinal, last.leads, last.principal.as_deref()), (2, true, None));
}

/// However often a break is asked for that comes after the deadline: the deadline counts.
pub async fn a_break_that_waits_for_the_deadline_is_audited_once(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    for _ in 0..8 {
        break_one(ledger, &ann, 1_000_000_000).await;
        pause(3).await;
    }
    assert_eq!(story(ledger).await, ["grant r ann - 10", "break r ann - 10"]);
}

/// Breaks that come due are stored, and audited, once, by whoever acts; also by somebody who names the id of a lock that is
/// another principal's, and is told nothing of it.
pub async fn a_due_break_is_audited_once_by_whoever_acts(ledger: &dyn Ledger) {
    let names = ["foreign", "mark", "release", "renew", "seal", "sweep", "write"];
    let mut grants = Vec::new();
    for (resource, number) in names.into_iter().zip(10..) {
        let grant = held(ledger, resource, number).await;
        break_one(ledger, &grant, 20).await;
        grants.push(grant);
    }
    pause(40).await;
    for _ in 0..2 {
        let foreign = SealItem { lock: grants[0].lock, number: None, ..seal(["foreign"], 0) };
        let principal = Some(principal_name("bob"));
        let foreign = SealItem { by: by("bob"), principal, ..foreign };
        assert_eq!(seal_one(ledger, foreign).await, SealVerdict::Conflict);
        mark_one(ledger, "mark", Mark::Unfreeze, "x").await;
        release_one(ledger, grants[2].lock).await;
        renew_one(ledger, grants[3].lock).await;
        seal_one(ledger, SealItem { number: None, ..seal(["seal"], 0) }).await;
        refusal(ledger, put(&grants[6], "k", "x")).await;
    }
    let keep = std::time::Duration::from_secs(3600);
    let retention = Retention {
        keys: keep,
        ended_locks: keep,
        buried: keep,
        history: None,
        rejections_max: 10,
        rows_per_pass: 100,
    };
    ledger.sweep(&retention).await.expect("swept");
    let broken = AuditFilter { action: Some(AuditAction::Broken), ..all() };
    let broken = found(ledger, broken).await;
    let broken: Vec<String> = broken
        .into_iter()
        .rev()
        .map(|(_, entry)| entry.resource.expect("of a resource").to_string())
        .collect();
    assert_eq!(broken, ["foreign", "mark", "release", "renew", "seal", "write", "sweep"]);
}

/// With reason and request; what changes nothing leaves nothing.
pub async fn marks_are_audited(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    for (mark, reason) in [
        (Mark::Unfreeze, "nothing"),
        (Mark::Freeze, "one"),
        (Mark::Freeze, "one"),
        (Mark::Freeze, "two"),
        (Mark::Protect, "three"),
        (Mark::Unfreeze, "four"),
        (Mark::Unfreeze, "five"),
        (Mark::Unprotect, "six"),
    ] {
        mark_one(ledger, "r", mark, reason).await;
    }
    mark_one(ledger, "nowhere", Mark::Freeze, "seven").await;
    let mut entries = found(ledger, all()).await;
    entries.reverse();
    let entries: Vec<_> = entries[1..]
        .iter()
        .map(|(_, entry)| {
            assert_eq!((&entry.owner, &entry.previous_owner, entry.token), (&None, &None, None));
            assert_eq!(entry.request_id, Some(format!("to-{}", entry.action.as_str())));
            (entry.action.as_str(), entry.reason.as_deref().unwrap_or_default())
        })
        .collect();
    let expected = [
        ("freeze", "one"),
        ("freeze", "two"),
        ("protect", "three"),
        ("unfreeze", "four"),
        ("unprotect", "six"),
    ];
    assert_eq!(entries, expected);
}

/// Numbers rise, times do not fall; filters and pages find what they should.
pub async fn the_audit_is_listed_newest_first(ledger: &dyn Ledger) {
    for number in 0..6 {
        let resource = ["a", "b"][number % 2];
        let grant = held(ledger, resource, 10 + number as i64).await;
        release_one(ledger, grant.lock).await;
        mark_one(ledger, resource, Mark::Protect, &number.to_string()).await;
    }
    let entries = found(ledger, all()).await;
    assert_eq!(entries.len(), 12);
    for pair in entries.windows(2) {
        assert!(pair[0].0 > pair[1].0 && pair[0].1.at >= pair[1].1.at, "{pair:?}");
    }
    let of_a = AuditFilter { resource: Some(name("a")), ..all() };
    let tokens = |entries: &[(i64, AuditEntry)]| {
        entries.iter().filter_map(|(_, entry)| entry.token.map(|t| t.get())).collect::<Vec<_>>()
    };
    assert_eq!(tokens(&found(ledger, of_a.clone()).await), [14, 12, 10]);
    for (action, count) in [(AuditAction::Grant, 3), (AuditAction::Protect, 3)] {
        let both = AuditFilter { action: Some(action), ..of_a.clone() };
        let both = found(ledger, both).await;
        assert!(both.iter().all(|(_, entry)| entry.action == action));
        assert_eq!(both.len(), count);
    }
    let none = AuditFilter { action: Some(AuditAction::Epoch), ..all() };
    assert_eq!(found(ledger, none).await, []);

    let mut paged = Vec::new();
    loop {
        let before = paged.last().map(|(number, _)| *number);
        let page = found(ledger, AuditFilter { before, limit: 5, ..all() }).await;
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, entries);
}

/// Neither by an operator's hand nor by the sweeper.
pub async fn the_audit_only_grows(ledger: &dyn Ledger, operator: &Operator) {
    held(ledger, "r", 10).await;
    mark_one(ledger, "r", Mark::Freeze, "x").await;
    let before = found(ledger, all()).await;
    let mut statements = vec!["UPDATE audit SET reason = 'y'", "DELETE FROM audit"];
    if let Operator::Postgres(_) = operator {
        statements.push("TRUNCATE audit");
    }
    for sql in statements {
        let why = operator.refusal(sql).await;
        assert!(why.contains("never changed or removed"), "{sql}: {why}");
    }
    let nothing = std::time::Duration::ZERO;
    let retention = Retention {
        keys: nothing,
        ended_locks: nothing,
        buried: nothing,
        history: None,
        rejections_max: 0,
        rows_per_pass: 1000,
    };
    crate::conformance::catch_up(ledger).await;
    ledger.sweep(&retention).await.expect("swept");
    assert_eq!(found(ledger, all()).await, before);
    let odd = "INSERT INTO audit (at, action) SELECT at, 'thaw' FROM audit";
    assert!(operator.refusal(odd).await.contains("constraint"));
}
