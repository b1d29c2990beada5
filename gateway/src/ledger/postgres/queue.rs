//! The queue, as calls of `schema/postgres/acts/queue.sql`.

use async_trait::async_trait;
use fence_core::ports::{
    Call, Holder, InLine, JoinItem, JoinVerdict, LedgerError, LinePage, Listener, Patience,
    Standing,
};
use fence_core::{LockId, PrincipalName, ResourceName};
use sqlx::postgres::{PgListener, PgPoolOptions};
use uuid::Uuid;

use super::locks::{flat, principals_of, rules_of, unknown_verdict};
use super::reads::{fetch, fetch_anyway, state};
use super::session::{Sessions, harmless, pin_path, unreadable};
use super::wait_ms;
use crate::ledger::{end, resource_name, time};

row! {
    struct StandingRow {
        owner: Option<String>,
        state: Option<String>,
        age_ms: Option<i64>,
        remaining_ms: Option<i64>,
        queued: bool,
    }
}

pub(super) async fn look(
    sessions: &Sessions,
    names: &[ResourceName],
) -> Result<Vec<Standing>, LedgerError> {
    let query = sqlx::query_as::<_, StandingRow>(
        concat!("SELECT v.owner, v.state, v.age_ms, v.remaining_ms,
                EXISTS (SELECT FROM fencegate.waiter_resources q WHERE q.resource = n.name)
                    AND ", acts!(), ".is_ahead(ARRAY[n.name], NULL, clock_timestamp()) AS queued
         FROM unnest($1::text[]) WITH ORDINALITY n (name, i)
         LEFT JOIN LATERAL (
             SELECT v.owner, v.state, v.age_ms, v.remaining_ms
             FROM ", acts!(), ".views v JOIN fencegate.fences f USING (resource)
             CROSS JOIN fencegate.seal_guard g
             WHERE v.resource = n.name AND v.state IN ('leased', 'breaking', 'draining')
               AND v.token > g.floor
               AND (f.break_due IS NULL OR f.break_due > clock_timestamp())
             -- There is one at most; said, because a view that reads the clock would else be made whole.
             LIMIT 1) v ON true
         ORDER BY n.i"),
    )
    .bind(names.iter().map(ResourceName::as_str).collect::<Vec<_>>());
    let rows: Vec<StandingRow> = fetch!(sessions, fetch_all, query)?;
    let standing = |(row, name): (StandingRow, &ResourceName)| {
        let holder = match (row.owner, row.state) {
            (Some(owner), Some(word)) => Some(Holder {
                resource: name.clone(),
                owner,
                state: state(&word)?,
                age_ms: row.age_ms.unwrap_or(0).max(0),
                remaining_ms: row.remaining_ms.unwrap_or(0),
            }),
            _ => None,
        };
        Ok(Standing { holder, queued: row.queued })
    };
    rows.into_iter().zip(names).map(standing).collect()
}

pub(super) async fn join(
    sessions: &Sessions,
    items: &[JoinItem],
    patience: Patience,
) -> Result<Vec<JoinVerdict>, LedgerError> {
    let (names, positions) = flat(items.iter().map(|item| item.resources.as_slice()));
    let waiters_max = |item: &JoinItem| i64::try_from(item.waiters_max).unwrap_or(i64::MAX);
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, (String, i64)>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".join($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
    ))
    .bind(session.seen)
    .bind(wait_ms(patience))
    .bind(names)
    .bind(positions)
    .bind(items.iter().map(|item| item.lock.0).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.owner.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.gateway).collect::<Vec<_>>())
    .bind(items.iter().map(waiters_max).collect::<Vec<_>>())
    .bind(principals_of(items.iter().map(|item| &item.by)))
    .bind(rules_of(items.iter().map(|item| &item.by)))
    .fetch_all(&mut session.connection);
    let answer = sessions.answer(call).await;
    let Some(rows) = sessions.settle_seen(session, answer, |row| row.1).await? else {
        return Ok(items.iter().map(|_| JoinVerdict::Busy).collect());
    };
    let verdict = |(word, _): (String, i64)| {
        Ok(match word.as_str() {
            "waiting" => JoinVerdict::Waiting,
            "free" => JoinVerdict::Free,
            "known" => JoinVerdict::Known,
            "conflict" => JoinVerdict::Conflict,
            "full" => JoinVerdict::Full,
            "rules_moved" => JoinVerdict::RulesMoved,
            "busy" => JoinVerdict::Busy,
            other => match end(other) {
                Ok(how) => JoinVerdict::Ended(how),
                Err(_) => return Err(unknown_verdict(other)),
            },
        })
    };
    rows.into_iter().map(verdict).collect::<Result<_, _>>().map_err(unreadable)
}

pub(super) async fn keep_places(
    sessions: &Sessions,
    gateway: Uuid,
    locks: &[LockId],
) -> Result<(), LedgerError> {
    let ids: Vec<Uuid> = locks.iter().map(|id| id.0).collect();
    let query =
        sqlx::query(concat!("SELECT ", acts!(), ".keep_places($1, $2)")).bind(gateway).bind(ids);
    fetch_anyway!(sessions, execute, query).map(drop)
}

pub(super) async fn roll_call(
    sessions: &Sessions,
    gateway: Uuid,
) -> Result<Vec<LockId>, LedgerError> {
    let query = sqlx::query_scalar::<_, Uuid>(
        "SELECT w.lock_id FROM fencegate.waiters w
         WHERE w.gateway = $1 AND w.kept_until IS NULL",
    )
    .bind(gateway);
    let ids: Vec<Uuid> = fetch_anyway!(sessions, fetch_all, query)?;
    Ok(ids.into_iter().map(LockId).collect())
}

row! {
    struct CallRow {
        resource: String,
        called: Option<Uuid>,
        gateway: Uuid,
        next_ms: Option<i64>,
    }
}

pub(super) async fn call_next(
    sessions: &Sessions,
    gateway: Uuid,
    able: Option<bool>,
    names: &[ResourceName],
) -> Result<Vec<Call>, LedgerError> {
    let query =
        sqlx::query_as::<_, CallRow>(concat!("SELECT * FROM ", acts!(), ".call_next($1, $2, $3)"))
            .bind(gateway)
            .bind(able)
            .bind(names.iter().map(ResourceName::as_str).collect::<Vec<_>>());
    let rows: Vec<CallRow> = fetch_anyway!(sessions, fetch_all, query)?;
    let call = |row: CallRow| {
        Ok(Call {
            resource: resource_name(row.resource)?,
            called: row.called.map(LockId),
            gateway: row.gateway,
            next_ms: row.next_ms,
        })
    };
    rows.into_iter().map(call).collect()
}

pub(super) async fn position(
    sessions: &Sessions,
    lock: LockId,
    principal: Option<&PrincipalName>,
) -> Result<Option<i64>, LedgerError> {
    let query = sqlx::query_scalar::<_, Option<i64>>(concat!(
        "SELECT ",
        acts!(),
        ".queue_position($1, $2)"
    ));
    let query = query.bind(lock.0).bind(principal.map(PrincipalName::as_str));
    fetch!(sessions, fetch_one, query)
}

row! {
    struct InLineRow {
        ticket: i64,
        owner: String,
        since_us: i64,
        position: i64,
        present: bool,
    }
}

pub(super) async fn waiters(
    sessions: &Sessions,
    name: &ResourceName,
    page: LinePage,
) -> Result<Vec<InLine>, LedgerError> {
    let query = sqlx::query_as::<_, InLineRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".waiters_of($1, $2, $3)"
    ))
    .bind(name.as_str())
    .bind(page.after.unwrap_or(0))
    .bind(page.limit);
    let rows: Vec<InLineRow> = fetch!(sessions, fetch_all, query)?;
    let seen = |row: InLineRow| InLine {
        ticket: row.ticket,
        owner: row.owner,
        since: time(row.since_us),
        position: row.position,
        present: row.present,
    };
    Ok(rows.into_iter().map(seen).collect())
}

/// A connection that hears what other gateways notify this one of.
struct Notified(PgListener);

#[async_trait]
impl Listener for Notified {
    async fn heard(&mut self) -> Result<LockId, LedgerError> {
        loop {
            // Not `recv`, which connects anew in silence: what was said meanwhile is lost, and the
            // engine must know to ask.
            match self.0.try_recv().await {
                Ok(Some(notice)) => {
                    if let Ok(id) = notice.payload().parse() {
                        return Ok(LockId(id));
                    }
                }
                Ok(None) => return Err(LedgerError::Unavailable("the listener was cut".into())),
                Err(error) => return Err(LedgerError::Unavailable(error.to_string())),
            }
        }
    }
}

pub(super) async fn listen(
    sessions: &Sessions,
    gateway: Uuid,
) -> Result<Box<dyn Listener>, LedgerError> {
    let unavailable = |error: sqlx::Error| LedgerError::Unavailable(error.to_string());
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .after_connect(|connection, _| Box::pin(pin_path(connection)))
        .connect_lazy_with(sessions.options());
    let mut listener = PgListener::connect_with(&pool).await.map_err(unavailable)?;
    listener.listen(&format!("fencegate_{}", gateway.simple())).await.map_err(unavailable)?;
    Ok(Box::new(Notified(listener)))
}
