//! Stores what an act changed, and tidies.

use fence_core::acts::{Buried, Change, FenceRow, Now, Rows};
use fence_core::ports::{Applied, COMMIT_KIND, Did, Rejection, Retention};
use fence_core::rule::Hold;
use fence_core::{ObjectKey, ResourceName};
use sqlx::SqliteConnection;

/// Stores every row that the journal names, in the order of the journal: objects that were wiped
/// before those put since, operations before the fences whose versions they explain.
pub(super) async fn store(
    connection: &mut SqliteConnection,
    rows: &Rows,
    now: Now,
) -> Result<(), sqlx::Error> {
    super::versions::keep(connection, rows, now).await?;
    for change in &rows.journal {
        match change {
            Change::Wiped(resource) => {
                sqlx::query("DELETE FROM objects WHERE resource = ?1")
                    .bind(resource.as_str())
                    .execute(&mut *connection)
                    .await?;
            }
            Change::Lock(id) => {
                let Some(lock) = rows.locks.get(id) else { continue };
                let resources = serde_json::to_string(&lock.resources).unwrap_or_default();
                sqlx::query(
                    "INSERT INTO locks (id, resources, token, owner, ttl_ms, acquired_at, ended,
                                        ended_at, hold_until, metadata, fence)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                     ON CONFLICT (id) DO UPDATE
                     SET token = ?3, ttl_ms = ?5, acquired_at = ?6, ended = ?7, ended_at = ?8,
                         hold_until = ?9",
                )
                .bind(id.to_string())
                .bind(resources)
                .bind(lock.token.get())
                .bind(&lock.owner)
                .bind(lock.ttl.as_ms())
                .bind(lock.acquired_at.as_microsecond())
                .bind(lock.ended.map(|(how, _)| how.as_str()))
                .bind(lock.ended.map(|(_, at)| at.as_microsecond()))
                .bind(lock.hold_until.map(|until| until.as_microsecond()))
                .bind(lock.metadata.to_json())
                .bind(lock.fence)
                .execute(&mut *connection)
                .await?;
            }
            Change::Grant(resource, token) => {
                let Some(grant) = rows.grants.get(&(resource.clone(), *token)) else { continue };
                sqlx::query(
                    "INSERT INTO grants (resource, token, lock_id, owner, ordinal, superseded_by,
                                         superseded_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                     ON CONFLICT (resource, token) DO UPDATE
                     SET superseded_by = ?6, superseded_at = ?7",
                )
                .bind(resource.as_str())
                .bind(token.get())
                .bind(grant.lock.to_string())
                .bind(&grant.owner)
                .bind(grant.ordinal)
                .bind(grant.by.map(|by| by.as_str()))
                .bind(grant.at.map(|at| at.as_microsecond()))
                .execute(&mut *connection)
                .await?;
            }
            Change::Buried(id) => buried(connection, rows, *id).await?,
            Change::Operation(id) => {
                for applied in rows.operations.get(id).into_iter().flatten() {
                    operation(connection, applied).await?;
                }
            }
            Change::Key(resource, key) => {
                let Some(row) = rows.keys.get(&(resource.clone(), key.clone())) else { continue };
                sqlx::query(
                    "INSERT INTO idempotency_keys (resource, key, fingerprint, operation, stored_at)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )
                .bind(resource.as_str())
                .bind(key)
                .bind(row.fingerprint.as_slice())
                .bind(row.operation.to_string())
                .bind(row.at.as_microsecond())
                .execute(&mut *connection)
                .await?;
            }
            Change::Intent(blob) => {
                // Consumed, or begun.
                super::versions::intent(connection, *blob, rows.intents.get(blob)).await?;
            }
            Change::Forward(id) => super::upstreams::store_intent(connection, rows, *id).await?,
            Change::Upstream(name, prefix) => {
                super::upstreams::store_upstream(connection, rows, name, prefix).await?;
            }
            Change::Object(resource, key) => object(connection, rows, resource, key).await?,
            Change::Fence(resource) => {
                if let Some(row) = rows.fences.get(resource) {
                    fence(connection, resource, row).await?;
                }
            }
        }
    }
    super::events::append(connection, rows).await?;
    super::audit::append(connection, &rows.audited).await
}

async fn buried(
    connection: &mut SqliteConnection,
    rows: &Rows,
    id: Buried,
) -> Result<(), sqlx::Error> {
    let Some(at) = rows.buried.get(&id) else { return Ok(()) };
    sqlx::query(
        "INSERT INTO buried (kind, id, buried_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )
    .bind(id.kind())
    .bind(id.id().to_string())
    .bind(at.as_microsecond())
    .execute(connection)
    .await?;
    Ok(())
}

async fn operation(
    connection: &mut SqliteConnection,
    applied: &Applied,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO operations (id, resource, version, kind, key, generation, created, size,
                                 sha256, owner, committed_at, did)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )
    .bind(applied.operation.to_string())
    .bind(applied.resource.as_str())
    .bind(applied.version)
    .bind(&applied.kind)
    .bind(applied.key.as_ref().map(ObjectKey::as_str))
    .bind(applied.generation)
    .bind(applied.created)
    .bind(applied.size)
    .bind(applied.sha256.as_ref().map(|digest| digest.as_slice()))
    .bind(&applied.owner)
    .bind(applied.committed_at.as_microsecond())
    .bind((applied.kind == COMMIT_KIND).then(|| Did::letters(&applied.did)))
    .execute(connection)
    .await?;
    Ok(())
}

async fn object(
    connection: &mut SqliteConnection,
    rows: &Rows,
    resource: &ResourceName,
    key: &ObjectKey,
) -> Result<(), sqlx::Error> {
    let Some(row) = rows.objects.get(&(resource.clone(), key.clone())) else {
        sqlx::query("DELETE FROM objects WHERE resource = ?1 AND key = ?2")
            .bind(resource.as_str())
            .bind(key.as_str())
            .execute(connection)
            .await?;
        return Ok(());
    };
    let object = &row.object;
    sqlx::query(
        "INSERT INTO objects (resource, key, version, generation, content_type, size, sha256,
                              written_at, body, blob)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (resource, key) DO UPDATE
         SET version = ?3, generation = ?4, content_type = ?5, size = ?6, sha256 = ?7,
             written_at = ?8, body = ?9, blob = ?10",
    )
    .bind(resource.as_str())
    .bind(key.as_str())
    .bind(object.tag.version)
    .bind(object.tag.generation)
    .bind(&object.content_type)
    .bind(object.size)
    .bind(object.sha256.as_slice())
    .bind(object.written_at.as_microsecond())
    .bind(super::versions::body(&object.payload))
    .bind(object.payload.blob().map(|blob| blob.to_string()))
    .execute(connection)
    .await?;
    Ok(())
}

async fn fence(
    connection: &mut SqliteConnection,
    resource: &ResourceName,
    row: &FenceRow,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO fences (resource, token, lock_id, owner, hold, ttl_ms, deadline_ms,
                             acquired_at, renewed_at, break_due, frozen, protected, version,
                             last_seq, objects, grants, fence_order, live_token)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
                 ?18)
         ON CONFLICT (resource) DO UPDATE
         SET token = ?2, lock_id = ?3, owner = ?4, hold = ?5, ttl_ms = ?6, deadline_ms = ?7,
             acquired_at = ?8, renewed_at = ?9, break_due = ?10, frozen = ?11, protected = ?12,
             version = ?13, last_seq = ?14, objects = ?15, grants = ?16, fence_order = ?17, live_token = ?18",
    )
    .bind(resource.as_str())
    .bind(row.token.get())
    .bind(row.lock.to_string())
    .bind(&row.owner)
    .bind(match row.hold {
        Hold::Held => "held",
        Hold::Draining => "draining",
        Hold::Released => "released",
        Hold::Broken => "broken",
    })
    .bind(row.ttl.as_ms())
    .bind(row.deadline_ms)
    .bind(row.acquired_at.as_microsecond())
    .bind(row.renewed_at.as_microsecond())
    .bind(row.break_due.map(|due| due.as_microsecond()))
    .bind(&row.frozen)
    .bind(&row.protected)
    .bind(row.version)
    .bind(row.last_sequence)
    .bind(row.objects)
    .bind(row.grants)
    .bind(row.order)
    .bind(row.live_token)
    .execute(connection)
    .await?;
    Ok(())
}

/// Keeps refused writes, in one transaction.
pub(super) async fn rejections(
    connection: &mut SqliteConnection,
    rejections: &[Rejection],
) -> Result<(), sqlx::Error> {
    let rows: Vec<serde_json::Value> = rejections
        .iter()
        .map(|r| {
            serde_json::json!([
                r.at.as_microsecond(),
                r.resource,
                r.key,
                r.reason,
                r.token.map(|token| token.get()),
                r.grants_behind,
                r.superseded_ms,
                r.owner,
                r.request_id
            ])
        })
        .collect();
    sqlx::query(
        "INSERT INTO rejections (at, resource, key, reason, token, grants_behind, superseded_ms,
                                 owner, request_id)
         SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
                value ->> 6, value ->> 7, value ->> 8
         FROM json_each(?1)",
    )
    .bind(serde_json::Value::from(rows).to_string())
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes what has been kept long enough. Returns the number of rows.
pub(super) async fn prune(
    connection: &mut SqliteConnection,
    retention: &Retention,
    now: Now,
) -> Result<u64, sqlx::Error> {
    let before = |keep: std::time::Duration| {
        let keep = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
        now.wall.as_microsecond().saturating_sub(keep)
    };
    let mut removed = 0;
    for (statement, bound) in [
        (
            "DELETE FROM idempotency_keys WHERE (resource, key) IN (
                 SELECT resource, key FROM idempotency_keys WHERE stored_at < ?1
                 ORDER BY stored_at LIMIT ?2)",
            before(retention.keys),
        ),
        (
            "DELETE FROM locks WHERE id IN (
                 SELECT id FROM locks WHERE ended_at < ?1 ORDER BY ended_at LIMIT ?2)",
            before(retention.ended_locks),
        ),
        (
            "DELETE FROM buried WHERE (kind, id) IN (
                 SELECT kind, id FROM buried WHERE buried_at < ?1 ORDER BY buried_at LIMIT ?2)",
            before(retention.buried),
        ),
        (
            "DELETE FROM rejections WHERE number IN (
                 SELECT number FROM rejections
                 WHERE number <= (SELECT max(number) FROM rejections) - ?1
                 ORDER BY number LIMIT ?2)",
            retention.rejections_max,
        ),
    ] {
        let done = sqlx::query(statement)
            .bind(bound)
            .bind(retention.rows_per_pass)
            .execute(&mut *connection)
            .await?;
        removed += done.rows_affected();
    }
    Ok(removed)
}
