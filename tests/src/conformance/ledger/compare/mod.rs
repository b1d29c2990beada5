//! Verdicts and views without what a clock made of them, so that two ledgers can be compared.

mod s3;

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    Applied, AuditEntry, AuditFilter, BlobId, BlobTimes, BreakVerdict, By, CommitVerdict,
    ForwardRecord, Grant, Holder, IntentEnd, IntentFilter, IntentVerdict, Ledger, LockRecord,
    MarkVerdict, OperationRecord, Page, Patience, ReadItem, ReleaseItem, ReleaseVerdict,
    RenewVerdict, Resolution, SealVerdict, Tidied, UploadVerdict, VersionsFilter, Which,
    WriteVerdict,
};
use fence_core::{LockId, OperationId, Refusal};

use super::build::{GATEWAY, beat, key, name, rules_change};
use super::moves::{Move, OBJECTS, RESOURCES, Standing};
use crate::conformance::catch_up;

fn grant(grant: &Grant) -> String {
    let Grant {
        lock, resources, token, owner, state, ttl, unconfirmed, versions, metadata, ..
    } = grant;
    let Grant { principal, writers, .. } = grant;
    let hold = grant.hold_until.map(|until| {
        left(until.as_millisecond().saturating_sub(grant.acquired_at.as_millisecond()))
    });
    let left = left(grant.remaining_ms);
    format!(
        "{lock} {resources:?} {token} {owner} {state:?} {ttl:?} {unconfirmed} {versions:?} \
         {metadata:?} {hold:?} {left} {principal:?} {writers:?}"
    )
}

/// What a deadline was set to, as far as no clock shows in it.
fn left(remaining_ms: i64) -> &'static str {
    match remaining_ms {
        ..=0 => "over",
        1..=60_000 => "up to a minute",
        60_001..=100_000_000 => "up to a day",
        _ => "for ever",
    }
}

fn holder(holder: &Holder) -> String {
    let Holder { resource, owner, state, age_ms, remaining_ms } = holder;
    format!("{resource} {owner} {state:?} {} {}", *age_ms >= 0, left(*remaining_ms))
}

fn applied(applied: &Applied) -> String {
    let Applied { operation, resource, kind, key, version, generation, created, .. } = applied;
    let Applied { size, sha256, owner, did, .. } = applied;
    format!(
        "{operation} {resource} {kind} {key:?} {version:?} g{generation} {created} {size} \
         {sha256:?} {owner} {did:?}"
    )
}

fn seal(verdict: &SealVerdict) -> String {
    match verdict {
        SealVerdict::Sealed(got, taken) => {
            let taken: Vec<_> = taken.iter().map(|one| (&one.resource, one.held_ms >= 0)).collect();
            format!("sealed {} {taken:?}", grant(got))
        }
        SealVerdict::Again(got) => format!("again {}", grant(got)),
        SealVerdict::Held(who) => format!("held {}", holder(who)),
        SealVerdict::Drains { resource, taken_over } => {
            let taken: Vec<_> = taken_over.iter().map(|one| &one.resource).collect();
            format!("drains {resource} {taken:?}")
        }
        SealVerdict::Draining(at) => format!("draining {at}"),
        SealVerdict::Frozen(at) => format!("frozen {at}"),
        SealVerdict::OrderStale(resource) => format!("OrderStale {resource}"),
        other => format!("{other:?}"),
    }
}

fn renew(verdict: &RenewVerdict) -> String {
    match verdict {
        RenewVerdict::Renewed { grant: got, lapsed_ms } => {
            format!("renewed {} {:?}", grant(got), lapsed_ms.map(|ms| ms >= 0))
        }
        other => format!("{other:?}"),
    }
}

/// Whether somebody waits is a hint: a ledger may look for all items of a batch at its end, when some have left.
fn release(verdict: &ReleaseVerdict) -> String {
    match verdict {
        ReleaseVerdict::Released { held_ms, ended, .. } => {
            format!("released {} {ended:?}", *held_ms >= 0)
        }
        other => format!("{other:?}"),
    }
}

fn breaking(verdict: &BreakVerdict) -> String {
    match verdict {
        BreakVerdict::Broken { held_ms, ended } => {
            format!("broken {:?} {ended:?}", held_ms.map(|ms| ms >= 0))
        }
        BreakVerdict::Breaking { due_ms } => format!("breaking {}", *due_ms > 0),
        other => format!("{other:?}"),
    }
}

fn mark(verdict: &MarkVerdict) -> String {
    match verdict {
        MarkVerdict::Marked { changed: true } => "marked".into(),
        MarkVerdict::Marked { changed: false } => "unchanged".into(),
        other => format!("{other:?}"),
    }
}

/// What one act recorded, which has one time: in whatever order its items were taken.
fn audited_at_once(entries: &[(i64, AuditEntry)]) -> Vec<String> {
    let newest = entries.iter().map(|(number, _)| *number).max();
    let mut lines: Vec<_> = entries.iter().map(|(_, entry)| audited(entry)).collect();
    lines.sort();
    lines.iter().map(|line| format!("audit until {newest:?} {line}")).collect()
}

/// All but the times, and but for which of its roles Postgres says that it was: no other ledger has such.
fn audited(entry: &AuditEntry) -> String {
    let AuditEntry { action, resource, owner, previous_owner, token, reason, request_id, .. } =
        entry;
    let ended = (entry.previous_end, entry.previous_ended_at.is_some());
    let owner = owner.as_ref().filter(|owner| !owner.starts_with("database role "));
    format!(
        "{action:?} {resource:?} {owner:?} {previous_owner:?} {ended:?} {token:?} {reason:?} \
         {request_id:?}"
    )
}

fn write(verdict: &WriteVerdict) -> String {
    match verdict {
        WriteVerdict::Applied { applied: done, replayed } => {
            format!("applied {} replayed {replayed}", applied(done))
        }
        WriteVerdict::Refused(stale @ Refusal::Stale { .. }) => refusal(stale),
        other => format!("{other:?}"),
    }
}

/// All but the time.
fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Stale { by, at, grants_behind, owner } => {
            format!("stale {by:?} {} {grants_behind:?} {owner:?}", at.is_some())
        }
        other => format!("{other:?}"),
    }
}

fn intent(verdict: &IntentVerdict) -> String {
    match verdict {
        IntentVerdict::Refused(stale @ Refusal::Stale { .. }) => refusal(stale),
        other => format!("{other:?}"),
    }
}

fn commit(verdict: &CommitVerdict) -> String {
    match verdict {
        CommitVerdict::Applied { applied: rows, replayed } => {
            let word = if *replayed { "recommitted" } else { "committed" };
            format!("{word} {:?}", rows.iter().map(applied).collect::<Vec<_>>())
        }
        CommitVerdict::Refused { refusal: why, resource, step } => {
            format!("not-committed {resource} {step:?} {}", refusal(why))
        }
        CommitVerdict::UploadExpired { step } => format!("UploadExpired {step}"),
        other => format!("{other:?}"),
    }
}

fn upload(verdict: &UploadVerdict) -> String {
    match verdict {
        UploadVerdict::Refused(why) => refusal(why),
        other => format!("{other:?}"),
    }
}

/// Whatever order the garbage comes in.
fn tidied(mut tidied: Tidied) -> String {
    tidied.garbage.sort_by_key(|garbage| garbage.blob);
    let blobs: Vec<_> = tidied.garbage.iter().map(|garbage| garbage.blob).collect();
    format!("swept-blobs {} {} {blobs:?}", tidied.uploads, tidied.versions)
}

fn blob_times(uploads: bool, replaced: bool) -> BlobTimes {
    let time = |over: bool| if over { Duration::ZERO } else { Duration::from_secs(3600) };
    BlobTimes {
        upload: time(uploads),
        multipart: time(uploads),
        reader_grace: time(replaced),
        rollback_horizon: time(replaced),
        versions: time(replaced),
        redelete: time(false),
    }
}

fn lines<V>(verdicts: &[V], line: fn(&V) -> String) -> Vec<String> {
    verdicts.iter().map(line).collect()
}

/// The time of a grant is its ledger's own.
async fn releases(ledger: &dyn Ledger, items: &[(LockId, bool, By)]) -> Vec<ReleaseItem> {
    let ids: Vec<LockId> = items.iter().map(|(lock, ..)| *lock).collect();
    let records = ledger.locks(&ids).await.expect("read");
    let release =
        |((lock, unless_renewed, by), record): (&(LockId, bool, By), Option<LockRecord>)| {
            let granted = record.map(|record| record.grant.acquired_at);
            let unless_renewed_since = granted.filter(|_| *unless_renewed);
            let may_bury = lock.0.as_u128() % 3 > 0;
            ReleaseItem { lock: *lock, unless_renewed_since, may_bury, by: by.clone() }
        };
    items.iter().zip(records).map(release).collect()
}

/// Carries out a move, and says what came of it.
pub async fn carry_out(ledger: &dyn Ledger, what: &Move) -> Result<Vec<String>, String> {
    let skip = Patience::Skip;
    // However long the run takes, nobody who waits is taken for absent.
    beat(ledger).await;
    let outcome = match what.clone() {
        Move::Seal(items) => ledger.seal(0, Arc::from(items), skip).await.map(|v| lines(&v, seal)),
        Move::Join(items) => {
            ledger.join(Arc::from(items), skip).await.map(|v| lines(&v, |one| format!("{one:?}")))
        }
        Move::Renew(items) => ledger.renew(Arc::from(items), skip).await.map(|v| lines(&v, renew)),
        Move::Release(items) => {
            let items = releases(ledger, &items).await;
            ledger.release(Arc::from(items), skip).await.map(|v| lines(&v, release))
        }
        Move::Break(items) => {
            ledger.break_locks(Arc::from(items), skip).await.map(|v| lines(&v, breaking))
        }
        Move::Mark(items) => ledger.mark(Arc::from(items), skip).await.map(|v| lines(&v, mark)),
        Move::Commit(items) => {
            ledger.commit(Arc::from(items), skip).await.map(|v| lines(&v, write))
        }
        Move::Open(items) => ledger
            .open_intents(Arc::from(items), skip)
            .await
            .map(|verdicts| lines(&verdicts, intent)),
        Move::Close(items) => ledger.close_intents(&items).await.map(|mut waiting| {
            waiting.sort();
            waiting.dedup();
            vec![format!("closed {waiting:?}")]
        }),
        Move::Complete(resources) => ledger
            .complete_drains(GATEWAY, resources.as_deref())
            .await
            .map(|locks| locks.iter().map(|lock| format!("completed {lock}")).collect()),
        Move::Resolve(operation) => {
            let resolution =
                Resolution { reason: "seen".into(), request_id: "r".into(), by: By::default() };
            let resolved = ledger.resolve_intent(operation, resolution).await;
            resolved.map(|resolved| vec![format!("resolved {resolved:?}")])
        }
        Move::CommitMany(item) => ledger.commit_many(item, skip).await.map(|v| vec![commit(&v)]),
        Move::Upload(item) => ledger.begin_upload(item).await.map(|v| vec![upload(&v)]),
        Move::BeginInParts(item, becomes) => {
            ledger.begin_multipart(item, becomes).await.map(|v| vec![upload(&v)])
        }
        Move::PutPart(item) => ledger.put_part(item).await.map(|v| vec![format!("{v:?}")]),
        Move::Abort(item) => ledger.abort_multipart(item).await.map(|v| vec![s3::abort(&v)]),
        Move::List(page) => ledger.list_page(page).await.map(|v| lines(&v, s3::listed)),
        Move::Tidy(uploads, replaced) => {
            let times = blob_times(uploads, replaced);
            catch_up(ledger).await;
            ledger.tidy_blobs(times, 1000, true).await.map(|found| vec![tidied(found)])
        }
        Move::Rules => {
            let applied = ledger.apply_rules(rules_change("")).await;
            applied.map(|applied| vec![format!("{applied:?}")])
        }
        Move::Sweep(retention) => {
            catch_up(ledger).await;
            ledger.sweep(&retention).await.map(|rows| vec![format!("{rows} rows")])
        }
    };
    outcome.map_err(|error| format!("{error:?}"))
}

/// What the next moves aim at.
pub async fn standing(ledger: &dyn Ledger) -> Standing {
    let mut standing = Standing::default();
    for (resource, fence) in RESOURCES.iter().zip(&mut standing.fences) {
        let view = ledger.resource(&name(resource)).await.expect("read");
        *fence = view.map_or((0, 0), |view| (view.token.get(), view.version));
    }
    standing
}

/// Everything that the ledger shows.
pub async fn everything(
    ledger: &dyn Ledger,
    locks: &[LockId],
    operations: &[OperationId],
    uploads: &[BlobId],
) -> Vec<String> {
    beat(ledger).await;
    let mut seen = s3::all_of_s3(ledger, uploads).await;
    let all = Page { limit: 100, ..Page::default() };
    for which in [Which::All, Which::Taken, Which::Held] {
        for view in ledger.resources(all.clone(), which).await.expect("read") {
            seen.push(format!(
                "{which:?} {} {:?} {} v{} {} objects waiting {} {} {} {:?} {:?} {:?}",
                view.resource,
                view.state,
                view.owner,
                view.version,
                view.objects,
                view.waiting,
                view.token,
                left(view.remaining_ms),
                (view.renewed_at >= view.acquired_at, view.ended_at.is_some()),
                view.frozen,
                view.protected
            ));
        }
    }
    let standings = ledger.look(&RESOURCES.map(name)).await.expect("read");
    seen.extend(
        standings.iter().map(|one| format!("{:?} {}", one.holder.as_ref().map(holder), one.queued)),
    );
    for resource in RESOURCES.map(name) {
        for object in ledger.objects(&resource, all.clone()).await.expect("read") {
            seen.push(format!("{resource} {} {} {}", object.key, object.tag, object.size));
        }
        let version = ledger.resource(&resource).await.expect("read").map_or(0, |it| it.version);
        // The objects as they are, and as the last versions left them.
        let read: Vec<_> = OBJECTS
            .iter()
            .flat_map(|object| {
                let versions = (version - 12..=version).filter(|it| *it > 0).map(Some);
                std::iter::once(None).chain(versions).map(|version| ReadItem {
                    resource: resource.clone(),
                    key: key(object),
                    version,
                })
            })
            .collect();
        for verdict in ledger.read(Arc::from(read)).await.expect("read") {
            let object = verdict.object.map(|object| {
                let told = (object.about, object.parts);
                (object.key, object.tag, object.content_type, object.sha256, object.payload, told)
            });
            seen.push(format!("{resource} {:?} {object:?}", verdict.resource_version));
        }
        let filter = VersionsFilter { limit: 1000, ..VersionsFilter::default() };
        seen.extend(ledger.versions(&resource, filter).await.expect("read").iter().map(applied));
    }
    for pointer in ledger.pointers(None, 1000).await.expect("read") {
        seen.push(format!("{pointer:?}"));
    }
    let open = IntentFilter { limit: 100, ..IntentFilter::default() };
    let mut open: Vec<String> = ledger
        .intents(open)
        .await
        .expect("read")
        .into_iter()
        .filter(|one| one.closes_at.is_none())
        .map(|one| format!("{} {} {} {}", one.operation, one.resource, one.token, one.owner))
        .collect();
    open.sort();
    seen.extend(open);
    let audit = AuditFilter { limit: i64::MAX, ..AuditFilter::default() };
    let audit = ledger.audit(audit).await.expect("read");
    assert!(audit.is_sorted_by(|one, next| one.0 > next.0), "newest first: {audit:?}");
    // An act that was rolled back leaves out a number.
    let audit: Vec<_> = (1..).zip(audit.into_iter().rev().map(|(_, entry)| entry)).collect();
    let audit: Vec<_> = audit.into_iter().rev().collect();
    seen.extend(audit.chunk_by(|one, next| one.1.at == next.1.at).flat_map(audited_at_once));
    let records = ledger.locks(locks).await.expect("read");
    for (id, record) in locks.iter().zip(records) {
        let record = record.map(|record| {
            let left = record.grant.remaining_ms.signum();
            let breaking = record.break_due.map(|due| due.in_ms > 0);
            let renewed = record.renewed_at != record.grant.acquired_at;
            let ended = (record.ended.map(|(how, _)| how), record.superseded_by);
            (grant(&record.grant), left, ended, breaking, renewed)
        });
        let position = ledger.position(*id, None).await.expect("read");
        seen.push(format!("{id} {record:?} {position:?}"));
    }
    for id in operations {
        seen.push(match ledger.operation(*id).await.expect("read") {
            Some(OperationRecord::Applied(done)) => format!("applied {}", applied(&done)),
            Some(OperationRecord::Committed(rows)) => {
                format!("committed {:?}", rows.iter().map(applied).collect::<Vec<_>>())
            }
            Some(OperationRecord::Forwarded(record)) => format!("forwarded {}", forwarded(record)),
            other => format!("{id} {other:?}"),
        });
    }
    seen
}

/// What is known of a request to an upstream, without its times. One whose time is over by the next act may
/// count as closed or not when it is read.
fn forwarded(record: ForwardRecord) -> String {
    let closed = record.closed.map(|(end, _)| end).filter(|end| *end != IntentEnd::Elapsed);
    let ForwardRecord { operation, resource, owner, upstream, .. } = record;
    format!("{operation} {resource} {owner} {upstream} {closed:?}")
}
