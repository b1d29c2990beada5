//! What the ledger on SQLite knows of upstreams: the acts on intents, and their rows.

use std::sync::Arc;

use async_trait::async_trait;
use fence_core::acts::{self, ForwardRow, Now, Rows, UpstreamRow};
use fence_core::ports::{
    Doubt, DrainedUpstream, Intent, IntentFilter, IntentItem, IntentVerdict, Intents, LedgerError,
    Patience, Resolution, Resolved, Retention,
};
use fence_core::{LockId, OperationId, ResourceName};
use jiff::Timestamp;
use sqlx::{FromRow, SqliteConnection};
use uuid::Uuid;

use super::columns::id;
use super::load::json;
use super::needs::Needs;
use super::{SqliteLedger, rolled_back};
use crate::ledger::{resource_name, time, token};

#[derive(FromRow)]
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
    sent_again: bool,
}

impl IntentColumns {
    fn row(self) -> Result<(OperationId, ForwardRow), LedgerError> {
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
            sent_again: self.sent_again,
        };
        Ok((OperationId(id(&self.operation)?), row))
    }
}

#[derive(FromRow)]
struct UpstreamColumns {
    name: String,
    resource_prefix: String,
    max_effect_delay_ms: Option<i64>,
    doubt_floor: Option<i64>,
    doubt_since: Option<i64>,
}

/// Loads the intents of these operations and, where it matters, those on the resources that are loaded,
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
            OR resource IN (SELECT value FROM json_each(?2))",
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

/// Stores an intent, or removes it if it was closed.
pub(super) async fn store_intent(
    connection: &mut SqliteConnection,
    rows: &Rows,
    operation: OperationId,
) -> Result<(), sqlx::Error> {
    let Some(row) = rows.forwards.get(&operation) else {
        sqlx::query("DELETE FROM upstream_intents WHERE operation = ?1")
            .bind(operation.to_string())
            .execute(connection)
            .await?;
        return Ok(());
    };
    sqlx::query(
        "INSERT INTO upstream_intents (operation, resource, token, owner, upstream, method, path,
                                       gateway, opened_at, closes_at, sent_again)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (operation) DO UPDATE SET sent_again = ?11",
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
    .bind(row.sent_again)
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

/// Removes intents that count as closed, and makes sure that none is opened again. Says how many.
pub(super) async fn sweep(
    connection: &mut SqliteConnection,
    retention: &Retention,
    now: Now,
) -> Result<u64, sqlx::Error> {
    sqlx::query(
        "INSERT INTO buried (kind, id, buried_at)
         SELECT 'operation', operation, ?1 FROM upstream_intents WHERE closes_at <= ?1 LIMIT ?2
         ON CONFLICT DO NOTHING",
    )
    .bind(now.wall.as_microsecond())
    .bind(retention.rows_per_pass)
    .execute(&mut *connection)
    .await?;
    let done = sqlx::query(
        "DELETE FROM upstream_intents WHERE operation IN (
             SELECT operation FROM upstream_intents WHERE closes_at <= ?1
               AND operation IN (SELECT id FROM buried WHERE kind = 'operation') LIMIT ?2)",
    )
    .bind(now.wall.as_microsecond())
    .bind(retention.rows_per_pass)
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

impl SqliteLedger {
    /// Open intents, oldest first; with `operation` only this one.
    async fn list_intents(
        &self,
        filter: &IntentFilter,
        operation: Option<OperationId>,
    ) -> Result<Vec<Intent>, LedgerError> {
        let now = self.now();
        let mut reader = self.reader().await?;
        let found: Result<Vec<IntentColumns>, _> = sqlx::query_as(LIST)
            .bind(now.wall.as_microsecond())
            .bind(&filter.upstream)
            .bind(filter.resource.as_ref().map(ResourceName::as_str))
            .bind(filter.after.map(|(at, _)| at.as_microsecond()))
            .bind(filter.after.map(|(_, id)| id.to_string()))
            .bind(filter.limit)
            .bind(operation.map(|id| id.to_string()))
            .fetch_all(&mut reader)
            .await;
        let shown = |columns: IntentColumns| columns.row().map(|(id, row)| row.show(id, now));
        self.keep(reader, found)?.into_iter().map(shown).collect()
    }

    /// The resources whose locks are not in force yet.
    async fn draining(&self) -> Result<Vec<ResourceName>, LedgerError> {
        let mut reader = self.reader().await?;
        let names: Result<Vec<String>, _> =
            sqlx::query_scalar("SELECT resource FROM fences WHERE hold = 'draining'")
                .fetch_all(&mut reader)
                .await;
        self.keep(reader, names)?.into_iter().map(resource_name).collect()
    }
}

const LIST: &str = "SELECT * FROM upstream_intents
     WHERE (closes_at IS NULL OR closes_at > ?1) AND (?2 IS NULL OR upstream = ?2)
       AND (?3 IS NULL OR resource = ?3) AND (?4 IS NULL OR (opened_at, operation) > (?4, ?5))
       AND (?7 IS NULL OR operation = ?7)
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

    async fn close_intents(
        &self,
        operations: &[OperationId],
    ) -> Result<Vec<ResourceName>, LedgerError> {
        let mut resources = Vec::new();
        for operation in operations {
            resources.extend(self.intent_of(*operation).await?);
        }
        let needs = Needs::of_upstreams(operations.iter().copied(), resources);
        self.act(needs, |rows, now| {
            Ok(operations.iter().filter_map(|id| acts::close_intent(rows, *id, now)).collect())
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
        self.list_intents(&filter, None).await
    }

    async fn intent(&self, id: OperationId) -> Result<Option<Intent>, LedgerError> {
        let one = IntentFilter { limit: 1, ..IntentFilter::default() };
        Ok(self.list_intents(&one, Some(id)).await?.pop())
    }

    async fn intents_open(&self) -> Result<i64, LedgerError> {
        let now = self.now().wall.as_microsecond();
        let mut reader = self.reader().await?;
        let count: Result<i64, _> = sqlx::query_scalar(
            "SELECT count(*) FROM upstream_intents WHERE closes_at IS NULL OR closes_at > ?1",
        )
        .bind(now)
        .fetch_one(&mut reader)
        .await;
        self.keep(reader, count)
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
        self.act(needs, |rows, now| Ok(acts::resolve_intent(rows, id, &resolution, now))).await
    }

    async fn resolve_doubts(
        &self,
        upstream: &str,
        resolution: Resolution,
    ) -> Result<Option<i64>, LedgerError> {
        let needs = Needs::of_upstreams([], []);
        self.act(needs, |rows, now| Ok(acts::resolve_doubts(rows, upstream, &resolution, now)))
            .await
    }
}

impl SqliteLedger {
    /// The resource of an intent, if it is there.
    async fn intent_of(&self, id: OperationId) -> Result<Option<ResourceName>, LedgerError> {
        let mut reader = self.reader().await?;
        let name: Result<Option<String>, _> =
            sqlx::query_scalar("SELECT resource FROM upstream_intents WHERE operation = ?1")
                .bind(id.to_string())
                .fetch_optional(&mut reader)
                .await;
        self.keep(reader, name)?.map(resource_name).transpose()
    }
}
