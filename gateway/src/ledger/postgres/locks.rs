//! The acts on locks, as calls of the functions of `schema/postgres/acts`.

use fence_core::ports::{
    BreakItem, BreakVerdict, By, Credential, Ended, Epoch, Grant, Holder, LedgerError, Patience,
    ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict, Retention, SealItem, SealKind,
    SealVerdict, TakenOver, unknown_max, writers_text,
};
use fence_core::{
    LockEnd, LockState, MaxHold, Metadata, PrincipalName, ResourceName, Ttl, WriterName,
};
use jiff::Timestamp;
use uuid::Uuid;

use super::session::{Sessions, harmless, unreadable};
use super::{attempt, sparse, wait_ms};
use crate::ledger::{end, metadata, resource_name, time, token, writer};

/// What a lock that has ended, or is being broken, comes back as.
enum Stop {
    Ended(LockEnd),
    Breaking,
}

fn stop(verdict: &str) -> Option<Stop> {
    match verdict {
        "breaking" => Some(Stop::Breaking),
        word => end(word).ok().map(Stop::Ended),
    }
}

pub(super) fn unknown_verdict(verdict: &str) -> LedgerError {
    LedgerError::Defect(format!("the schema answered {verdict:?}"))
}

/// Metadata read back; none is not sent.
fn noted(text: Option<&str>) -> Result<Metadata, LedgerError> {
    text.map_or(Ok(Metadata::default()), metadata)
}

/// Metadata as JSON, if there is any.
fn note(metadata: &Metadata) -> Option<String> {
    (!metadata.entries().is_empty()).then(|| metadata.to_json())
}

/// A lock whose deadline lies ahead, or a fence without one.
fn state(remaining_ms: Option<i64>) -> LockState {
    if remaining_ms > Some(0) { LockState::Leased } else { LockState::Expired }
}

/// The order and force of a fence without a lock.
fn fence(kind: SealKind) -> Option<(Option<i64>, bool)> {
    match kind {
        SealKind::Fence { order, force } => Some((order, force)),
        SealKind::Lock | SealKind::Transfer { .. } => None,
    }
}

/// Writers read back.
pub(super) fn writers(names: Option<Vec<String>>) -> Result<Vec<WriterName>, LedgerError> {
    names.unwrap_or_default().iter().map(|name| writer(name)).collect()
}

/// On whose behalf each item is, by all names; nothing where no rules are in force.
pub(super) fn names_of<'a>(all: impl Iterator<Item = &'a By>) -> Option<Vec<Option<&'a str>>> {
    sparse(all.map(By::names).collect())
}

/// On behalf of which principal each item is.
pub(super) fn principals_of<'a>(all: impl Iterator<Item = &'a By>) -> Option<Vec<Option<&'a str>>> {
    sparse(all.map(|by| by.principal().map(PrincipalName::as_str)).collect())
}

/// What the audit is to have of whoever asks for each item.
pub(super) fn asked_of<'a>(all: impl Iterator<Item = &'a By>) -> Option<Vec<Option<String>>> {
    sparse(all.map(By::asked).collect())
}

/// The names of the credentials to which locks belong.
fn credentials_of<'a>(
    all: impl Iterator<Item = Option<&'a Credential>>,
) -> Option<Vec<Option<&'a str>>> {
    sparse(all.map(|credential| credential.map(|it| it.name.as_str())).collect())
}

/// The ends that these have by themselves.
fn ends_of<'a>(all: impl Iterator<Item = Option<&'a Credential>>) -> Option<Vec<Option<i64>>> {
    let ends = |credential: &Credential| credential.ends.map(Timestamp::as_microsecond);
    sparse(all.map(|credential| credential.and_then(ends)).collect())
}

/// Under which rules each item was allowed.
pub(super) fn rules_of<'a>(all: impl Iterator<Item = &'a By>) -> Option<Vec<Option<i64>>> {
    sparse(all.map(|by| by.rules).collect())
}

row! {
    /// What `acts.seal` returns per item.
    struct SealRow {
        verdict: String,
        token: Option<i64>,
        acquired_us: Option<i64>,
        ttl_ms: Option<i64>,
        remaining_ms: Option<i64>,
        versions: Option<Vec<i64>>,
        resource: Option<String>,
        owner: Option<String>,
        age_ms: Option<i64>,
        hold_until_us: Option<i64>,
        metadata: Option<String>,
        taken_resources: Option<Vec<String>>,
        taken_held_ms: Option<Vec<i64>>,
        unconfirmed: Option<bool>,
        writers: Option<Vec<String>>,
        flushed: i64,
    }
}

impl SealRow {
    fn grant(&self, item: &SealItem) -> Result<Grant, LedgerError> {
        Ok(Grant {
            lock: item.lock,
            resources: item.resources.clone(),
            token: token(self.token.unwrap_or(0))?,
            owner: item.owner.clone(),
            principal: item.principal.clone(),
            writers: writers(self.writers.clone())?,
            metadata: noted(self.metadata.as_deref())?,
            state: state(self.remaining_ms),
            ttl: Ttl::from_ms(self.ttl_ms.unwrap_or(0)),
            unconfirmed: self.unconfirmed.unwrap_or(false),
            hold_until: self.hold_until_us.map(time),
            remaining_ms: self.remaining_ms.unwrap_or(0),
            acquired_at: time(self.acquired_us.unwrap_or(0)),
            versions: self.versions.clone().unwrap_or_default(),
        })
    }

    fn taken_over(&self) -> Result<Vec<TakenOver>, LedgerError> {
        let names = self.taken_resources.iter().flatten();
        let held = self.taken_held_ms.iter().flatten();
        names
            .zip(held)
            .map(|(name, held_ms)| {
                Ok(TakenOver { resource: resource_name(name.clone())?, held_ms: *held_ms })
            })
            .collect()
    }

    fn verdict(&self, item: &SealItem) -> Result<SealVerdict, LedgerError> {
        let blocker = || resource_name(self.resource.clone().unwrap_or_default());
        Ok(match self.verdict.as_str() {
            "sealed" => SealVerdict::Sealed(self.grant(item)?, self.taken_over()?),
            "drains" | "drains_still" => {
                SealVerdict::Drains { resource: blocker()?, taken_over: self.taken_over()? }
            }
            "draining" => SealVerdict::Draining(blocker()?),
            "again" => SealVerdict::Again(self.grant(item)?),
            held @ ("held" | "held_breaking" | "held_draining") => SealVerdict::Held(Holder {
                resource: blocker()?,
                owner: self.owner.clone().unwrap_or_default(),
                state: match held {
                    "held_breaking" => LockState::Breaking,
                    "held_draining" => LockState::Draining,
                    _ => LockState::Leased,
                },
                age_ms: self.age_ms.unwrap_or(0).max(0),
                remaining_ms: self.remaining_ms.unwrap_or(0),
            }),
            "queued" => SealVerdict::Queued,
            "too_low" => SealVerdict::NumberTooLow,
            "frozen" => SealVerdict::Frozen(blocker()?),
            "order_stale" => SealVerdict::OrderStale(blocker()?),
            "hold_exceeded" => SealVerdict::HoldExceeded,
            "conflict" => SealVerdict::Conflict,
            "not_found" => SealVerdict::NotFound,
            "rules_moved" => SealVerdict::RulesMoved,
            "busy" => SealVerdict::Busy,
            other => match stop(other) {
                Some(Stop::Ended(how)) => SealVerdict::Ended(how),
                Some(Stop::Breaking) => SealVerdict::Breaking,
                None => return Err(unknown_verdict(other)),
            },
        })
    }
}

/// The resources of all items, sorted, beside the position of their item: the functions have no lists of
/// lists.
pub(super) fn flat<'a>(
    items: impl Iterator<Item = &'a [ResourceName]>,
) -> (Vec<&'a str>, Vec<i32>) {
    let mut resources: Vec<(&ResourceName, i32)> = Vec::new();
    for (names, position) in items.zip(1..) {
        resources.extend(names.iter().map(|name| (name, position)));
    }
    resources.sort_unstable();
    resources.iter().map(|(name, position)| (name.as_str(), *position)).unzip()
}

pub(super) async fn seal(
    sessions: &Sessions,
    epoch: i64,
    items: &[SealItem],
    patience: Patience,
) -> Result<Vec<SealVerdict>, LedgerError> {
    let (names, positions) = flat(items.iter().map(|item| item.resources.as_slice()));
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, SealRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".seal($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                                      $15, $16, $17, $18, $19, $20, $21, $22, $23)"
    ))
    .bind(epoch)
    .bind(session.seen)
    .bind(wait_ms(patience))
    .bind(names)
    .bind(positions)
    .bind(items.iter().map(|item| item.lock.0).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.owner.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.asked_ttl().map(Ttl::as_ms)).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.number).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.from().map(|from| from.0)).collect::<Vec<_>>())
    .bind(items.iter().map(|item| attempt(item.attempt)).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.max_hold.map(MaxHold::as_ms)).collect::<Vec<_>>())
    .bind(items.iter().map(|item| note(&item.metadata)).collect::<Vec<_>>())
    .bind(items.iter().map(|item| fence(item.kind).map(|(_, force)| force)).collect::<Vec<_>>())
    .bind(items.iter().map(|item| fence(item.kind).and_then(|it| it.0)).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.waits).collect::<Vec<_>>())
    .bind(names_of(items.iter().map(|item| &item.by)))
    .bind(sparse(
        items.iter().map(|item| item.principal.as_ref().map(PrincipalName::as_str)).collect(),
    ))
    .bind(sparse(items.iter().map(|item| writers_text(&item.writers)).collect()))
    .bind(rules_of(items.iter().map(|item| &item.by)))
    .bind(asked_of(items.iter().map(|item| &item.by)))
    .bind(credentials_of(items.iter().map(SealItem::credential)))
    .bind(ends_of(items.iter().map(SealItem::credential)))
    .fetch_all(&mut session.connection);
    let answer = sessions.answer(call).await;
    let Some(rows) = sessions.settle_seen(session, answer, |row| row.flushed).await? else {
        return Ok(items.iter().map(|_| SealVerdict::Busy).collect());
    };
    let verdicts = rows.iter().zip(items).map(|(row, item)| row.verdict(item));
    verdicts.collect::<Result<_, _>>().map_err(unreadable)
}

row! {
    /// What `acts.renew` returns per item.
    struct RenewRow {
        verdict: String,
        token: Option<i64>,
        acquired_us: Option<i64>,
        ttl_ms: Option<i64>,
        remaining_ms: Option<i64>,
        versions: Option<Vec<i64>>,
        resources: Option<Vec<String>>,
        owner: Option<String>,
        lapsed_ms: Option<i64>,
        hold_until_us: Option<i64>,
        metadata: Option<String>,
        writers: Option<Vec<String>>,
        flushed: i64,
    }
}

impl RenewRow {
    fn verdict(self, item: &RenewItem) -> Result<RenewVerdict, LedgerError> {
        Ok(match self.verdict.as_str() {
            "renewed" => RenewVerdict::Renewed {
                grant: Grant {
                    lock: item.lock,
                    resources: names(self.resources)?,
                    token: token(self.token.unwrap_or(0))?,
                    owner: self.owner.unwrap_or_default(),
                    principal: item.by.principal().cloned(),
                    writers: writers(self.writers)?,
                    metadata: noted(self.metadata.as_deref())?,
                    state: state(self.remaining_ms),
                    ttl: Ttl::from_ms(self.ttl_ms.unwrap_or(0)),
                    unconfirmed: false,
                    hold_until: self.hold_until_us.map(time),
                    remaining_ms: self.remaining_ms.unwrap_or(0),
                    acquired_at: time(self.acquired_us.unwrap_or(0)),
                    versions: self.versions.unwrap_or_default(),
                },
                lapsed_ms: self.lapsed_ms,
            },
            "not_found" => RenewVerdict::NotFound,
            "draining" => RenewVerdict::Draining,
            "hold_exceeded" => RenewVerdict::HoldExceeded,
            "rules_moved" => RenewVerdict::RulesMoved,
            "busy" => RenewVerdict::Busy,
            other => match stop(other) {
                Some(Stop::Ended(how)) => RenewVerdict::Ended(how),
                Some(Stop::Breaking) => RenewVerdict::Breaking,
                None => return Err(unknown_verdict(other)),
            },
        })
    }
}

pub(super) fn names(names: Option<Vec<String>>) -> Result<Vec<ResourceName>, LedgerError> {
    names.unwrap_or_default().into_iter().map(resource_name).collect()
}

pub(super) async fn renew(
    sessions: &Sessions,
    items: &[RenewItem],
    patience: Patience,
) -> Result<Vec<RenewVerdict>, LedgerError> {
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, RenewRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".renew($1, $2, $3, $4, $5, $6, $7, $8)"
    ))
    .bind(session.seen)
    .bind(wait_ms(patience))
    .bind(items.iter().map(|item| item.lock.0).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.ttl.map(Ttl::as_ms)).collect::<Vec<_>>())
    .bind(principals_of(items.iter().map(|item| &item.by)))
    .bind(rules_of(items.iter().map(|item| &item.by)))
    .bind(credentials_of(items.iter().map(|item| item.by.credential())))
    .bind(ends_of(items.iter().map(|item| item.by.credential())))
    .fetch_all(&mut session.connection);
    let answer = sessions.answer(call).await;
    let Some(rows) = sessions.settle_seen(session, answer, |row| row.flushed).await? else {
        return Ok(items.iter().map(|_| RenewVerdict::Busy).collect());
    };
    let verdicts = rows.into_iter().zip(items).map(|(row, item)| row.verdict(item));
    verdicts.collect::<Result<_, _>>().map_err(unreadable)
}

row! {
    /// What `acts.release` returns per item.
    struct ReleaseRow {
        verdict: String,
        held_ms: Option<i64>,
        resources: Option<Vec<String>>,
        number: Option<i64>,
        waited_for: Option<bool>,
        flushed: i64,
    }
}

pub(super) async fn release(
    sessions: &Sessions,
    items: &[ReleaseItem],
    patience: Patience,
) -> Result<Vec<ReleaseVerdict>, LedgerError> {
    let since = |item: &ReleaseItem| item.unless_renewed_since.map(|at| at.as_microsecond());
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, ReleaseRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".release($1, $2, $3, $4, $5, $6, $7)"
    ))
    .bind(session.seen)
    .bind(wait_ms(patience))
    .bind(items.iter().map(|item| item.lock.0).collect::<Vec<_>>())
    .bind(items.iter().map(since).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.may_bury).collect::<Vec<_>>())
    .bind(principals_of(items.iter().map(|item| &item.by)))
    .bind(rules_of(items.iter().map(|item| &item.by)))
    .fetch_all(&mut session.connection);
    let answer = sessions.answer(call).await;
    let Some(rows) = sessions.settle_seen(session, answer, |row| row.flushed).await? else {
        return Ok(items.iter().map(|_| ReleaseVerdict::Busy).collect());
    };
    let verdict = |row: ReleaseRow| {
        Ok(match row.verdict.as_str() {
            "released" => {
                let number = row.number.unwrap_or(0);
                let trace = |resource| Ended { resource, number };
                ReleaseVerdict::Released {
                    held_ms: row.held_ms.unwrap_or(0).max(0),
                    ended: names(row.resources)?.into_iter().map(trace).collect(),
                    waited_for: row.waited_for.unwrap_or(false),
                }
            }
            "left" => ReleaseVerdict::Left(names(row.resources)?),
            "ended" => ReleaseVerdict::AlreadyEnded,
            "buried" => ReleaseVerdict::Buried,
            "unknown" => ReleaseVerdict::Unknown,
            "not_found" => ReleaseVerdict::NotFound,
            "rules_moved" => ReleaseVerdict::RulesMoved,
            "kept" => ReleaseVerdict::Kept,
            "busy" => ReleaseVerdict::Busy,
            other => return Err(unknown_verdict(other)),
        })
    };
    rows.into_iter().map(verdict).collect::<Result<_, _>>().map_err(unreadable)
}

row! {
    /// What `acts.break_locks` returns per item.
    struct BreakRow {
        verdict: String,
        due_ms: Option<i64>,
        held_ms: Option<i64>,
        number: Option<i64>,
        flushed: i64,
    }
}

pub(super) async fn break_locks(
    sessions: &Sessions,
    items: &[BreakItem],
    patience: Patience,
) -> Result<Vec<BreakVerdict>, LedgerError> {
    let after = |item: &BreakItem| i64::try_from(item.after.as_millis()).unwrap_or(i64::MAX);
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, BreakRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".break_locks($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    ))
    .bind(session.seen)
    .bind(wait_ms(patience))
    .bind(items.iter().map(|item| item.resource.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.token.get()).collect::<Vec<_>>())
    .bind(items.iter().map(after).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.reason.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.request_id.as_str()).collect::<Vec<_>>())
    .bind(asked_of(items.iter().map(|item| &item.by)))
    .bind(rules_of(items.iter().map(|item| &item.by)))
    .fetch_all(&mut session.connection);
    let answer = sessions.answer(call).await;
    let Some(rows) = sessions.settle_seen(session, answer, |row| row.flushed).await? else {
        return Ok(items.iter().map(|_| BreakVerdict::Busy).collect());
    };
    let verdict = |(row, item): (&BreakRow, &BreakItem)| {
        let trace = |number| Ended { resource: item.resource.clone(), number };
        Ok(match row.verdict.as_str() {
            "broken" => BreakVerdict::Broken {
                held_ms: row.held_ms.map(|ms| ms.max(0)),
                ended: row.number.map(trace),
            },
            "breaking" => BreakVerdict::Breaking { due_ms: row.due_ms.unwrap_or(0) },
            "not_held" => BreakVerdict::NotHeld,
            "no_fence" => BreakVerdict::NoFence,
            "rules_moved" => BreakVerdict::RulesMoved,
            "busy" => BreakVerdict::Busy,
            other => return Err(unknown_verdict(other)),
        })
    };
    rows.iter().zip(items).map(verdict).collect::<Result<_, _>>().map_err(unreadable)
}

pub(super) fn busy() -> LedgerError {
    LedgerError::Unavailable("the guard stayed locked by somebody else".into())
}

row! {
    /// A row of `fencegate.seal_guard`.
    pub(super) struct EpochRow {
        epoch: i64,
        nonce: Uuid,
        base: i64,
        open: bool,
        ledger: Uuid,
    }
}

impl From<EpochRow> for Epoch {
    fn from(row: EpochRow) -> Self {
        let EpochRow { epoch: number, nonce, base, open, ledger } = row;
        Self { number, nonce, base, open, ledger }
    }
}

pub(super) async fn epoch(sessions: &Sessions) -> Result<Epoch, LedgerError> {
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, EpochRow>(concat!("SELECT * FROM ", acts!(), ".epoch($1)"))
        .bind(session.seen)
        .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    let row = sessions.settle_act(session, answer).await.map_err(harmless)?;
    row.map(Epoch::from).ok_or_else(busy)
}

pub(super) async fn open_epoch(sessions: &Sessions, nonce: Uuid) -> Result<Epoch, LedgerError> {
    let mut session = sessions.take_for_act().await?;
    let call =
        sqlx::query_as::<_, EpochRow>(concat!("SELECT * FROM ", acts!(), ".open_epoch($1, $2)"))
            .bind(session.seen)
            .bind(nonce)
            .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    // Opening the same epoch twice is the same as once.
    let row = sessions.settle_act(session, answer).await.map_err(harmless)?;
    row.map(Epoch::from).ok_or_else(busy)
}

pub(super) async fn sweep(sessions: &Sessions, retention: &Retention) -> Result<u64, LedgerError> {
    let seconds = |keep: std::time::Duration| keep.as_secs_f64();
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_scalar::<_, i64>(concat!(
        "SELECT ",
        acts!(),
        ".sweep($1, $2, $3, $4, $5, $6, $7)"
    ))
    .bind(session.seen)
    .bind(seconds(retention.keys))
    .bind(seconds(retention.ended_locks))
    .bind(seconds(retention.buried))
    .bind(retention.rejections_max)
    .bind(unknown_max(retention.rejections_max))
    .bind(retention.rows_per_pass)
    .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    // What a pass did not do, the next one does.
    let rows = sessions.settle_act(session, answer).await.map_err(harmless)?;
    let swept = rows.map_or(0, i64::unsigned_abs);
    let Some(history) = retention.history else { return Ok(swept) };
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_scalar::<_, i64>(concat!("SELECT ", acts!(), ".prune($1, $2, $3)"))
        .bind(session.seen)
        .bind(seconds(history))
        .bind(retention.rows_per_pass)
        .fetch_one(&mut session.connection);
    let answer = sessions.answer(call).await;
    let rows = sessions.settle_act(session, answer).await.map_err(harmless)?;
    Ok(swept + rows.map_or(0, i64::unsigned_abs))
}
