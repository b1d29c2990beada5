//! Loads the rows that an act needs. A row that is not found is not in the ledger.
//!
//! In rounds, each one statement that answers with one row of JSON lists: a row on its way through the
//! thread of the connection costs more than what SQLite does for it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use fence_core::acts::{Buried, FenceRow, Guard, Rows};
use fence_core::ports::{Applied, BlobId, LedgerError};
use fence_core::{LockId, ObjectKey, OperationId, ResourceName, Token};
use serde::de::DeserializeOwned;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow as _, Row as _, SqliteConnection};

use super::columns::{
    FenceColumns, GrantColumns, GuardColumns, HeadColumns, IntentColumns, KeyColumns, LockColumns,
    OperationColumns,
};
use super::needs::Needs;
use super::rolled_back;
use crate::ledger::{time, token};

/// A list as JSON, for `json_each`.
pub(super) fn json<T: serde::Serialize>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<T> = values.into_iter().collect();
    // INVARIANT: names, numbers and ids always serialize.
    serde_json::to_string(&values).expect("plain values")
}

/// What one round asks for.
#[derive(Default)]
pub(super) struct Round {
    pub(super) fences: BTreeSet<ResourceName>,
    pub(super) locks: BTreeSet<LockId>,
    pub(super) grants: BTreeSet<(ResourceName, Token)>,
    pub(super) numbers: BTreeSet<i64>,
    pub(super) buried: Vec<Buried>,
    pub(super) operations: BTreeSet<OperationId>,
    pub(super) keys: BTreeSet<(ResourceName, String)>,
    pub(super) objects: BTreeSet<(ResourceName, ObjectKey)>,
    pub(super) intents: BTreeSet<BlobId>,
}

/// Of grants the oldest of the resource comes along, which tells what history has let go; the numbers of those are taken
/// for granted.
///
/// Pairs are looked up by a number as a number: a STRICT integer column compares with nothing else.
/// Those buried come by position, so that their ids need not be read back.
///
/// Of an act, the first round also begins the transaction.
const ROUND: &str = "SELECT g.*, h.token AS let_go,
    (SELECT json_group_array(json_array(f.resource, f.token, f.lock_id, f.owner, f.hold, f.ttl_ms,
                f.deadline_ms, f.acquired_at, f.renewed_at, f.break_due, f.frozen, f.protected,
                f.version, f.last_seq, f.objects, f.grants, f.fence_order, f.live_token, f.principal,
                f.writers, f.ended_at))
     FROM json_each(?1) n CROSS JOIN fences f ON f.resource = n.value) AS fences,
    (SELECT json_group_array(json_array(l.id, l.resources, l.token, l.owner, l.ttl_ms, l.acquired_at,
                l.hold_until, l.metadata, l.fence, l.ended, l.ended_at, l.principal, l.writers, l.credential,
                l.credential_ends))
     FROM json_each(?2) n CROSS JOIN locks l ON l.id = n.value) AS locks,
    (SELECT json_group_array(json_array(a.resource, a.token, a.lock_id, a.owner, a.ordinal,
                a.superseded_by, a.superseded_at, a.principal, a.writers))
     FROM json_each(?3) n CROSS JOIN grants a
         ON a.resource = n.value ->> 0 AND a.token IN (
             n.value ->> 1, (SELECT min(b.token) FROM grants b WHERE b.resource = n.value ->> 0))) AS grants,
    (SELECT json_group_array(json_array(n.key, b.buried_at))
     FROM json_each(?4) n CROSS JOIN buried b
         ON b.kind = n.value ->> 0 AND b.id = n.value ->> 1) AS buried,
    (SELECT json_group_array(DISTINCT o.id)
     FROM json_each(?5) n CROSS JOIN operations o ON o.id = n.value) AS operations,
    (SELECT json_group_array(json_array(k.resource, k.key, hex(k.fingerprint), k.operation,
                k.stored_at, k.kept_until))
     FROM json_each(?6) n CROSS JOIN idempotency_keys k
         ON k.resource = n.value ->> 0 AND k.key = n.value ->> 1) AS keys,
    (SELECT json_group_array(json_array(o.resource, o.key, o.version, o.generation, o.content_type,
                o.size, hex(o.sha256), o.written_at, o.blob, o.principal, o.about, o.parts))
     FROM json_each(?7) n CROSS JOIN objects o
         ON o.resource = n.value ->> 0 AND o.key = n.value ->> 1) AS objects,
    (SELECT json_group_array(json_array(i.blob, i.begun_at, i.handle))
     FROM json_each(?8) n CROSS JOIN blob_intents i ON i.blob = n.value) AS intents,
    (SELECT json_group_array(g.base + n.value) FROM json_each(?9) n
     WHERE g.base + n.value BETWEEN 1 AND h.token
        OR EXISTS (SELECT 1 FROM grants a WHERE a.token = g.base + n.value)) AS granted
    FROM guard g CROSS JOIN history h";

impl Round {
    async fn ask(
        &self,
        connection: &mut SqliteConnection,
        statement: &'static str,
    ) -> Result<SqliteRow, LedgerError> {
        let row = sqlx::query(statement)
            .bind(json(&self.fences))
            .bind(json(&self.locks))
            .bind(json(self.grants.iter().map(|(name, token)| (name, token.get()))))
            .bind(json(self.buried.iter().map(|buried| (buried.kind(), buried.id()))))
            .bind(json(&self.operations))
            .bind(json(&self.keys))
            .bind(json(&self.objects))
            .bind(json(self.intents.iter().map(|blob| blob.0)))
            .bind(json(&self.numbers))
            .fetch_one(connection)
            .await;
        row.map_err(rolled_back)
    }

    /// Takes the rows of an answer. Returns the operations that are there.
    fn take(&self, answer: &SqliteRow, rows: &mut Rows) -> Result<Vec<OperationId>, LedgerError> {
        for row in list::<FenceColumns>(answer, "fences")? {
            rows.fences.extend([row.fence()?]);
        }
        for row in list::<i64>(answer, "granted")? {
            rows.granted.insert(token(row)?);
        }
        for row in list::<LockColumns>(answer, "locks")? {
            rows.locks.extend([row.lock()?]);
        }
        for row in list::<GrantColumns>(answer, "grants")? {
            rows.grants.extend([row.grant()?]);
        }
        for (position, at) in list::<(usize, i64)>(answer, "buried")? {
            rows.buried.extend(self.buried.get(position).map(|buried| (*buried, time(at))));
        }
        for row in list::<KeyColumns>(answer, "keys")? {
            rows.keys.extend([row.key()?]);
        }
        for row in list::<HeadColumns>(answer, "objects")? {
            rows.objects.extend([row.object()?]);
        }
        rows.intents.extend(list(answer, "intents")?.into_iter().map(IntentColumns::intent));
        list(answer, "operations")
    }

    /// The guard, and the rows of this round.
    pub(super) async fn load(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<Rows, LedgerError> {
        Ok(self.first(connection, ROUND).await?.0)
    }

    /// The same, and which of the operations are there.
    async fn first(
        &self,
        connection: &mut SqliteConnection,
        statement: &'static str,
    ) -> Result<(Rows, Vec<OperationId>), LedgerError> {
        let answer = self.ask(connection, statement).await?;
        let mut rows = Rows::new(GuardColumns::from_row(&answer).map_err(rolled_back)?.guard()?);
        rows.let_go = answer.try_get("let_go").map_err(rolled_back)?;
        let operations = self.take(&answer, &mut rows)?;
        Ok((rows, operations))
    }

    /// The rows of this round besides those that there are.
    pub(super) async fn load_more(
        &self,
        connection: &mut SqliteConnection,
        rows: &mut Rows,
    ) -> Result<(), LedgerError> {
        if !(self.fences.is_empty() && self.locks.is_empty() && self.grants.is_empty()) {
            let answer = self.ask(connection, ROUND).await?;
            self.take(&answer, rows)?;
        }
        Ok(())
    }
}

fn list<T: DeserializeOwned>(answer: &SqliteRow, column: &str) -> Result<Vec<T>, LedgerError> {
    let text: &str = answer.try_get(column).map_err(rolled_back)?;
    serde_json::from_str(text).map_err(|why| LedgerError::Defect(format!("{column}: {why}")))
}

/// Begins the transaction of an act, and loads:
/// 1. What can be named beforehand.
/// 2. The fences of the locks that were named.
/// 3. The holders of the fences and the grants, as far as they matter.
/// 4. The operations that were found, and those of keys.
/// 5. What is under way at upstreams.
///
/// A step that has nothing to look for asks nothing.
pub(super) async fn begin(
    connection: &mut SqliteConnection,
    needs: &Needs,
) -> Result<Rows, LedgerError> {
    let locks = needs.locks.iter().map(|id| Buried::Lock(*id));
    let first = Round {
        fences: needs.resources.clone(),
        locks: needs.locks.clone(),
        numbers: needs.numbers.clone(),
        buried: locks.chain(needs.operations.iter().map(|id| Buried::Operation(*id))).collect(),
        operations: needs.operations.clone(),
        keys: needs.keys.clone(),
        objects: needs.objects.clone(),
        intents: needs.intents.clone(),
        ..Round::default()
    };
    static BEGIN: LazyLock<String> = LazyLock::new(|| format!("BEGIN IMMEDIATE; {ROUND}"));
    let (mut rows, mut operations) = first.first(connection, &BEGIN).await?;

    let covered = rows.locks.values().flat_map(|row| &row.resources);
    let fences = covered.filter(|name| !needs.resources.contains(name)).cloned().collect();
    Round { fences, ..Round::default() }.load_more(connection, &mut rows).await?;

    // A break that comes due while an act looks at a fence ends its lock.
    let due = |fence: &&FenceRow| needs.holders || fence.break_due.is_some();
    let holders = rows.fences.values().filter(due).map(|fence| fence.lock);
    let locks = holders.filter(|lock| !needs.locks.contains(lock)).collect();
    let mut grants = needs.grants.clone();
    if needs.holders {
        grants.extend(rows.fences.iter().map(|(name, fence)| (name.clone(), fence.token)));
        // What superseded a lock that has ended, its grant says.
        let ended = rows.locks.values().filter(|row| row.ended.is_some());
        grants.extend(ended.filter_map(|row| Some((row.resources.first()?.clone(), row.token))));
    } else {
        grants.retain(|(name, token)| rows.fences.get(name).is_some_and(|f| f.token != *token));
    }
    Round { locks, grants, ..Round::default() }.load_more(connection, &mut rows).await?;

    operations.extend(rows.keys.values().map(|row| row.operation));
    if !operations.is_empty() {
        let operations: BTreeSet<_> = operations.into_iter().collect();
        for applied in self::operations(connection, &json(operations)).await? {
            rows.operations.entry(applied.operation).or_default().push(applied);
        }
    }
    super::upstreams::load(connection, &mut rows, needs).await?;
    super::multipart::load(connection, &mut rows, needs).await?;
    Ok(rows)
}

pub(super) async fn guard(connection: &mut SqliteConnection) -> Result<Guard, LedgerError> {
    let row: GuardColumns =
        sqlx::query_as("SELECT * FROM guard").fetch_one(connection).await.map_err(rolled_back)?;
    row.guard()
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
