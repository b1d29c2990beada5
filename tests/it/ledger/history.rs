//! What a ledger holds, read past the gateway, and what must be true of it whatever happened.

use std::collections::{BTreeMap, HashMap};

use fence_tests::gateway::Gateway;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection as _, PgConnection};

use crate::setup::ledger_file;

/// A committed write.
#[derive(Debug, Clone)]
pub struct Operation {
    pub id: String,
    pub resource: String,
    pub version: Option<i64>,
    pub key: Option<String>,
    /// The token that was presented; not kept on SQLite.
    pub token: Option<i64>,
    pub owner: String,
}

/// A grant.
#[derive(Debug, Clone)]
pub struct Granted {
    pub resource: String,
    pub ordinal: i64,
    pub token: i64,
    pub owner: String,
}

/// All of a ledger that matters here.
#[derive(Debug)]
pub struct History {
    /// In the order of resource and version.
    pub operations: Vec<Operation>,
    /// In the order of resource and ordinal.
    pub grants: Vec<Granted>,
    /// The fence of each resource: token, version, number of grants.
    pub fences: BTreeMap<String, (i64, i64, i64)>,
    /// The operation of each resource and idempotency key.
    pub keys: HashMap<(String, String), String>,
}

macro_rules! read {
    ($connection:expr, $schema:literal, $token:literal, $version:literal) => {{
        let connection = $connection;
        let operations = sqlx::query_as(concat!(
            "SELECT CAST(id AS text) AS id, resource, version, key, owner, ",
            $token,
            " AS token FROM ",
            $schema,
            "operations WHERE kind <> 'buried' ORDER BY resource, version"
        ));
        let grants = sqlx::query_as(concat!(
            "SELECT resource, ordinal, token, owner FROM ",
            $schema,
            "grants ORDER BY resource, ordinal"
        ));
        let fences = sqlx::query_as(concat!(
            "SELECT resource, token, ",
            $version,
            ", grants FROM ",
            $schema,
            "fences f"
        ));
        let keys = sqlx::query_as(concat!(
            "SELECT resource, key, CAST(operation AS text) FROM ",
            $schema,
            "idempotency_keys"
        ));
        let operations: Vec<(String, String, Option<i64>, Option<String>, String, Option<i64>)> =
            operations.fetch_all(&mut *connection).await.expect("operations");
        let grants: Vec<(String, i64, i64, String)> =
            grants.fetch_all(&mut *connection).await.expect("grants");
        let fences: Vec<(String, i64, i64, i64)> =
            fences.fetch_all(&mut *connection).await.expect("fences");
        let keys: Vec<(String, String, String)> =
            keys.fetch_all(&mut *connection).await.expect("keys");
        let operation = |(id, resource, version, key, owner, token)| Operation {
            id,
            resource,
            version,
            key,
            token,
            owner,
        };
        let grant = |(resource, ordinal, token, owner)| Granted { resource, ordinal, token, owner };
        let fence = |(name, token, version, grants)| (name, (token, version, grants));
        History {
            operations: operations.into_iter().map(operation).collect(),
            grants: grants.into_iter().map(grant).collect(),
            fences: fences.into_iter().map(fence).collect(),
            keys: keys.into_iter().map(|(r, key, operation)| ((r, key), operation)).collect(),
        }
    }};
}

impl History {
    /// Of a Postgres database.
    pub async fn of_postgres(connection: &mut PgConnection) -> Self {
        read!(
            connection,
            "fencegate.",
            "token",
            "(SELECT coalesce(max(o.version), 0) FROM fencegate.operations o
              WHERE o.resource = f.resource)"
        )
    }

    /// Of an embedded gateway that has ended.
    pub async fn of_sqlite(gateway: &Gateway) -> Self {
        let ledger = SqliteConnectOptions::new().filename(ledger_file(gateway));
        let mut connection = ledger.connect().await.expect("the ledger opens");
        let history = read!(&mut connection, "", "NULL", "version");
        connection.close().await.expect("it closes");
        history
    }

    /// Panics unless versions are gapless, tokens rise, no write under an older token comes after
    /// one under a newer, and each key stands for a write that is there. Owners must be distinct.
    pub fn check(&self) {
        let mut versions: BTreeMap<&str, i64> = BTreeMap::new();
        for operation in self.operations.iter().filter(|operation| operation.version.is_some()) {
            let last = versions.entry(&operation.resource).or_default();
            *last += 1;
            assert_eq!(operation.version, Some(*last), "a gap: {operation:?}");
        }
        let mut tokens: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for grant in &self.grants {
            let (ordinal, token) = tokens.entry(&grant.resource).or_default();
            assert_eq!(grant.ordinal, *ordinal + 1, "a grant is missing: {grant:?}");
            assert!(grant.token > *token, "the fence fell: {grant:?} after {token}");
            (*ordinal, *token) = (grant.ordinal, grant.token);
        }
        for (name, (token, version, grants)) in &self.fences {
            let name = name.as_str();
            assert_eq!(*version, versions.get(name).copied().unwrap_or(0), "{name}");
            assert_eq!((*grants, *token), tokens.get(name).copied().unwrap_or((0, 0)), "{name}");
        }
        let owned = |grant: &Granted| ((grant.resource.clone(), grant.owner.clone()), grant.token);
        let by_owner: HashMap<_, _> = self.grants.iter().map(owned).collect();
        assert_eq!(by_owner.len(), self.grants.len(), "owners are distinct");
        let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
        for operation in &self.operations {
            let token = by_owner[&(operation.resource.clone(), operation.owner.clone())];
            assert_eq!(operation.token.unwrap_or(token), token, "another's token: {operation:?}");
            let newest = newest.entry(&operation.resource).or_default();
            assert!(token >= *newest, "a stale write took effect: {operation:?}");
            *newest = token;
        }
        let by_id = self.by_id();
        for ((resource, key), id) in &self.keys {
            let operation = by_id.get(id.as_str());
            assert!(operation.is_some_and(|o| o.resource == *resource), "{key} stands for nothing");
        }
    }

    /// The operations by id.
    pub fn by_id(&self) -> HashMap<&str, &Operation> {
        self.operations.iter().map(|operation| (operation.id.as_str(), operation)).collect()
    }
}
