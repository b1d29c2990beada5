//! What the ledger shows. Nothing here decides.

use std::collections::BTreeSet;

use fence_core::acts::{Now, Rows};
use fence_core::ports::{
    Applied, Epoch, LedgerError, LockRecord, Object, OperationRecord, Page, ReadItem, ReadVerdict,
    ResourceView, Which,
};
use fence_core::{LockId, OperationId, ResourceName};
use sqlx::{FromRow as _, SqliteConnection};

use super::columns::{FenceColumns, ObjectColumns};
use super::load::{self, Round};
use super::{SqliteLedger, rolled_back};
use crate::ledger::{resource_name, span};

row! {
    /// An object beside the version of its resource.
    struct ReadColumns {
        position: i64,
        resource_version: Option<i64>,
        found: bool,
    }
}

impl SqliteLedger {
    /// Runs queries on a reader; an error closes it.
    pub(super) async fn with_reader<T>(
        &self,
        read: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let mut reader = self.reader().await?;
        let value = read(&mut reader).await?;
        self.keep(reader, Ok(value))
    }

    pub(super) async fn read_objects(
        &self,
        items: &[ReadItem],
    ) -> Result<Vec<ReadVerdict>, LedgerError> {
        let wanted = |item: &ReadItem| (item.resource.clone(), item.key.clone(), item.version);
        let wanted = serde_json::to_string(&items.iter().map(wanted).collect::<Vec<_>>());
        let mut reader = self.reader().await?;
        // One statement, so that version and object are of one snapshot.
        let rows = sqlx::query(
            "SELECT n.key AS position, f.version AS resource_version,
                    coalesce(c.key, r.key) IS NOT NULL AS found,
                    coalesce(c.key, r.key) AS key,
                    coalesce(c.version, r.version) AS version,
                    coalesce(c.generation, r.generation) AS generation,
                    coalesce(c.content_type, r.content_type) AS content_type,
                    coalesce(c.size, r.size) AS size, coalesce(c.sha256, r.sha256) AS sha256,
                    coalesce(c.written_at, r.written_at) AS written_at,
                    coalesce(c.body, r.body) AS body, coalesce(c.blob, r.blob) AS blob,
                    CASE WHEN c.key IS NULL THEN r.about ELSE c.about END AS about,
                    CASE WHEN c.key IS NULL THEN r.parts ELSE c.parts END AS parts
             FROM json_each(?1) n
             LEFT JOIN fences f ON f.resource = n.value ->> 0
             LEFT JOIN objects c ON c.resource = n.value ->> 0 AND c.key = n.value ->> 1
                 AND (n.value ->> 2 IS NULL OR c.version = n.value ->> 2)
             LEFT JOIN replaced_versions r ON c.key IS NULL AND r.rowid = (
                 SELECT v.rowid FROM replaced_versions v
                 WHERE v.resource = n.value ->> 0 AND v.key = n.value ->> 1
                   AND v.version = n.value ->> 2
                 ORDER BY v.generation DESC LIMIT 1)
             ORDER BY n.key",
        )
        .bind(wanted.unwrap_or_default())
        .fetch_all(&mut *reader)
        .await;
        let rows = self.keep(reader, rows)?;
        rows.iter()
            .map(|row| {
                let columns = ReadColumns::from_row(row).map_err(rolled_back)?;
                debug_assert!(columns.position >= 0);
                let object = if columns.found {
                    Some(ObjectColumns::from_row(row).map_err(rolled_back)?.object()?)
                } else {
                    None
                };
                Ok(ReadVerdict { object, resource_version: columns.resource_version })
            })
            .collect()
    }

    /// The guard and these fences.
    pub(super) async fn fences(&self, fences: BTreeSet<ResourceName>) -> Result<Rows, LedgerError> {
        let round = Round { fences, ..Round::default() };
        self.with_reader(async |reader| round.load(reader).await).await
    }

    /// In one transaction: between a lock and its fence nobody may have taken over.
    pub(super) async fn read_locks(
        &self,
        ids: &[LockId],
    ) -> Result<Vec<Option<LockRecord>>, LedgerError> {
        let now = self.now();
        self.with_reader(async |reader| {
            let run = async |reader: &mut SqliteConnection, statement: &'static str| {
                sqlx::query(statement).execute(reader).await.map_err(rolled_back)
            };
            run(reader, "BEGIN").await?;
            let first = Round { locks: ids.iter().copied().collect(), ..Round::default() };
            let mut rows = first.load(reader).await?;
            let covered = rows.locks.values();
            let covered =
                covered.flat_map(|lock| lock.resources.iter().map(|name| (name, lock.token)));
            let grants: BTreeSet<_> = covered.map(|(name, token)| (name.clone(), token)).collect();
            let fences = grants.iter().map(|(name, _)| name.clone()).collect();
            let second = Round { fences, grants, ..Round::default() };
            second.load_more(reader, &mut rows).await?;
            run(reader, "COMMIT").await?;
            Ok(ids.iter().map(|id| rows.lock_record(*id, now)).collect())
        })
        .await
    }

    pub(super) async fn read_resource(
        &self,
        name: &ResourceName,
    ) -> Result<Option<ResourceView>, LedgerError> {
        let views = self.read_views(std::slice::from_ref(name)).await?;
        Ok(views.into_iter().next().flatten())
    }

    pub(super) async fn read_views(
        &self,
        names: &[ResourceName],
    ) -> Result<Vec<Option<ResourceView>>, LedgerError> {
        let now = self.now();
        let rows = self.fences(names.iter().cloned().collect()).await?;
        let queue = self.waiting();
        let view = |name: &ResourceName| {
            let fence = rows.fences.get(name)?;
            Some(rows.guard.view(name, fence, queue.length(name), now))
        };
        Ok(names.iter().map(view).collect())
    }

    pub(super) async fn list_resources(
        &self,
        page: &Page,
        which: Which,
    ) -> Result<Vec<ResourceView>, LedgerError> {
        let now = self.now();
        let guard = self.with_reader(async |reader| load::guard(reader).await).await?;
        let mut reader = self.reader().await?;
        macro_rules! page_of {
            ($which:literal) => {
                concat!(
                    "SELECT * FROM fences
                     WHERE resource >= ?1 AND resource < ?2 AND resource IS NOT ?3 AND ",
                    $which,
                    " AND ?5 >= 0 AND ?6 >= 0 ORDER BY resource LIMIT ?4"
                )
            };
        }
        let page_of = match which {
            Which::All => page_of!("true"),
            Which::Taken => page_of!("hold <> 'released'"),
            Which::Held => page_of!(
                "hold <> 'released' AND hold IN ('held', 'draining') AND deadline_ms > ?5 AND token > ?6"
            ),
        };
        let (from, end) = span(page);
        let rows: Result<Vec<FenceColumns>, _> = sqlx::query_as(page_of)
            .bind(from)
            .bind(end)
            .bind(&page.after)
            .bind(page.limit)
            .bind(now.elapsed_ms)
            .bind(guard.floor)
            .fetch_all(&mut *reader)
            .await;
        let view = |row: FenceColumns| {
            let (name, fence) = row.fence()?;
            let waiting = self.waiting().length(&name);
            Ok(guard.view(&name, &fence, waiting, now))
        };
        self.keep(reader, rows)?.into_iter().map(view).collect()
    }

    pub(super) async fn list_objects(
        &self,
        name: &ResourceName,
        page: &Page,
    ) -> Result<Vec<Object>, LedgerError> {
        let (from, end) = span(page);
        let mut reader = self.reader().await?;
        let rows: Result<Vec<ObjectColumns>, _> = sqlx::query_as(
            "SELECT key, version, generation, content_type, size, sha256, written_at, NULL AS body,
                    NULL AS blob, about, parts
             FROM objects
             WHERE resource = ?1 AND key >= ?2 AND key < ?3 AND key IS NOT ?4
             ORDER BY key LIMIT ?5",
        )
        .bind(name.as_str())
        .bind(from)
        .bind(end)
        .bind(&page.after)
        .bind(page.limit)
        .fetch_all(&mut *reader)
        .await;
        let object = |row: ObjectColumns| row.object();
        self.keep(reader, rows)?.into_iter().map(object).collect()
    }

    pub(super) async fn read_operation(
        &self,
        id: OperationId,
    ) -> Result<Option<OperationRecord>, LedgerError> {
        let ids = serde_json::to_string(&[id]).unwrap_or_default();
        let rows = self.with_reader(async |reader| load::operations(reader, &ids).await).await?;
        if let Some(record) = OperationRecord::of(rows) {
            return Ok(Some(record));
        }
        if let Some(record) = self.forwarded(id).await? {
            return Ok(Some(OperationRecord::Forwarded(record)));
        }
        let mut reader = self.reader().await?;
        let buried: Result<bool, _> = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM buried WHERE kind = 'operation' AND id = ?1)",
        )
        .bind(id.to_string())
        .fetch_one(&mut *reader)
        .await;
        Ok(self.keep(reader, buried)?.then_some(OperationRecord::Buried))
    }

    pub(super) async fn read_operation_by_key(
        &self,
        name: &ResourceName,
        key: &str,
    ) -> Result<Option<Applied>, LedgerError> {
        let mut reader = self.reader().await?;
        let operation: Result<Option<String>, _> = sqlx::query_scalar(
            "SELECT operation FROM idempotency_keys WHERE resource = ?1 AND key = ?2",
        )
        .bind(name.as_str())
        .bind(key)
        .fetch_optional(&mut *reader)
        .await;
        let Some(operation) = self.keep(reader, operation)? else { return Ok(None) };
        let ids = serde_json::to_string(&[operation]).unwrap_or_default();
        let rows = self.with_reader(async |reader| load::operations(reader, &ids).await).await?;
        Ok(rows.into_iter().find(|applied| applied.resource == *name))
    }

    pub(super) async fn read_known_keys(
        &self,
        keys: &[(ResourceName, String)],
    ) -> Result<Vec<bool>, LedgerError> {
        let wanted = serde_json::to_string(keys).unwrap_or_default();
        let mut reader = self.reader().await?;
        let known: Result<Vec<bool>, _> = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM idempotency_keys k
                            WHERE k.resource = w.value ->> 0 AND k.key = w.value ->> 1)
             FROM json_each(?1) w ORDER BY w.key",
        )
        .bind(wanted)
        .fetch_all(&mut *reader)
        .await;
        self.keep(reader, known)
    }

    pub(super) async fn read_epoch(&self) -> Result<Epoch, LedgerError> {
        let guard = self.with_reader(async |reader| load::guard(reader).await).await?;
        Ok(guard.as_epoch())
    }

    /// Resources whose break has come due but is not stored yet.
    pub(super) async fn breaks_due(
        &self,
        now: Now,
        limit: i64,
    ) -> Result<Vec<ResourceName>, LedgerError> {
        let mut reader = self.reader().await?;
        let names: Result<Vec<String>, _> = sqlx::query_scalar(
            "SELECT resource FROM fences
             WHERE break_due IS NOT NULL AND hold IN ('held', 'draining')
               AND break_due <= ?1
             ORDER BY resource LIMIT ?2",
        )
        .bind(now.wall.as_microsecond())
        .bind(limit)
        .fetch_all(&mut *reader)
        .await;
        self.keep(reader, names)?.into_iter().map(resource_name).collect()
    }
}
