//! What the ledger knows of upstreams, as calls of `schema/postgres/acts/upstreams.sql`.

use std::sync::Arc;

use async_trait::async_trait;
use fence_core::ports::{
    CloseItem, Doubt, DrainedUpstream, ForwardEnd, Intent, IntentFilter, IntentItem, IntentVerdict,
    Intents, LedgerError, OpenIntents, Patience, Resolution, Resolved,
};
use fence_core::{LockId, OperationId, ResourceName};
use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;

use super::locks::{names, names_of, rules_of, unknown_verdict};
use super::reads::{fetch, fetch_anyway};
use super::session::{harmless, unreadable};
use super::write::{GrantColumns, refusal};
use super::{PgLedger, attempt, wait_ms};
use crate::ledger::rows::IntentRow;
use crate::ledger::{resource_name, time};

/// How long these acts wait for rows that somebody else has locked: nothing else waits for them.
const WAIT_MS: i32 = 500;

row! {
    /// What `acts.open_intents` returns per item.
    struct OpenRow {
        verdict: String,
        flushed: i64,
        ..grant: GrantColumns,
    }
}

impl OpenRow {
    fn verdict(self) -> Result<IntentVerdict, LedgerError> {
        match self.verdict.as_str() {
            "admitted" => Ok(IntentVerdict::Admitted),
            "buried" => Ok(IntentVerdict::Buried),
            "rules_moved" => Ok(IntentVerdict::RulesMoved),
            "busy" => Ok(IntentVerdict::Busy),
            word => refusal(word, self.grant).map(IntentVerdict::Refused),
        }
    }
}

fn delay_ms(delay: Option<std::time::Duration>) -> Option<i64> {
    delay.map(|delay| i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))
}

fn busy() -> LedgerError {
    LedgerError::Unavailable("a row stayed locked by somebody else".into())
}

row! {
    /// A row of `fencegate.drained_upstreams` in doubt.
    struct DoubtRow {
        name: String,
        resource_prefix: String,
        doubt_floor: i64,
        since_us: i64,
        ends_us: Option<i64>,
    }
}

const INTENTS: &str = "SELECT u.*, fencegate.micros(u.opened_at) AS opened_us,
            fencegate.millis(clock_timestamp() - u.opened_at) AS age_ms,
            fencegate.micros(u.closes_at) AS closes_us
     FROM fencegate.upstream_intents u
     WHERE u.closed IS NULL AND (u.closes_at IS NULL OR u.closes_at > clock_timestamp())";

#[async_trait]
impl Intents for PgLedger {
    async fn register_upstreams(&self, upstreams: &[DrainedUpstream]) -> Result<(), LedgerError> {
        if upstreams.is_empty() {
            return Ok(());
        }
        let column =
            |of: fn(&DrainedUpstream) -> &str| upstreams.iter().map(of).collect::<Vec<_>>();
        let delays: Vec<_> = upstreams.iter().map(|one| delay_ms(one.max_effect_delay)).collect();
        let mut session = self.sessions.take().await?;
        let call = sqlx::query(concat!("SELECT ", acts!(), ".register_upstreams($1, $2, $3)"))
            .bind(column(|one| &one.name))
            .bind(column(|one| &one.resource_prefix))
            .bind(delays)
            .execute(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        // Registering twice is the same as once.
        self.sessions.settle(session, answer.map(drop)).map_err(harmless)
    }

    #[tracing::instrument(level = "debug", name = "ledger.open_intents", skip_all)]
    async fn open_intents(
        &self,
        items: Arc<[IntentItem]>,
        patience: Patience,
    ) -> Result<Vec<IntentVerdict>, LedgerError> {
        let text = |of: fn(&IntentItem) -> &str| items.iter().map(of).collect::<Vec<_>>();
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query_as::<_, OpenRow>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".open_intents($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                                                  $13, $14, $15, $16, $17)"
        ))
        .bind(session.seen)
        .bind(wait_ms(patience))
        .bind(items.iter().map(|item| item.operation.0).collect::<Vec<_>>())
        .bind(items.iter().map(|item| attempt(item.attempt)).collect::<Vec<_>>())
        .bind(text(|item| item.resource.as_str()))
        .bind(items.iter().map(|item| item.token.get()).collect::<Vec<_>>())
        .bind(items.iter().map(|item| item.lock.map(|lock| lock.0)).collect::<Vec<_>>())
        .bind(items.iter().map(|item| item.sequence).collect::<Vec<_>>())
        .bind(items.iter().map(|item| item.resource_version).collect::<Vec<_>>())
        .bind(items.iter().map(|item| item.drained).collect::<Vec<_>>())
        .bind(text(|item| &item.upstream))
        .bind(text(|item| &item.method))
        .bind(text(|item| &item.path))
        .bind(items.iter().map(|item| item.gateway).collect::<Vec<_>>())
        .bind(items.iter().map(|item| delay_ms(item.max_effect_delay)).collect::<Vec<_>>())
        .bind(names_of(items.iter().map(|item| &item.by)))
        .bind(rules_of(items.iter().map(|item| &item.by)))
        .fetch_all(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        let Some(rows) = self.sessions.settle_seen(session, answer, |row| row.flushed).await?
        else {
            return Ok(items.iter().map(|_| IntentVerdict::Busy).collect());
        };
        rows.into_iter().map(OpenRow::verdict).collect::<Result<_, _>>().map_err(unreadable)
    }

    #[tracing::instrument(level = "debug", name = "ledger.close_intents", skip_all)]
    async fn close_intents(&self, items: &[CloseItem]) -> Result<Vec<ResourceName>, LedgerError> {
        let status = |item: &CloseItem| match item.end {
            ForwardEnd::Answered(status) => Some(i32::from(status)),
            ForwardEnd::Unsent => None,
        };
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query_scalar::<_, Vec<String>>(concat!(
            "SELECT ",
            acts!(),
            ".close_intents($1, $2, $3)"
        ))
        .bind(session.seen)
        .bind(items.iter().map(|item| item.operation.0).collect::<Vec<_>>())
        .bind(items.iter().map(status).collect::<Vec<_>>())
        .fetch_one(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        let waiting = self.sessions.settle_act(session, answer).await?.ok_or_else(busy)?;
        names(Some(waiting)).map_err(unreadable)
    }

    #[tracing::instrument(level = "debug", name = "ledger.complete_drains", skip_all)]
    async fn complete_drains(
        &self,
        gateway: Uuid,
        resources: Option<&[ResourceName]>,
    ) -> Result<Vec<LockId>, LedgerError> {
        let wanted: Option<Vec<&str>> =
            resources.map(|names| names.iter().map(ResourceName::as_str).collect());
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query_scalar::<_, Vec<Uuid>>(concat!(
            "SELECT ",
            acts!(),
            ".complete_drains($1, $2, $3)"
        ))
        .bind(session.seen)
        .bind(WAIT_MS)
        .bind(wanted)
        .fetch_one(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        // What was not done, or not heard of, the next pass does.
        let done = self.sessions.settle_act(session, answer).await.map_err(harmless)?;
        let done = done.unwrap_or_default();
        if !done.is_empty() {
            let query = sqlx::query(concat!("SELECT ", acts!(), ".wake_callers($1, $2)"))
                .bind(gateway)
                .bind(&done);
            fetch_anyway!(self.sessions, execute, query)?;
        }
        Ok(done.into_iter().map(LockId).collect())
    }

    async fn intents(&self, filter: IntentFilter) -> Result<Vec<Intent>, LedgerError> {
        let mut query: QueryBuilder<Postgres> = QueryBuilder::new(INTENTS);
        if let Some(upstream) = filter.upstream {
            query.push(" AND u.upstream = ").push_bind(upstream);
        }
        if let Some(resource) = filter.resource {
            query.push(" AND u.resource = ").push_bind(resource.to_string());
        }
        if let Some((at, id)) = filter.after {
            query.push(" AND (fencegate.micros(u.opened_at), u.operation) > (");
            query.push_bind(at.as_microsecond()).push(", ").push_bind(id.0).push(")");
        }
        query.push(" ORDER BY u.opened_at, u.operation LIMIT ").push_bind(filter.limit);
        let query = query.build_query_as::<IntentRow>();
        let rows: Vec<IntentRow> = fetch!(self.sessions, fetch_all, query)?;
        rows.into_iter().map(IntentRow::intent).collect()
    }

    async fn intents_open(&self) -> Result<OpenIntents, LedgerError> {
        let query = sqlx::query_as(
            "SELECT count(*), greatest(0, fencegate.millis(clock_timestamp() - min(u.opened_at)))
             FROM fencegate.upstream_intents u
             WHERE u.closed IS NULL AND (u.closes_at IS NULL OR u.closes_at > clock_timestamp())",
        );
        let (count, oldest_age_ms): (i64, i64) = fetch!(self.sessions, fetch_one, query)?;
        Ok(OpenIntents { count, oldest_age_ms })
    }

    async fn doubts(&self) -> Result<Vec<Doubt>, LedgerError> {
        let query = sqlx::query_as::<_, DoubtRow>(
            "SELECT * FROM (
                 SELECT d.name, d.resource_prefix, d.doubt_floor,
                        fencegate.micros(d.doubt_since) AS since_us,
                        fencegate.micros(d.doubt_since)
                            + d.max_effect_delay_ms * 1000 AS ends_us
                 FROM fencegate.drained_upstreams d WHERE d.doubt_floor IS NOT NULL) d
             WHERE d.ends_us IS NULL OR d.ends_us > fencegate.micros(clock_timestamp())
             ORDER BY d.name, d.resource_prefix",
        );
        let rows: Vec<DoubtRow> = fetch!(self.sessions, fetch_all, query)?;
        let doubt = |row: DoubtRow| Doubt {
            upstream: row.name,
            resource_prefix: row.resource_prefix,
            floor: row.doubt_floor,
            since: time(row.since_us),
            ends_at: row.ends_us.map(time),
        };
        Ok(rows.into_iter().map(doubt).collect())
    }

    async fn resolve_intent(
        &self,
        id: OperationId,
        resolution: Resolution,
    ) -> Result<Resolved, LedgerError> {
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query_as::<_, (String, Option<String>)>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".resolve_intent($1, $2, $3, $4, $5, $6, $7)"
        ))
        .bind(session.seen)
        .bind(WAIT_MS)
        .bind(id.0)
        .bind(resolution.reason)
        .bind(resolution.request_id)
        .bind(resolution.by.asked())
        .bind(resolution.by.rules)
        .fetch_one(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        let row = self.sessions.settle_act(session, answer).await?.ok_or_else(busy)?;
        match (row.0.as_str(), row.1) {
            ("now", Some(resource)) => resource_name(resource).map(Resolved::Now),
            ("before", _) => Ok(Resolved::Before),
            ("not_found", _) => Ok(Resolved::NotFound),
            (other, _) => Err(unknown_verdict(other)),
        }
        .map_err(unreadable)
    }

    async fn resolve_doubts(
        &self,
        upstream: &str,
        resolution: Resolution,
    ) -> Result<Option<i64>, LedgerError> {
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query_scalar::<_, Option<i64>>(concat!(
            "SELECT ",
            acts!(),
            ".resolve_doubts($1, $2, $3, $4, $5, $6)"
        ))
        .bind(session.seen)
        .bind(upstream)
        .bind(resolution.reason)
        .bind(resolution.request_id)
        .bind(resolution.by.asked())
        .bind(resolution.by.rules)
        .fetch_one(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        self.sessions.settle_act(session, answer).await?.ok_or_else(busy)
    }
}
