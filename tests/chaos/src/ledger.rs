//! What the ledger holds at the end, read from its tables.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context as _, Result};
use fence_history::{Change, Committed};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::book::Wishes;

/// All grants and writes.
#[derive(Debug)]
pub struct Held {
    /// Resource, token, lock.
    pub grants: Vec<(String, i64, Uuid)>,
    /// A line for each resource that was touched.
    pub writes: Vec<Committed>,
    /// The objects that are there.
    pub objects: Vec<Object>,
}

/// An object that is there.
#[derive(Debug)]
pub struct Object {
    /// Of which resource.
    pub resource: String,
    /// Its key.
    pub key: String,
    generation: i64,
    version: i64,
    sha256: Vec<u8>,
}

impl Object {
    /// All of them.
    ///
    /// # Errors
    /// A table that cannot be read.
    pub async fn all(connection: &mut PgConnection) -> Result<Vec<Self>> {
        let query = "SELECT resource, key, generation, version, sha256 FROM fencegate.objects";
        let rows: Vec<(String, String, i64, i64, Vec<u8>)> =
            sqlx::query_as(query).fetch_all(connection).await.context("objects")?;
        let object = |(resource, key, generation, version, sha256)| Self {
            resource,
            key,
            generation,
            version,
            sha256,
        };
        Ok(rows.into_iter().map(object).collect())
    }
}

/// Where an object is, and what made it: generation, version, value.
type Made<'a> = BTreeMap<(&'a str, &'a str), (i64, i64, &'a str)>;

impl Held {
    /// The generation of each operation.
    pub fn generations(&self) -> HashMap<Uuid, i64> {
        self.writes.iter().map(|line| (line.operation, line.generation)).collect()
    }

    /// Reads them.
    ///
    /// # Errors
    /// A table that cannot be read.
    pub async fn read(connection: &mut PgConnection, wishes: &Wishes) -> Result<Self> {
        let grants = sqlx::query_as("SELECT resource, token, lock_id FROM fencegate.grants")
            .fetch_all(&mut *connection)
            .await
            .context("grants")?;
        let rows = sqlx::query(
            "SELECT o.*, CASE WHEN k.space = 'native' THEN k.key ELSE k.space || ':' || k.key END AS idempotency_key
             FROM fencegate.operations o
             LEFT JOIN fencegate.idempotency_keys k
                    ON k.resource = o.resource AND k.operation = o.id
             WHERE o.kind <> 'buried'",
        )
        .fetch_all(&mut *connection)
        .await
        .context("operations")?;
        let writes = rows.iter().map(|row| committed(row, wishes)).collect::<Result<_>>()?;
        Ok(Self { grants, writes, objects: Object::all(connection).await? })
    }

    /// Objects that are not what the writes, one version after the other, have made of them.
    pub fn misplaced(&self, wishes: &Wishes) -> Vec<String> {
        let mut made = Made::new();
        let mut writes: Vec<&Committed> = self.writes.iter().collect();
        writes.sort_by_key(|line| (&line.resource, line.version));
        for line in writes.iter().filter(|line| line.version.is_some()) {
            let at = (line.generation, line.version.unwrap_or_default());
            for change in &line.changes {
                match change {
                    Change::Put { key, value, .. } => {
                        made.insert((&line.resource, key), (at.0, at.1, value));
                    }
                    Change::Delete { key } => {
                        made.remove(&(line.resource.as_str(), key.as_str()));
                    }
                    Change::DeleteAll => made.retain(|(resource, _), _| *resource != line.resource),
                }
            }
        }
        let value =
            |object: &Object| wishes.values.get(&object.sha256).map(|(value, _)| value.as_str());
        let there: Made<'_> = self
            .objects
            .iter()
            .map(|object| {
                let value = value(object).unwrap_or("bytes that nobody put");
                (
                    (object.resource.as_str(), object.key.as_str()),
                    (object.generation, object.version, value),
                )
            })
            .collect();
        let all: BTreeSet<_> = made.keys().chain(there.keys()).collect();
        all.into_iter()
            .filter(|at| made.get(*at) != there.get(*at))
            .map(|at| {
                format!("{at:?} is {:?}, but was last made {:?}", there.get(at), made.get(at))
            })
            .collect()
    }
}

fn committed(row: &sqlx::postgres::PgRow, wishes: &Wishes) -> Result<Committed> {
    let (resource, key): (String, Option<String>) = (row.try_get("resource")?, row.try_get("key")?);
    let idempotency_key: Option<String> = row.try_get("idempotency_key")?;
    let kind: String = row.try_get("kind")?;
    let changes = match kind.as_str() {
        "put" => {
            // Of what came in parts it is not kept; the object has a digest of these.
            let digest: Option<Vec<u8>> = row.try_get("sha256")?;
            let wished = match &digest {
                Some(digest) => wishes.values.get(digest),
                None => idempotency_key.as_ref().and_then(|key| wishes.uploads.get(key)),
            };
            // Of bytes that nobody ever put, a checker will say so.
            let (value, adds) = wished.cloned().unwrap_or_default();
            vec![Change::Put { key: key.unwrap_or_default(), value, adds }]
        }
        "delete" => vec![Change::Delete { key: key.unwrap_or_default() }],
        "delete_all" => vec![Change::DeleteAll],
        _ => {
            let token: i64 = row.try_get("token")?;
            let by_key = idempotency_key.as_ref().and_then(|key| wishes.commits.get(key));
            let by_id = wishes.operations.get(&row.try_get("id")?);
            let steps = by_id.or(by_key).or_else(|| wishes.keyless.get(&token));
            let here = steps.into_iter().flatten().filter(|(name, _)| *name == resource);
            here.map(|(_, change)| change.clone()).collect()
        }
    };
    Ok(Committed {
        operation: row.try_get("id")?,
        resource,
        version: row.try_get("version")?,
        generation: row.try_get("generation")?,
        token: row.try_get("token")?,
        sequence: row.try_get("seq")?,
        idempotency_key,
        changes,
    })
}
