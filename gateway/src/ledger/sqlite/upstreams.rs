//! What the ledger on SQLite knows of upstreams: the acts on intents, and their rows.

use std::sync::Arc;

use async_trait::async_trait;
use fence_core::acts::{self, ForwardRow, Now, Rows, UpstreamRow};
use fence_core::ports::{
    CloseItem, Doubt, DrainedUpstream, ForwardEnd, ForwardRecord, Intent, IntentEnd, IntentFilter,
    IntentItem, IntentVerdict, Intents, LedgerError, OpenIntents, Patience, Resolution, Resolved,
    Retention,
};
use fence_core::{LockId, OperationId, ResourceName};
use jiff::Timestamp;
use sqlx::SqliteConnection;
use uuid::Uuid;

use super::columns::id;
use super::load::json;
use super::needs::Needs;
use super::{SqliteLedger, rolled_back};
use crate::ledger::rows::intent_end;
use crate::ledger::{resource_name, time, token};

row! {
    struct IntentColumns {
        operation: String,
        resource: String,
        token: i64,
        owner: String,
        upstream: String,
        method: String,
        path: String,
        gateway: String,
        opened_at: i64,
        closes_at: Option<i64>,
        closed: Option<String>,
        closed_at: Option<i64>,
        status: Option<i32>,
        reason: Option<String>,
    }
}

impl IntentColumns {
    fn row(self) -> Result<(OperationId, ForwardRow), LedgerError> {
        let closed = match self.closed.zip(self.closed_at) {
            Some((closed, at)) => Some((intent_end(&closed, self.status, self.reason)?, time(at))),
            None => None,
        };
        let row = ForwardRow {
            resource: resource_name(self.resource)?,
            token: token(self.token)?,
            owner: self.owner,
            upstream: self.upstream,
            method: self.method,
            path: self.path,
            gateway: id(&self.gateway)?,
            opened_at: time(self.opened_at),
            closes_at: self.closes_at.map(time),
            closed,
        };
        Ok((OperationId(id(&self.operation)?), row))
    }
}

row! {
    struct UpstreamColumns {
        name: String,
        resource_prefix: String,
        max_effect_delay_ms: Option<i64>,
        doubt_floor: Option<i64>,
        doubt_since: Option<i64>,
    }
}

/// Loads the intents of these operations and, where it matters, those open on the resources that are loaded,
/// and all upstreams.
pub(super) async fn load(
    connection: &mut SqliteConnection,
    rows: &mut Rows,
    needs: &Needs,
) -> Result<(), LedgerError> {
    if !needs.upstreams {
        return Ok(());
    }
    let locked = rows.locks.values().flat_map(|lock| &lock.resources);
    let names: Vec<&ResourceName> = locked.chain(&needs.resources).collect();
    let found: Vec<IntentColumns> = sqlx::query_as(
        "SELECT * FROM upstream_intents
         WHERE operation IN (SELECT value FROM json_each(?1))
            OR (resource IN (SELECT value FROM json_each(?2)) AND closed IS NULL)",
    )
    .bind(json(&needs.operations))
    .bind(json(names))
    .fetch_all(&mut *connection)
    .await
    .map_err(rolled_back)?;
    for columns in found {
        let (operation, row) = columns.row()?;
        rows.forwards.insert(operation, row);
    }
    let found: Vec<UpstreamColumns> = sqlx::query_as("SELECT * FROM drained_upstreams")
        .fetch_all(connection)
        .await
        .map_err(rolled_back)?;
    for columns in found {
        let row = UpstreamRow {
            max_effect_delay_ms: columns.max_effect_delay_ms,
            doubt: columns.doubt_floor.zip(columns.doubt_since.map(time)),
        };
        rows.upstreams.insert((columns.name, columns.resource_prefix), row);
    }
    Ok(())
}

/// Stores an intent, open or closed.
pub(super) async fn store_intent(
    connection: &mut SqliteConnection,
    rows: &Rows,
    operation: OperationId,
) -> Result<(), sqlx::Error> {
    let Some(row) = rows.forwards.get(&operation) else { return Ok(()) };
    let (closed, status, reason) = match &row.closed {
        None => (None, None, None),
        Some((IntentEnd::Known(ForwardEnd::Answered(status)), _)) => {
            (Some("answered"), Some(*status), None)
        }
        Some((IntentEnd::Known(ForwardEnd::Unsent), _)) => (Some("unsent"), None, None),
        Some((IntentEnd::Resolved(reason), _)) => (Some("resolved"), None, Some(reason)),
        Some((IntentEnd::Elapsed, _)) => (Some("elapsed"), None, None),
    };
    sqlx::query(
        "INSERT INTO upstream_intents (operation, resource, token, owner, upstream, method, path,
                                       gateway, opened_at, closes_at, closed, closed_at, status,
                                       reason)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
         ON CONFLICT (operation) DO UPDATE
         SET closed = ?11, closed_at = ?12, status = ?13, reason = ?14",
    )
    .bind(operation.to_string())
    .bind(row.resource.as_str())
    .bind(row.token.get())
    .bind(&row.owner)
    .bind(&row.upstream)
    .bind(&row.method)
    .bind(&row.path)
    .bind(row.gateway.to_string())
    .bind(row.opened_at.as_microsecond())
    .bind(row.closes_at.map(|at| at.as_microsecond()))
    .bind(closed)
    .bind(row.closed.as_ref().map(|(_, at)| at.as_microsecond()))
    .bind(status)
    .bind(reason)
    .execute(connection)
    .await?;
    Ok(())
}

/// Stores an upstream and its doubt.
pub(super) async fn store_upstream(
    connection: &mut SqliteConnection,
    rows: &Rows,
    name: &str,
    prefix: &str,
) -> Result<(), sqlx::Error> {
    let Some(row) = rows.upstreams.get(&(name.to_owned(), prefix.to_owned())) else {
        return Ok(());
    };
    sqlx::query(
        "INSERT INTO drained_upstreams (name, resource_prefix, max_effect_delay_ms, doubt_floor,
                                        doubt_since)
         VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (name, resource_prefix) DO UPDATE
         SET max_effect_delay_ms = ?3, doubt_floor = ?4, doubt_since = ?5",
    )
    .bind(name)
    .bind(prefix)
    .bind(row.max_effect_delay_ms)
    .bind(row.doubt.map(|(floor, _)| floor))
    .bind(row.doubt.map(|(_, since)| since.as_microsecond()))
    .execute(connection)
    .await?;
    Ok(())
}

/// After a re-fence: intents of every upstream may have been lost.
pub(super) async fn doubt_all(
    connection: &mut SqliteConnection,
    floor: i64,
    at: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE drained_upstreams SET doubt_floor = ?1, doubt_since = ?2")
        .bind(floor)
        .bind(at.as_microsecond())
        .execute(connection)
        .await?;
    Ok(())
}

/// Closes intents that count as closed, so that no clock step opens them again, and removes those that were
/// closed long ago. Says how many.
pub(super) async fn sweep(
    connection: &mut SqliteConnection,
    retention: &Retention,
    (now, own): (Now, Timestamp),
) -> Result<u64, sqlx::Error> {
    let elapsed = sqlx::query(
        "UPDATE upstream_intents SET closed = 'elapsed', closed_at = max(closes_at, ?3)
         WHERE operation IN (
             SELECT operation FROM upstream_intents WHERE closed IS NULL AND closes_at <= ?1
             ORDER BY closes_at LIMIT ?2)",
    )
    .bind(now.wall.as_microsecond())
    .bind(retention.rows_per_pass)
    .bind(own.as_microsecond())
    .execute(&mut *connection)
    .await?;
    let keep = i64::try_from(retention.intents().as_micros()).unwrap_or(i64::MAX);
    let removed = sqlx::query(
        "DELETE FROM upstream_intents WHERE operation IN (
             SELECT operation FROM upstream_intents WHERE closed IS NOT NULL AND closed_at < ?1
             ORDER BY closed_at LIMIT ?2)",
    )
    .bind(own.as_microsecond().saturating_sub(keep))
    .bind(retention.rows_per_pass)
    .execute(connection)
    .await?;
    Ok(elapsed.rows_affected() + removed.rows_affected())
}

impl SqliteLedger {
    /// The resources whose locks are not in force yet.
    async fn draining(&self) -> Result<Vec<ResourceName>, LedgerError> {
        let mut reader = self.reader().await?;
        let names: Result<Vec<String>, _> =
            sqlx::query_scalar("SELECT resource FROM fences WHERE hold = 'draining'")
                .fetch_all(&mut *reader)
                .await;
        self.keep(reader, names)?.into_iter().map(resource_name).collect()
    }
}

const LIST: &str = "SELECT * FROM upstream_intents
     WHERE closed IS NULL AND (closes_at IS NULL OR closes_at > ?1)
       AND (?2 IS NULL OR upstream = ?2)
       AND (?3 IS NULL OR resource = ?3) AND (?4 IS NULL OR (opened_at, operation) > (?4, ?5))
     ORDER BY opened_at, operation LIMIT ?6";

#[async_trait]
impl Intents for SqliteLedger {
    async fn register_upstreams(&self, upstreams: &[DrainedUpstream]) -> Result<(), LedgerError> {
        let needs = Needs::of_upstreams([], []);
        self.act(needs, |rows, now| {
            upstreams.iter().for_each(|upstream| acts::register(rows, upstream, now));
            Ok(())
        })
        .await
    }

    async fn open_intents(
        &self,
        items: Arc<[IntentItem]>,
        _: Patience,
    ) -> Result<Vec<IntentVerdict>, LedgerError> {
        self.act(Needs::of_intents(&items), |rows, now| {
            Ok(items.iter().map(|item| acts::open_intent(rows, item, now)).collect())
        })
        .await
    }

    async fn close_intents(&self, items: &[CloseItem]) -> Result<Vec<ResourceName>, LedgerError> {
        let mut resources = Vec::new();
        for item in items {
            resources.extend(self.intent_of(item.operation).await?);
        }
        let needs = Needs::of_upstreams(items.iter().map(|item| item.operation), resources);
        self.act(needs, |rows, now| {
            Ok(items.iter().filter_map(|item| acts::close_intent(rows, item, now)).collect())
        })
        .await
    }

    async fn complete_drains(
        &self,
        _: Uuid,
        resources: Option<&[ResourceName]>,
    ) -> Result<Vec<LockId>, LedgerError> {
        let names = match resources {
            Some(names) => names.to_vec(),
            None => self.draining().await?,
        };
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.fences(names.iter().cloned().collect()).await?;
        // By their locks, so that all that these cover is loaded.
        let mut needs = Needs::of_locks(found.fences.values().map(|fence| fence.lock));
        needs.resources.extend(names.iter().cloned());
        needs.upstreams = true;
        self.act(needs, |rows, now| Ok(acts::complete_drains(rows, &names, now))).await
    }

    async fn intents(&self, filter: IntentFilter) -> Result<Vec<Intent>, LedgerError> {
        let now = self.now();
        let mut reader = self.reader().await?;
        let found: Result<Vec<IntentColumns>, _> = sqlx::query_as(LIST)
            .bind(now.wall.as_microsecond())
            .bind(filter.upstream)
            .bind(filter.resource.as_ref().map(ResourceName::as_str))
            .bind(filter.after.map(|(at, _)| at.as_microsecond()))
            .bind(filter.after.map(|(_, id)| id.to_string()))
            .bind(filter.limit)
            .fetch_all(&mut *reader)
            .await;
        let shown = |columns: IntentColumns| columns.row().map(|(id, row)| row.show(id, now));
        self.keep(reader, found)?.into_iter().map(shown).collect()
    }

    async fn intents_open(&self) -> Result<OpenIntents, LedgerError> {
        let now = self.now().wall.as_microsecond();
        let mut reader = self.reader().await?;
        let found: Result<(i64, i64), _> = sqlx::query_as(
            "SELECT count(*), coalesce(max(0, ?1 / 1000 - min(opened_at) / 1000), 0)
             FROM upstream_intents
             WHERE closed IS NULL AND (closes_at IS NULL OR closes_at > ?1)",
        )
        .bind(now)
        .fetch_one(&mut *reader)
        .await;
        let (count, oldest_age_ms) = self.keep(reader, found)?;
        Ok(OpenIntents { count, oldest_age_ms })
    }

    async fn doubts(&self) -> Result<Vec<Doubt>, LedgerError> {
        let now = self.now();
        let needs = Needs::of_upstreams([], []);
        self.with_reader(async |reader| {
            let mut rows = Rows::new(super::load::guard(reader).await?);
            load(reader, &mut rows, &needs).await?;
            let upstreams = rows.upstreams.iter();
            Ok(upstreams.filter_map(|((name, prefix), row)| row.show(name, prefix, now)).collect())
        })
        .await
    }

    async fn resolve_intent(
        &self,
        id: OperationId,
        resolution: Resolution,
    ) -> Result<Resolved, LedgerError> {
        let needs = Needs::of_upstreams([id], []);
        self.act(needs, |rows, now| acts::resolve_intent(rows, id, &resolution, now)).await
    }

    async fn resolve_doubts(
        &self,
        upstream: &str,
        resolution: Resolution,
    ) -> Result<Option<i64>, LedgerError> {
        let needs = Needs::of_upstreams([], []);
        self.act(needs, |rows, now| acts::resolve_doubts(rows, upstream, &resolution, now)).await
    }
}

impl SqliteLedger {
    /// What became of a request to a drained upstream, if the ledger knows it.
    pub(super) async fn forwarded(
        &self,
        id: OperationId,
    ) -> Result<Option<ForwardRecord>, LedgerError> {
        let now = self.now();
        let mut reader = self.reader().await?;
        let found: Result<Option<IntentColumns>, _> =
            sqlx::query_as("SELECT * FROM upstream_intents WHERE operation = ?1")
                .bind(id.to_string())
                .fetch_optional(&mut *reader)
                .await;
        let row = self.keep(reader, found)?.map(IntentColumns::row).transpose()?;
        Ok(row.map(|(id, row)| row.record(id, now)))
    }

    /// The resource of an intent, if it is there.
    async fn intent_of(&self, id: OperationId) -> Result<Option<ResourceName>, LedgerError> {
        let mut reader = self.reader().await?;
        let name: Result<Option<String>, _> =
            sqlx::query_scalar("SELECT resource FROM upstream_intents WHERE operation = ?1")
                .bind(id.to_string())
                .fetch_optional(&mut *reader)
                .await;
        self.keep(reader, name)?.map(resource_name).transpose()
    }
}
