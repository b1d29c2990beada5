//! What `fencegate scrub` and the start look at beside the acts: whether tokens ever fell or versions are left out, and
//! who else could put functions where names are looked up.

use fence_core::ports::LedgerError;

use super::PgLedger;
use super::reads::fetch_anyway;
use super::session::harmless;

/// How many operations are read at a time.
const BATCH: i64 = 10_000;
/// How many findings are kept.
const FOUND_MAX: usize = 1000;

/// What is wrong with a version, beside the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disorder {
    /// It was written under an older token.
    OlderToken,
    /// It is not the next one.
    LeavesOut,
}

/// A write that no act has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fall {
    /// Of which resource.
    pub resource: String,
    /// Its version.
    pub version: i64,
    /// What is wrong with it.
    pub disorder: Disorder,
}

impl PgLedger {
    /// The writes whose token is older than that of an earlier version of their resource (I3), and those that leave out
    /// a version (I6). No act makes one: whoever finds one has a ledger that somebody else's code has written to.
    pub async fn falls(&self) -> Result<Vec<Fall>, LedgerError> {
        let mut falls = Vec::new();
        // Of the last row: resource, version, and the highest token of the resource so far.
        let mut last = (String::new(), 0, 0);
        loop {
            let query = sqlx::query_as::<_, (String, i64, i64)>(
                "SELECT o.resource, o.version, o.token FROM fencegate.operations o
                 WHERE (o.resource, o.version) > ($1, $2)
                 ORDER BY o.resource, o.version LIMIT $3",
            )
            .bind(&last.0)
            .bind(last.1)
            .bind(BATCH);
            let rows: Vec<(String, i64, i64)> = fetch_anyway!(self.sessions, fetch_all, query)?;
            if rows.is_empty() || falls.len() >= FOUND_MAX {
                return Ok(falls);
            }
            for (resource, version, token) in rows {
                let goes_on = resource == last.0;
                let highest = if goes_on { last.2 } else { 0 };
                if token < highest {
                    let disorder = Disorder::OlderToken;
                    falls.push(Fall { resource: resource.clone(), version, disorder });
                }
                if goes_on && version != last.1 + 1 && self.is_kept(&last.0, last.1).await? {
                    let disorder = Disorder::LeavesOut;
                    falls.push(Fall { resource: resource.clone(), version, disorder });
                }
                last = (resource, version, highest.max(token));
            }
        }
    }

    /// Whether this version is still there. History goes from the first version on: if it is, nothing behind it was let
    /// go since it was read.
    async fn is_kept(&self, resource: &str, version: i64) -> Result<bool, LedgerError> {
        let query = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT FROM fencegate.operations WHERE resource = $1 AND version = $2)",
        )
        .bind(resource)
        .bind(version);
        fetch_anyway!(self.sessions, fetch_one, query)
    }

    /// The roles besides this one that may create functions in schema `public`; the gateway does not look
    /// there, but whatever else uses this database may.
    pub async fn other_creators(&self) -> Result<Vec<String>, LedgerError> {
        let query = sqlx::query_scalar::<_, String>(
            "SELECT coalesce(r.rolname, 'PUBLIC')::text
             FROM pg_namespace n
             CROSS JOIN aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
             LEFT JOIN pg_roles r ON r.oid = a.grantee
             WHERE n.nspname = 'public' AND a.privilege_type = 'CREATE'
               AND a.grantee <> n.nspowner AND coalesce(r.rolname <> current_user, true)
             ORDER BY 1",
        );
        fetch_anyway!(self.sessions, fetch_all, query)
    }

    /// Whether this role owns the ledger's tables, or is a superuser, and so may change what nobody should.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn owns_its_tables(&self) -> Result<bool, LedgerError> {
        let query = sqlx::query_scalar::<_, bool>(
            "SELECT pg_has_role(n.nspowner, 'MEMBER') FROM pg_namespace n WHERE n.nspname = 'fencegate'",
        );
        fetch_anyway!(self.sessions, fetch_one, query)
    }
}
