//! Loads the rows that an act needs. What is not there, is not in the ledger.

use std::collections::BTreeSet;

use bytes::Bytes;
use fence_core::acts::{
    Buried, FenceRow, GrantRow, Guard, IntentRow, KeyRow, LockRow, ObjectRow, Rows,
};
use fence_core::etag::EntityTag;
use fence_core::ports::{
    Applied, BlobId, CommitItem, IntentItem, JoinItem, LedgerError, Object, Payload, SealItem,
    UploadItem, WriteItem,
};
use fence_core::rule::Hold;
use fence_core::{LockId, ObjectKey, OperationId, ResourceName, Supersession, Token, Ttl};
use sqlx::{FromRow, SqliteConnection};
use uuid::Uuid;

use super::rolled_back;
use crate::ledger::{did, digest, end, metadata, object_key, resource_name, time, token};

/// The rows that an act may look at.
#[derive(Default)]
pub(super) struct Needs {
    locks: BTreeSet<LockId>,
    pub(super) resources: BTreeSet<ResourceName>,
    /// Grants besides those of the current tokens.
    grants: BTreeSet<(ResourceName, Token)>,
    pub(super) operations: BTreeSet<OperationId>,
    keys: BTreeSet<(ResourceName, String)>,
    objects: BTreeSet<(ResourceName, ObjectKey)>,
    intents: BTreeSet<BlobId>,
    /// Whether the locks and grants of the current tokens are needed.
    holders: bool,
    /// Whether it matters what is under way at upstreams.
    pub(super) upstreams: bool,
    /// Whether it matters who is in line.
    pub(super) line: bool,
}

impl Needs {
    pub(super) fn of_seals(items: &[SealItem]) -> Self {
        Self {
            locks: items.iter().flat_map(|item| [Some(item.lock), item.from()]).flatten().collect(),
            resources: items.iter().flat_map(|item| item.resources.iter().cloned()).collect(),
            holders: true,
            upstreams: true,
            line: true,
            ..Self::default()
        }
    }

    pub(super) fn of_joins(items: &[JoinItem]) -> Self {
        Self {
            locks: items.iter().map(|item| item.lock).collect(),
            resources: items.iter().flat_map(|item| item.resources.iter().cloned()).collect(),
            line: true,
            ..Self::default()
        }
    }

    pub(super) fn of_locks(locks: impl Iterator<Item = LockId>) -> Self {
        Self { locks: locks.collect(), holders: true, ..Self::default() }
    }

    pub(super) fn of_resources(resources: impl Iterator<Item = ResourceName>) -> Self {
        Self { resources: resources.collect(), holders: true, ..Self::default() }
    }

    pub(super) fn of_upstreams(
        operations: impl IntoIterator<Item = OperationId>,
        resources: impl IntoIterator<Item = ResourceName>,
    ) -> Self {
        let (operations, resources) =
            (operations.into_iter().collect(), resources.into_iter().collect());
        Self { operations, resources, upstreams: true, ..Self::default() }
    }

    pub(super) fn of_intents(items: &[IntentItem]) -> Self {
        let at = |item: &IntentItem| item.resource.clone();
        Self {
            resources: items.iter().map(at).collect(),
            grants: items.iter().map(|item| (at(item), item.token)).collect(),
            operations: items.iter().map(|item| item.operation).collect(),
            upstreams: true,
            ..Self::default()
        }
    }

    pub(super) fn of_writes(items: &[WriteItem]) -> Self {
        let mut needs = Self::default();
        for item in items {
            let at = || item.resource.clone();
            needs.resources.insert(at());
            needs.grants.insert((at(), item.token));
            needs.operations.insert(item.operation);
            needs.keys.extend(item.idempotency.iter().map(|key| (at(), key.key.clone())));
            needs.objects.extend(item.effect.key().map(|key| (at(), key.clone())));
            needs.intents.extend(item.effect.blob());
        }
        needs
    }

    pub(super) fn of_commit(item: &CommitItem) -> Self {
        let mut needs = Self::default();
        for at in item.resources.iter() {
            needs.resources.insert(at.resource.clone());
            needs.grants.insert((at.resource.clone(), item.token));
            let key = item.idempotency.iter().map(|key| (at.resource.clone(), key.key.clone()));
            needs.keys.extend(key);
        }
        needs.operations.insert(item.operation);
        for step in item.steps.iter() {
            needs.objects.extend(step.key().map(|key| (step.resource.clone(), key.clone())));
            needs.intents.extend(step.effect.blob());
        }
        needs
    }

    pub(super) fn of_upload(item: &UploadItem) -> Self {
        Self {
            resources: BTreeSet::from([item.resource.clone()]),
            grants: BTreeSet::from([(item.resource.clone(), item.token)]),
            keys: item.key.iter().map(|key| (item.resource.clone(), key.clone())).collect(),
            ..Self::default()
        }
    }
}

/// A list as JSON, for `json_each`.
pub(super) fn json<T: serde::Serialize>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<T> = values.into_iter().collect();
    // INVARIANT: names, numbers and ids always serialize.
    serde_json::to_string(&values).expect("plain values")
}

pub(super) async fn load(
    connection: &mut SqliteConnection,
    needs: &Needs,
) -> Result<Rows, LedgerError> {
    let mut rows = Rows::new(guard(connection).await?);
    load_locks(connection, &mut rows, &needs.locks).await?;
    let mut names = needs.resources.clone();
    names.extend(rows.locks.values().flat_map(|row| row.resources.iter().cloned()));
    for (name, fence) in fences(connection, &json(&names)).await? {
        rows.fences.insert(name, fence);
    }
    let mut grants = needs.grants.clone();
    // A break that comes due while an act looks at a fence ends its lock.
    let due = |fence: &&FenceRow| needs.holders || fence.break_due.is_some();
    let holders = rows.fences.values().filter(due).map(|fence| fence.lock).collect();
    load_locks(connection, &mut rows, &holders).await?;
    if needs.holders {
        grants.extend(rows.fences.iter().map(|(name, fence)| (name.clone(), fence.token)));
    } else {
        grants.retain(|(name, token)| rows.fences.get(name).is_some_and(|f| f.token != *token));
    }
    load_grants(connection, &mut rows, &grants).await?;
    load_buried(connection, &mut rows, needs).await?;
    load_keys(connection, &mut rows, &needs.keys).await?;
    let mut operations = needs.operations.clone();
    operations.extend(rows.keys.values().map(|row| row.operation));
    for applied in self::operations(connection, &json(operations)).await? {
        rows.operations.entry(applied.operation).or_default().push(applied);
    }
    load_objects(connection, &mut rows, &needs.objects).await?;
    load_intents(connection, &mut rows, &needs.intents).await?;
    super::upstreams::load(connection, &mut rows, needs).await?;
    Ok(rows)
}

#[derive(FromRow)]
struct GuardColumns {
    epoch: i64,
    nonce: String,
    open: bool,
    base: i64,
    floor: i64,
    generation: i64,
    ledger: String,
}

pub(super) fn id(text: &str) -> Result<Uuid, LedgerError> {
    text.parse().map_err(|_| LedgerError::Defect(format!("{text:?} is stored as an id")))
}

pub(super) async fn guard(connection: &mut SqliteConnection) -> Result<Guard, LedgerError> {
    let row: GuardColumns =
        sqlx::query_as("SELECT * FROM guard").fetch_one(connection).await.map_err(rolled_back)?;
    Ok(Guard {
        epoch: row.epoch,
        nonce: id(&row.nonce)?,
        open: row.open,
        base: row.base,
        floor: row.floor,
        generation: row.generation,
        ledger: id(&row.ledger)?,
    })
}

#[derive(FromRow)]
pub(super) struct FenceColumns {
    resource: String,
    token: i64,
    lock_id: String,
    owner: String,
    hold: String,
    ttl_ms: i64,
    deadline_ms: i64,
    acquired_at: i64,
    renewed_at: i64,
    break_due: Option<i64>,
    frozen: Option<String>,
    protected: Option<String>,
    version: i64,
    last_seq: i64,
    objects: i64,
    grants: i64,
    fence_order: Option<i64>,
    live_token: i64,
}

impl FenceColumns {
    pub(super) fn fence(self) -> Result<(ResourceName, FenceRow), LedgerError> {
        let fence = FenceRow {
            token: token(self.token)?,
            lock: LockId(id(&self.lock_id)?),
            owner: self.owner,
            hold: match self.hold.as_str() {
                "draining" => Hold::Draining,
                "released" => Hold::Released,
                "broken" => Hold::Broken,
                _ => Hold::Held,
            },
            ttl: Ttl::from_ms(self.ttl_ms),
            deadline_ms: self.deadline_ms,
            acquired_at: time(self.acquired_at),
            renewed_at: time(self.renewed_at),
            break_due: self.break_due.map(time),
            frozen: self.frozen,
            protected: self.protected,
            version: self.version,
            last_sequence: self.last_seq,
            objects: self.objects,
            grants: self.grants,
            order: self.fence_order,
            live_token: self.live_token,
        };
        Ok((resource_name(self.resource)?, fence))
    }
}

pub(super) async fn fences(
    connection: &mut SqliteConnection,
    names: &str,
) -> Result<Vec<(ResourceName, FenceRow)>, LedgerError> {
    let rows: Vec<FenceColumns> = sqlx::query_as(
        "SELECT f.* FROM json_each(?1) n CROSS JOIN fences f ON f.resource = n.value",
    )
    .bind(names)
    .fetch_all(connection)
    .await
    .map_err(rolled_back)?;
    rows.into_iter().map(FenceColumns::fence).collect()
}

#[derive(FromRow)]
struct LockColumns {
    id: String,
    resources: String,
    token: i64,
    owner: String,
    ttl_ms: i64,
    acquired_at: i64,
    hold_until: Option<i64>,
    metadata: String,
    fence: bool,
    ended: Option<String>,
    ended_at: Option<i64>,
}

pub(super) async fn load_locks(
    connection: &mut SqliteConnection,
    rows: &mut Rows,
    ids: &BTreeSet<LockId>,
) -> Result<(), LedgerError> {
    let missing: Vec<_> = ids.iter().filter(|id| !rows.locks.contains_key(id)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let found: Vec<LockColumns> =
        sqlx::query_as("SELECT l.* FROM json_each(?1) n CROSS JOIN locks l ON l.id = n.value")
            .bind(json(missing))
            .fetch_all(connection)
            .await
            .map_err(rolled_back)?;
    for row in found {
        let resources = serde_json::from_str(&row.resources)
            .map_err(|why| LedgerError::Defect(format!("the resources of a lock: {why}")))?;
        let ended = row.ended.as_deref().map(end).transpose()?;
        let lock = LockRow {
            resources,
            token: token(row.token)?,
            owner: row.owner,
            ttl: Ttl::from_ms(row.ttl_ms),
            acquired_at: time(row.acquired_at),
            hold_until: row.hold_until.map(time),
            metadata: metadata(&row.metadata)?,
            fence: row.fence,
            ended: ended.zip(row.ended_at.map(time)),
        };
        rows.locks.insert(LockId(id(&row.id)?), lock);
    }
    Ok(())
}

#[derive(FromRow)]
struct GrantColumns {
    resource: String,
    token: i64,
    lock_id: String,
    owner: String,
    ordinal: i64,
    superseded_by: Option<String>,
    superseded_at: Option<i64>,
}

async fn load_grants(
    connection: &mut SqliteConnection,
    rows: &mut Rows,
    wanted: &BTreeSet<(ResourceName, Token)>,
) -> Result<(), LedgerError> {
    if wanted.is_empty() {
        return Ok(());
    }
    // Numbers, not strings: a STRICT integer column compares with nothing else.
    let pairs = wanted.iter().map(|(name, token)| (name, token.get()));
    let found: Vec<GrantColumns> = sqlx::query_as(
        "SELECT g.* FROM json_each(?1) n CROSS JOIN grants g
             ON g.resource = n.value ->> 0 AND g.token = n.value ->> 1",
    )
    .bind(json(pairs))
    .fetch_all(connection)
    .await
    .map_err(rolled_back)?;
    for row in found {
        let grant = GrantRow {
            lock: LockId(id(&row.lock_id)?),
            owner: row.owner,
            ordinal: row.ordinal,
            by: row.superseded_by.as_deref().and_then(Supersession::parse),
            at: row.superseded_at.map(time),
        };
        rows.grants.insert((resource_name(row.resource)?, token(row.token)?), grant);
    }
    Ok(())
}

/// The fences of the locks that are loaded, and their grants: what a lock's record is made of.
pub(super) async fn load_fences_of_locks(
    connection: &mut SqliteConnection,
    rows: &mut Rows,
) -> Result<(), LedgerError> {
    let names: BTreeSet<_> = rows.locks.values().flat_map(|lock| &lock.resources).collect();
    rows.fences = fences(connection, &json(names)).await?.into_iter().collect();
    let grants = rows
        .locks
        .values()
        .flat_map(|lock| lock.resources.iter().map(|name| (name.clone(), lock.token)));
    let grants = grants.collect();
    load_grants(connection, rows, &grants).await
}

async fn load_buried(
    connection: &mut SqliteConnection,
    rows: &mut Rows,
    needs: &Needs,
) -> Result<(), LedgerError> {
    let locks = needs.locks.iter().map(|id| Buried::Lock(*id));
    let operations = needs.operations.iter().map(|id| Buried::Operation(*id));
    let wanted: Vec<Buried> = locks.chain(operations).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    // By position, so that the ids need not be read back.
    let pairs = wanted.iter().map(|buried| (buried.kind(), buried.id()));
    let found: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT n.key, b.buried_at FROM json_each(?1) n CROSS JOIN buried b
             ON b.kind = n.value ->> 0 AND b.id = n.value ->> 1",
    )
    .bind(json(pairs))
    .fetch_all(connection)
    .await
    .map_err(rolled_back)?;
    for (position, at) in found {
        if let Some(buried) = usize::try_from(position).ok().and_then(|i| wanted.get(i)) {
            rows.buried.insert(*buried, time(at));
        }
    }
    Ok(())
}

async fn load_keys(
    connection: &mut SqliteConnection,
    rows: &mut Rows,
    wanted: &BTreeSet<(ResourceName, String)>,
) -> Result<(), LedgerError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let found: Vec<(String, String, Vec<u8>, String, i64)> = sqlx::query_as(
        "SELECT k.resource, k.key, k.fingerprint, k.operation, k.stored_at
         FROM json_each(?1) n CROSS JOIN idempotency_keys k
             ON k.resource = n.value ->> 0 AND k.key = n.value ->> 1",
    )
    .bind(json(wanted))
    .fetch_all(connection)
    .await
    .map_err(rolled_back)?;
    for (name, key, fingerprint, operation, at) in found {
        let row = KeyRow {
            fingerprint: digest(fingerprint)?,
            operation: OperationId(id(&operation)?),
            at: time(at),
        };
        rows.keys.insert((resource_name(name)?, key), row);
    }
    Ok(())
}

#[derive(FromRow)]
pub(super) struct OperationColumns {
    id: String,
    resource: String,
    version: Option<i64>,
    kind: String,
    key: Option<String>,
    generation: i64,
    created: bool,
    size: i64,
    sha256: Option<Vec<u8>>,
    owner: String,
    committed_at: i64,
    did: Option<String>,
}

pub(super) async fn operations(
    connection: &mut SqliteConnection,
    ids: &str,
) -> Result<Vec<Applied>, LedgerError> {
    let found: Vec<OperationColumns> = sqlx::query_as(
        "SELECT o.* FROM json_each(?1) n CROSS JOIN operations o ON o.id = n.value
             ORDER BY o.id, o.resource",
    )
    .bind(ids)
    .fetch_all(connection)
    .await
    .map_err(rolled_back)?;
    found.into_iter().map(OperationColumns::applied).collect()
}

impl OperationColumns {
    pub(super) fn applied(self) -> Result<Applied, LedgerError> {
        Ok(Applied {
            operation: OperationId(id(&self.id)?),
            resource: resource_name(self.resource)?,
            kind: self.kind,
            key: self.key.map(object_key).transpose()?,
            version: self.version,
            generation: self.generation,
            created: self.created,
            size: self.size,
            sha256: self.sha256.map(digest).transpose()?,
            owner: self.owner,
            committed_at: time(self.committed_at),
            did: did(self.did.as_deref())?,
        })
    }
}

#[derive(FromRow)]
pub(super) struct ObjectColumns {
    pub(super) resource: String,
    pub(super) key: String,
    version: i64,
    generation: i64,
    content_type: String,
    size: i64,
    sha256: Vec<u8>,
    written_at: i64,
    body: Option<Vec<u8>>,
    blob: Option<String>,
}

impl ObjectColumns {
    pub(super) fn object(self) -> Result<Object, LedgerError> {
        Ok(Object {
            key: object_key(self.key)?,
            tag: EntityTag { generation: self.generation, version: self.version },
            content_type: self.content_type,
            size: self.size,
            sha256: digest(self.sha256)?,
            written_at: time(self.written_at),
            payload: match self.blob {
                Some(blob) => Payload::Blob(BlobId(id(&blob)?)),
                None => Payload::Inline(Bytes::from(self.body.unwrap_or_default())),
            },
        })
    }
}

/// Objects without their bytes, which no act looks at.
async fn load_objects(
    connection: &mut SqliteConnection,
    rows: &mut Rows,
    wanted: &BTreeSet<(ResourceName, ObjectKey)>,
) -> Result<(), LedgerError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let found: Vec<ObjectColumns> = sqlx::query_as(
        "SELECT o.resource, o.key, o.version, o.generation, o.content_type, o.size, o.sha256,
                o.written_at, NULL AS body, o.blob
         FROM json_each(?1) n CROSS JOIN objects o
             ON o.resource = n.value ->> 0 AND o.key = n.value ->> 1",
    )
    .bind(json(wanted))
    .fetch_all(connection)
    .await
    .map_err(rolled_back)?;
    for row in found {
        let name = resource_name(row.resource.clone())?;
        let object = row.object()?;
        rows.objects.insert((name, object.key.clone()), ObjectRow { object });
    }
    Ok(())
}

async fn load_intents(
    connection: &mut SqliteConnection,
    rows: &mut Rows,
    wanted: &BTreeSet<BlobId>,
) -> Result<(), LedgerError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let found: Vec<(String, i64, Option<String>)> = sqlx::query_as(
        "SELECT i.blob, i.begun_at, i.handle
         FROM json_each(?1) n CROSS JOIN blob_intents i ON i.blob = n.value",
    )
    .bind(json(wanted.iter().map(|blob| blob.0)))
    .fetch_all(connection)
    .await
    .map_err(rolled_back)?;
    for (blob, begun_at, handle) in found {
        let row = IntentRow { begun_at: time(begun_at), handle };
        rows.intents.insert(BlobId(id(&blob)?), row);
    }
    Ok(())
}
