//! The epoch, and the sweeper: what is kept, and for how long.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    AuditEntry, AuditFilter, Boot, CommitItem, CommitVerdict, EventCursor, EventsPage,
    IdempotencyKey, Ledger, Log, OperationRecord, Pass, Passed, Rejection, RejectionFilter,
    ReleaseVerdict, RenewVerdict, Retention, SealVerdict, Settled, Span, TreeGrowth, TreeHead,
    TreeLeaf, TreeTile, VersionsFilter, WriteItem, WriteVerdict,
};
use fence_core::{LockEnd, LockId, LockState, Refusal, Token};
use uuid::Uuid;

use super::build::*;
use super::commits::{committed, decide, many};
use crate::conformance::Operator;

pub(super) const KEEP: Duration = Duration::from_secs(3600);

fn keep_all() -> Retention {
    Retention {
        keys: KEEP,
        ended_locks: KEEP,
        buried: KEEP,
        history: Some(KEEP),
        rejections_max: 1000,
        rows_per_pass: 1000,
    }
}

pub(super) async fn sweep(ledger: &dyn Ledger, retention: Retention) -> u64 {
    crate::conformance::pause(2).await;
    crate::conformance::catch_up(ledger).await;
    ledger.sweep(&retention).await.expect("swept")
}

/// Nothing was sealed: the mint that is there is the right one.
pub async fn a_fresh_epoch_opens_with_any_nonce(ledger: &dyn Ledger) {
    let fresh = ledger.epoch().await.expect("an epoch");
    assert_eq!((fresh.number, fresh.base, fresh.open), (0, 0, false));
    let nonce = Uuid::new_v4();
    let opened = ledger.open_epoch(nonce).await.expect("opened");
    assert_eq!((opened.nonce, opened.open, opened.number), (nonce, true, 0));
    assert_eq!(ledger.epoch().await.expect("an epoch"), opened);
}

/// From then on no other mint is taken.
pub async fn an_open_epoch_keeps_its_nonce(ledger: &dyn Ledger) {
    let opened = ledger.open_epoch(Uuid::new_v4()).await.expect("opened");
    assert_eq!(ledger.open_epoch(Uuid::new_v4()).await, Ok(opened.clone()));
    assert_eq!(ledger.open_epoch(opened.nonce).await, Ok(opened.clone()));
    assert_eq!(ledger.epoch().await, Ok(opened));
}

/// Numbers of this nonce are in use already.
pub async fn a_sealed_epoch_opens_with_its_own_nonce_only(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let fresh = ledger.epoch().await.expect("an epoch");
    assert_eq!(ledger.open_epoch(Uuid::new_v4()).await, Ok(fresh.clone()));
    let opened = ledger.open_epoch(fresh.nonce).await.expect("opened");
    assert_eq!((opened.nonce, opened.open), (fresh.nonce, true));
}

/// Nothing is old enough.
pub async fn a_sweep_keeps_what_is_young(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", "a") };
    apply(ledger, item.clone()).await;
    release_one(ledger, ann.lock).await;
    let buried = lock_id();
    release_one(ledger, buried).await;
    assert_eq!(sweep(ledger, keep_all()).await, 0);
    assert!(ledger.lock(ann.lock).await.expect("read").is_some());
    replayed(commit_one(ledger, WriteItem { operation: operation_id(), ..item }).await);
    assert_eq!(renew_one(ledger, buried).await, RenewVerdict::Ended(LockEnd::Released));
}

pub(super) const NOTHING_KEPT: Retention = Retention {
    keys: Duration::ZERO,
    ended_locks: Duration::ZERO,
    buried: Duration::ZERO,
    history: Some(Duration::ZERO),
    rejections_max: 1000,
    rows_per_pass: 1000,
};

/// Whatever makes an outcome known: what a key stands for, what was given up, what a lock was.
pub(super) async fn outcomes(
    ledger: &dyn Ledger,
    resource: &str,
    number: i64,
) -> (WriteItem, LockId, LockId) {
    let ann = held(ledger, resource, number).await;
    let item = WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", "a") };
    apply(ledger, item.clone()).await;
    release_one(ledger, ann.lock).await;
    let buried = lock_id();
    release_one(ledger, buried).await;
    (item, ann.lock, buried)
}

async fn are_known(ledger: &dyn Ledger, (item, lock, buried): &(WriteItem, LockId, LockId)) {
    let again = WriteItem { operation: operation_id(), ..item.clone() };
    replayed(commit_one(ledger, again).await);
    assert!(ledger.lock(*lock).await.expect("read").is_some());
    assert_eq!(renew_one(ledger, *buried).await, RenewVerdict::Ended(LockEnd::Released));
}

/// A clock that jumps ahead makes nothing old: no time has passed.
pub async fn nothing_is_forgotten_by_the_clock_alone(ledger: &dyn Ledger) {
    let known = outcomes(ledger, "r", 10).await;
    crate::conformance::pause(2).await;
    assert_eq!(ledger.sweep(&NOTHING_KEPT).await, Ok(0));
    are_known(ledger, &known).await;
}

/// By one gateway's time for each pass, or by what the machine of the last one has been up since.
pub async fn the_own_time_goes_on_by_what_has_passed_once(ledger: &dyn Ledger) {
    const MINUTE: Duration = Duration::from_secs(60);
    let pass = async |passed: Passed| ledger.pass_time(&passed).await.expect("told");
    let first = pass(Passed::NOTHING).await;
    let knows = |pass: i64, since: Duration| Passed { pass, since, boot: None };
    let minutes = |pass: &Pass| pass.at.duration_since(first.at).as_secs() / 60;
    let nothing = pass(Passed::NOTHING).await;
    assert_eq!(nothing.at, first.at);
    let one = pass(knows(first.number, 60 * MINUTE)).await;
    assert_eq!(minutes(&one), 60);
    let other = pass(knows(first.number, 60 * MINUTE)).await;
    assert_eq!(minutes(&other), 60, "their times add up");
    assert_eq!((first.number + 1, other.number), (one.number, one.number));
    let other = pass(knows(one.number, 10 * MINUTE)).await;
    assert_eq!(minutes(&other), 70);
    // By proof, whoever has made the pass before.
    let on = |id: &str, pass: i64, since: Duration, up: Duration| {
        let boot = Some(Boot { id: id.to_owned(), up });
        Passed { pass, since, boot }
    };
    let proven = pass(on("a", other.number, 5 * MINUTE, 100 * MINUTE)).await;
    assert_eq!(minutes(&proven), 75);
    for (id, up, after) in [("a", 160, 135), ("a", 150, 135), ("a", 170, 145), ("b", 900, 145)] {
        let told = pass(on(id, -1, Duration::ZERO, up * MINUTE)).await;
        assert_eq!(minutes(&told), after, "{id} {up}");
    }
    let last = pass(Passed::NOTHING).await;
    let most = pass(knows(last.number, Duration::MAX)).await;
    assert!(minutes(&most) > 10 * 365 * 24 * 60 && most.behind == Duration::ZERO);
}

/// The own time is ahead of such a clock, and goes on meanwhile.
pub async fn what_is_stamped_by_a_clock_that_went_back_is_kept_as_long(ledger: &dyn Ledger) {
    let ahead = async |by: Duration| {
        let last = ledger.pass_time(&Passed::NOTHING).await.expect("told");
        let passed = Passed { pass: last.number, since: last.behind + by, boot: None };
        ledger.pass_time(&passed).await.expect("passed");
    };
    ahead(2 * KEEP).await;
    let known = outcomes(ledger, "r", 10).await;
    let keep = Retention { history: None, ..keep_all() };
    assert_eq!(ledger.sweep(&keep).await, Ok(0), "it is forgotten early");
    are_known(ledger, &known).await;
    ahead(KEEP + Duration::from_secs(1)).await;
    assert_eq!(ledger.sweep(&keep).await, Ok(3), "the key, the lock, the burial");
}

/// Its operation stays, so the id still finds it; the key is free.
pub async fn a_sweep_removes_old_keys(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", "a") };
    let first = apply(ledger, item.clone()).await;
    assert_eq!(sweep(ledger, Retention { keys: Duration::ZERO, ..keep_all() }).await, 1);
    assert_eq!(ledger.operation_by_key(&name("r"), "once").await.expect("read"), None);
    assert_eq!(apply(ledger, item.clone()).await, first);
    let second = apply(ledger, WriteItem { operation: operation_id(), ..item }).await;
    assert_eq!(second.version, Some(2));
    let record = ledger.operation(first.operation).await.expect("read");
    assert_eq!(record, Some(OperationRecord::Applied(first)));
}

/// Whatever the settings say, and whatever was done under it.
pub async fn a_key_is_kept_as_long_as_its_writer_asked(ledger: &dyn Ledger) {
    let ann = granted(ledger, seal(["r", "s"], 10)).await;
    let times = [("long", Some(KEEP)), ("short", Some(Duration::from_millis(1))), ("plain", None)];
    let mut done = Vec::new();
    for (word, time) in times {
        let key = |act: &str| match time {
            Some(time) => kept(&format!("{word}-{act}"), "p", time),
            None => keyed(&format!("{word}-{act}"), "p"),
        };
        let writes = [
            WriteItem { idempotency: key("put"), ..put(&ann, "k", "a") },
            WriteItem { idempotency: key("delete"), ..delete(&ann, "k") },
            WriteItem { idempotency: key("all"), ..delete_all(&ann) },
        ];
        for item in &writes {
            apply(ledger, item.clone()).await;
        }
        let many = many(&ann, &[("r", "m", Some("a")), ("s", "m", Some("a"))]);
        let many = CommitItem { idempotency: key("many"), ..many };
        committed(ledger, &many).await;
        done.push((word, writes, many));
    }
    // Three writes, and a commit to two resources.
    assert_eq!(sweep(ledger, keep_all()).await, 5, "short ones");
    assert_eq!(sweep(ledger, Retention { keys: Duration::ZERO, ..keep_all() }).await, 5, "plain");
    for (word, writes, many) in done {
        for item in writes {
            // However long a retry asks for.
            let asked = item.idempotency.clone().map(|key| IdempotencyKey { kept: None, ..key });
            let again = WriteItem { operation: operation_id(), idempotency: asked, ..item };
            match word {
                "long" => drop(replayed(commit_one(ledger, again).await)),
                _ => drop(apply(ledger, again).await),
            }
        }
        let again = CommitItem { operation: operation_id(), ..many };
        let verdict = decide(ledger, &again).await;
        let was_known = matches!(verdict, CommitVerdict::Applied { replayed: true, .. });
        assert_eq!(was_known, word == "long", "{word}: {verdict:?}");
    }
}

/// Ended ones go; live and expired ones stay, and the fence outlives everything.
pub async fn a_sweep_removes_locks_that_ended(ledger: &dyn Ledger) {
    let live = held(ledger, "live", 10).await;
    let lapsed = expired(ledger, "lapsed", 11).await;
    let ended = held(ledger, "ended", 12).await;
    release_one(ledger, ended.lock).await;
    let retention = Retention { ended_locks: Duration::ZERO, buried: Duration::ZERO, ..keep_all() };
    assert_eq!(sweep(ledger, retention).await, 1);
    for kept in [live, lapsed] {
        assert!(ledger.lock(kept.lock).await.expect("read").is_some());
        assert!(matches!(renew_one(ledger, kept.lock).await, RenewVerdict::Renewed { .. }));
    }
    assert_eq!(ledger.lock(ended.lock).await.expect("read"), None);
    assert_eq!(renew_one(ledger, ended.lock).await, RenewVerdict::NotFound);
    assert_eq!(release_one(ledger, ended.lock).await, ReleaseVerdict::Buried);
    let view = ledger.resource(&name("ended")).await.expect("read").expect("the fence stays");
    assert_eq!((view.state, view.token), (LockState::Released, token(12)));
    assert_eq!(refusal(ledger, put(&ended, "k", "x")).await, Refusal::Released);
    let next = held(ledger, "ended", 20).await;
    assert!(matches!(refusal(ledger, put(&ended, "k", "x")).await, Refusal::Stale { .. }));
    apply(ledger, put(&next, "k", "a")).await;
}

/// After a day nobody sends them any more.
pub async fn a_sweep_removes_buried_ids(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = WriteItem { attempt: fence_core::ports::Attempt::Bury, ..put(&ann, "k", "x") };
    assert_eq!(commit_one(ledger, item.clone()).await, WriteVerdict::Buried);
    let unknown = lock_id();
    release_one(ledger, unknown).await;
    let retention = Retention { ended_locks: Duration::ZERO, buried: Duration::ZERO, ..keep_all() };
    assert_eq!(sweep(ledger, retention).await, 2);
    assert_eq!(ledger.operation(item.operation).await.expect("read"), None);
    assert_eq!(renew_one(ledger, unknown).await, RenewVerdict::NotFound);
}

const ALL_HISTORY: Option<Duration> = Some(Duration::ZERO);

async fn versions(ledger: &dyn Ledger, resource: &str) -> Vec<Option<i64>> {
    let filter = VersionsFilter { limit: 100, ..VersionsFilter::default() };
    let listed = ledger.versions(&name(resource), filter).await.expect("the history is read");
    listed.into_iter().map(|applied| applied.version).collect()
}

async fn events(ledger: &dyn Ledger, number: i64) -> EventsPage {
    ledger.number_events().await.expect("a step");
    ledger.events(EventCursor { generation: 0, number }, 100).await.expect("events are read")
}

async fn grants(ledger: &dyn Ledger, resource: &str) -> Vec<Option<Token>> {
    let filter =
        AuditFilter { resource: Some(name(resource)), limit: 100, ..AuditFilter::default() };
    let listed = ledger.audit(filter).await.expect("the audit is read");
    listed.into_iter().map(|(_, entry)| entry.token).collect()
}

/// Lets the tree over the audit grow, as the gateway does: it has a leaf of each entry then.
async fn seal_audit(ledger: &dyn Ledger) -> TreeHead {
    let settled = ledger.settled(Log::Audit, &Settled::default()).await.expect("settled");
    let head = ledger.tree_head().await.expect("a head");
    let between = Some(Span { after: head.upto, upto: settled.upto });
    let filter = AuditFilter { between, limit: 100, ..AuditFilter::default() };
    let entries = ledger.audit(filter).await.expect("the audit is read");
    let leaf = |(number, entry): (i64, AuditEntry)| TreeLeaf {
        number,
        is_grant: entry.action.is_of_grant(),
        digest: [7; 32],
    };
    let mut leaves = head.last.map(|tile| tile.leaves).unwrap_or_default();
    leaves.extend(entries.into_iter().map(leaf));
    let growth = TreeGrowth {
        from: head.size,
        generation: head.generation,
        size: leaves.len() as i64,
        upto: settled.upto,
        roots: vec![[1; 32]],
        note: "noted".into(),
        tiles: vec![TreeTile { tile: 0, leaves, root: None }],
        fork: None,
    };
    let lost = TreeGrowth { generation: head.generation + 1, ..growth.clone() };
    assert!(!ledger.grow_tree(&lost).await.expect("a step"), "its entries may be lost");
    assert!(ledger.grow_tree(&growth).await.expect("a step"));
    assert!(!ledger.grow_tree(&growth).await.expect("a step") || growth.size == growth.from);
    ledger.tree_head().await.expect("a head")
}

/// Whoever let go of an entry keeps its leaf; what has none yet is not let go.
pub async fn a_grant_goes_once_it_has_a_leaf_which_stays(ledger: &dyn Ledger) {
    let (ann, ben) = succession(ledger, "r").await;
    let retention = Retention { history: ALL_HISTORY, ..keep_all() };
    sweep(ledger, retention.clone()).await;
    assert_eq!(grants(ledger, "r").await, [Some(ben.token), Some(ann.token)]);
    assert_eq!(ledger.grants_let_go().await, Ok(0));

    let sealed = seal_audit(ledger).await;
    let numbers = |head: &TreeHead| -> Vec<i64> {
        head.last.iter().flat_map(|tile| tile.leaves.iter().map(|leaf| leaf.number)).collect()
    };
    assert_eq!((sealed.size, numbers(&sealed).len()), (2, 2));
    sweep(ledger, retention).await;
    assert_eq!(grants(ledger, "r").await, [Some(ben.token)]);
    assert_eq!(ledger.tree_head().await, Ok(sealed.clone()));
    let let_go = ledger.grants_let_go().await.expect("a number");
    assert!((numbers(&sealed)[0]..=numbers(&sealed)[1]).contains(&let_go), "{let_go}");
    assert_eq!(ledger.tree_tiles(0, 9).await.map(|tiles| tiles.len()), Ok(1));
    assert_eq!(ledger.tree_tiles(1, 9).await, Ok(vec![]));
    assert_eq!(ledger.tree_roots().await, Ok(vec![]));
}

/// Versions and tags go on, as often as everything is let go; whoever reads the feed behind its beginning is told so.
pub async fn history_goes_but_for_the_newest(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let first = apply(ledger, put(&ann, "a", "1")).await;
    apply(ledger, put(&ann, "b", "1")).await;
    let empty = apply(ledger, delete(&ann, "nothing")).await;
    let other = held(ledger, "other", 11).await;
    apply(ledger, put(&other, "k", "x")).await;
    release_one(ledger, ann.lock).await;
    let ben = held(ledger, "r", 20).await;
    let newest = apply(ledger, put(&ben, "a", "2")).await;
    assert_eq!(events(ledger, 0).await.events.len(), 4);

    seal_audit(ledger).await;
    let retention = Retention { history: ALL_HISTORY, ..keep_all() };
    // Four events, two versions, one operation without, one grant.
    assert_eq!(sweep(ledger, retention.clone()).await, 8);
    assert_eq!(versions(ledger, "r").await, [Some(3)]);
    assert_eq!(versions(ledger, "other").await, [Some(1)]);
    assert_eq!(grants(ledger, "r").await, [Some(token(20))]);
    assert_eq!(grants(ledger, "other").await, [Some(token(11))]);
    for gone in [first, empty] {
        assert_eq!(ledger.operation(gone.operation).await.expect("read"), None);
    }
    assert!(ledger.operation(newest.operation).await.expect("read").is_some());
    let page = events(ledger, 4).await;
    assert_eq!((page.gone, page.last.number, page.events.len()), (4, 4, 0));
    assert_eq!(page.void(EventCursor { generation: 0, number: 3 }), Some(page.last));
    assert_eq!(page.void(page.last), None);
    assert_eq!(sweep(ledger, retention.clone()).await, 0);

    for version in 4..7 {
        let next = apply(ledger, put(&ben, "a", "next")).await;
        assert_eq!((next.version, next.generation), (Some(version), 0));
        let page = events(ledger, version).await;
        let numbers: Vec<_> = page.events.iter().map(|(number, _)| *number).collect();
        assert_eq!((page.gone, numbers), (version, vec![version + 1]));
        assert_eq!(sweep(ledger, retention.clone()).await, 2);
        assert_eq!(versions(ledger, "r").await, [Some(version)]);
        assert_eq!(look(ledger, "r", "a").await.object.expect("there").tag, tag(version));
    }
    assert_eq!(text(ledger, "r", "b").await.as_deref(), Some("1"));
    assert_eq!(counts(ledger, "r").await, (6, 2));
}

/// What is not older than it has to be kept, nobody lets go; nor anything where history is kept for ever.
pub async fn young_history_stays(ledger: &dyn Ledger) {
    let (ann, ben) = succession(ledger, "r").await;
    apply(ledger, put(&ben, "k", "1")).await;
    apply(ledger, put(&ben, "k", "2")).await;
    events(ledger, 0).await;
    seal_audit(ledger).await;
    for history in [Some(KEEP), None] {
        assert_eq!(sweep(ledger, Retention { history, ..keep_all() }).await, 0);
    }
    assert_eq!(versions(ledger, "r").await, [Some(2), Some(1)]);
    assert_eq!(grants(ledger, "r").await, [Some(ben.token), Some(ann.token)]);
    assert_eq!(events(ledger, 0).await.events.len(), 2);
}

/// Whoever comes again with the key is told of it.
pub async fn an_operation_stays_as_long_as_its_key(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = WriteItem { idempotency: keyed("key", "1"), ..put(&ann, "k", "1") };
    let first = apply(ledger, item.clone()).await;
    apply(ledger, put(&ann, "k", "2")).await;
    events(ledger, 0).await;
    let retention = Retention { history: ALL_HISTORY, ..keep_all() };
    sweep(ledger, retention.clone()).await;
    let again = WriteItem { operation: operation_id(), ..item };
    assert_eq!(replayed(commit_one(ledger, again).await).operation, first.operation);
    assert_eq!(versions(ledger, "r").await, [Some(2), Some(1)]);
    // Then the key goes, and its operation.
    sweep(ledger, Retention { keys: Duration::ZERO, ..retention.clone() }).await;
    apply(ledger, put(&ann, "k", "3")).await;
    events(ledger, 2).await;
    sweep(ledger, retention).await;
    assert_eq!(versions(ledger, "r").await, [Some(3)]);
}

/// Nobody knows any more which tokens were granted before the oldest grant that is kept: all are refused as stale, and
/// none is ever granted again, on whatever resource.
pub async fn tokens_of_history_are_stale(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    let ben = held(ledger, "r", 20).await;
    release_one(ledger, ben.lock).await;
    let cat = held(ledger, "r", 30).await;
    let alone = held(ledger, "alone", 25).await;
    seal_audit(ledger).await;
    sweep(ledger, Retention { history: ALL_HISTORY, ..keep_all() }).await;
    for number in [5, 10, 15, 20] {
        let refused = refusal(ledger, put_at("r", number)).await;
        let expected = Refusal::Stale { by: None, at: None, grants_behind: None, owner: None };
        assert_eq!(refused, expected, "{number}");
    }
    for number in [21, 29, 31] {
        assert_eq!(refusal(ledger, put_at("r", number)).await, Refusal::Unknown, "{number}");
    }
    assert_eq!(refusal(ledger, put_at("alone", 24)).await, Refusal::Unknown);
    for number in [10, 20] {
        assert_eq!(seal_one(ledger, seal(["fresh"], number)).await, SealVerdict::NumberTooLow);
    }
    held(ledger, "fresh", 21).await;
    for grant in [cat, alone] {
        apply(ledger, put(&grant, "k", "x")).await;
    }
}

/// A clock that was ahead for a while makes the later grants look older: they stay as long as those before them, so that each
/// token that was granted is refused by what is known of it.
pub async fn grants_go_in_their_order(ledger: &dyn Ledger, operator: &Operator) {
    for number in [10, 20, 30] {
        let held = held(ledger, "r", number).await;
        release_one(ledger, held.lock).await;
    }
    held(ledger, "r", 40).await;
    seal_audit(ledger).await;
    let ahead = match operator {
        Operator::Sqlite(_) => {
            "UPDATE grants SET superseded_at = superseded_at + 1000000000000 WHERE token = 10"
        }
        Operator::Postgres(_) => {
            "ALTER TABLE grants DISABLE TRIGGER USER;
             UPDATE grants SET at = at + interval '1000000 s' WHERE token = 20;
             ALTER TABLE grants ENABLE TRIGGER USER"
        }
    };
    operator.execute(ahead).await;
    sweep(ledger, Retention { history: ALL_HISTORY, ..keep_all() }).await;
    for number in [10, 20, 30] {
        let refused = refusal(ledger, put_at("r", number)).await;
        assert!(matches!(refused, Refusal::Stale { by: Some(_), .. }), "{number}: {refused:?}");
    }
    assert_eq!(refusal(ledger, put_at("r", 15)).await, Refusal::Unknown, "it was never granted");
}

fn rejection(i: usize) -> Rejection {
    Rejection {
        at: serde_json::from_str("\"2026-01-02T03:04:05Z\"").expect("a time"),
        resource: name("r"),
        key: None,
        reason: "stale".into(),
        token: Token::new(7),
        grants_behind: None,
        superseded_ms: None,
        owner: None,
        request_id: format!("req-{i}"),
        times: 1,
    }
}

/// Of one resource, so many seconds after a full minute.
fn made_up(resource: &str, second: u32, i: usize) -> Rejection {
    let at = format!("\"2026-01-02T03:{:02}:{:02}Z\"", second / 60, second % 60);
    Rejection {
        at: serde_json::from_str(&at).expect("a time"),
        resource: name(resource),
        reason: "fence-token-unknown".into(),
        ..rejection(i)
    }
}

/// Anybody can make up tokens: writes with them are counted by resource and minute, and have room of their own.
pub async fn unknown_tokens_push_no_other_rejection_out(ledger: &dyn Ledger) {
    ledger.record_rejections(Arc::from([rejection(0)])).await.expect("kept");
    let all: Vec<Rejection> =
        (1..=90).map(|i| made_up(if i % 2 == 0 { "a" } else { "b" }, 20 + i, i as usize)).collect();
    ledger.record_rejections(Arc::from(&all[..40])).await.expect("kept");
    ledger.record_rejections(Arc::from([rejection(91)])).await.expect("kept");
    ledger.record_rejections(Arc::from(&all[40..])).await.expect("kept");
    let listed = async || {
        let filter = RejectionFilter { limit: 1000, ..RejectionFilter::default() };
        let mut found: Vec<_> = ledger
            .rejections(filter)
            .await
            .expect("read")
            .into_iter()
            .map(|(_, one)| (one.request_id, one.resource.to_string(), one.times))
            .collect();
        found.sort();
        found
    };
    let row = |id: &str, resource: &str, times| (id.to_owned(), resource.to_owned(), times);
    // Seconds 21 to 59 are of the first minute, 60 to 110 of the second; each entry is that of its first write.
    let counted = [
        row("req-0", "r", 1),
        row("req-1", "b", 20),
        row("req-2", "a", 19),
        row("req-40", "a", 26),
        row("req-41", "b", 25),
        row("req-91", "r", 1),
    ];
    assert_eq!(listed().await, counted);
    assert_eq!(sweep(ledger, Retention { rejections_max: 40, ..keep_all() }).await, 0);
    assert_eq!(sweep(ledger, Retention { rejections_max: 20, ..keep_all() }).await, 2);
    let kept: Vec<_> = listed().await.into_iter().map(|(id, ..)| id).collect();
    assert_eq!(kept, ["req-0", "req-40", "req-41", "req-91"]);
    let others: Vec<Rejection> = (200..500).map(|i| made_up(&format!("x-{i}"), 5, i)).collect();
    ledger.record_rejections(Arc::from(others)).await.expect("kept");
    assert_eq!(sweep(ledger, Retention { rejections_max: 20, ..keep_all() }).await, 300);
    let kept: Vec<_> = listed().await.into_iter().map(|(id, ..)| id).collect();
    assert_eq!(kept, ["req-0", "req-498", "req-499", "req-91"]);
}

/// Only the newest are kept.
pub async fn a_sweep_bounds_the_rejections(ledger: &dyn Ledger) {
    let all: Vec<Rejection> = (0..25).map(rejection).collect();
    ledger.record_rejections(Arc::from(all)).await.expect("kept");
    let newest = async || {
        let filter = RejectionFilter { limit: 100, ..RejectionFilter::default() };
        let found = ledger.rejections(filter).await.expect("read");
        found.into_iter().map(|(_, one)| one.request_id).collect::<Vec<_>>()
    };
    assert_eq!(sweep(ledger, Retention { rejections_max: 25, ..keep_all() }).await, 0);
    assert_eq!(sweep(ledger, Retention { rejections_max: 3, ..keep_all() }).await, 22);
    assert_eq!(newest().await, ["req-24", "req-23", "req-22"]);
    ledger.record_rejections(Arc::from([rejection(25)])).await.expect("kept");
    assert_eq!(sweep(ledger, Retention { rejections_max: 3, ..keep_all() }).await, 1);
    assert_eq!(newest().await, ["req-25", "req-24", "req-23"]);
    assert_eq!(sweep(ledger, Retention { rejections_max: 0, ..keep_all() }).await, 3);
    assert_eq!(newest().await, [""; 0]);
}
