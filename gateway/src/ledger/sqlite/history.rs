//! What is let go of the history, as `schema/postgres/acts/history.sql` does it.

use sqlx::{Connection as _, SqliteConnection};

/// How far the events go: up to the first one that is too young, or before whose version an idempotency key still stands
/// for an operation, or as many as one pass takes.
const EVENTS_UPTO: &str = "
    SELECT coalesce(min(e.number) FILTER (WHERE o.committed_at >= ?1 OR EXISTS (
               SELECT 1 FROM operations b JOIN idempotency_keys k ON k.operation = b.id
               WHERE b.resource = o.resource AND b.version = o.version - 1)) - 1, max(e.number))
    FROM history h JOIN events e ON e.number > h.events AND e.number <= h.events + ?2
    LEFT JOIN operations o ON o.id = e.operation AND (e.resource IS NULL OR o.resource = e.resource)";

/// The operations before the versions of those events.
const OPERATIONS: &str = "
    DELETE FROM operations WHERE (id, resource) IN (
        SELECT d.id, d.resource
        FROM history h JOIN events e ON e.number > h.events AND e.number <= ?1
        JOIN operations o ON o.id = e.operation AND (e.resource IS NULL OR o.resource = e.resource)
        JOIN operations d ON d.resource = o.resource AND d.version = o.version - 1)";

/// Those that changed nothing have no event.
const UNNUMBERED: &str = "
    DELETE FROM operations WHERE (id, resource) IN (
        SELECT id, resource FROM (
            SELECT id, resource FROM operations WHERE version IS NULL AND committed_at < ?1
            ORDER BY committed_at LIMIT ?2) o
        WHERE NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.operation = o.id))";

/// Grants that another one superseded long ago, those of a resource in their order: one that stays keeps the later ones, also
/// those that a clock that was ahead meanwhile makes older.
macro_rules! old_grants {
    () => {
        "(SELECT o.resource, o.token FROM grants o WHERE o.superseded_at < ?1 AND NOT EXISTS (
              SELECT 1 FROM grants e WHERE e.resource = o.resource AND e.token < o.token AND e.superseded_at >= ?1)
          ORDER BY o.token, o.resource LIMIT ?2)"
    };
}

/// No number up to these is ever sealed again (I15).
const TOKEN: &str = concat!(
    "UPDATE history SET token = max(token, (SELECT coalesce(max(g.token), 0) FROM ",
    old_grants!(),
    " g))"
);

/// Their entries in the audit.
macro_rules! entries {
    () => {
        concat!(
            "SELECT a.number FROM ",
            old_grants!(),
            " g JOIN audit a ON a.resource = g.resource AND a.token = g.token
                            AND a.action IN ('grant', 'transfer', 'fence')"
        )
    };
}

/// Whether the tree over the audit has leaves of all of them.
const ARE_SEALED: &str = concat!(
    "SELECT coalesce(max(e.number), 0) <= (SELECT t.upto FROM audit_tree t) FROM (",
    entries!(),
    ") e"
);

const ENTRIES: &str = concat!(
    "UPDATE history SET grants = max(grants, (SELECT coalesce(max(e.number), 0) FROM (",
    entries!(),
    ") e))"
);

const AUDIT: &str = concat!("DELETE FROM audit WHERE number IN (", entries!(), ")");

const GRANTS: &str = concat!("DELETE FROM grants WHERE (resource, token) IN ", old_grants!());

/// Lets go of history that is older than this time, in microseconds; at most `rows` events and grants. Says how many
/// rows were removed.
pub(super) async fn prune(
    connection: &mut SqliteConnection,
    before: i64,
    rows: i64,
) -> Result<u64, sqlx::Error> {
    let mut act = connection.begin().await?;
    let mut removed = 0;
    let upto: Option<i64> =
        sqlx::query_scalar(EVENTS_UPTO).bind(before).bind(rows).fetch_one(&mut *act).await?;
    if let Some(upto) = upto {
        for statement in [OPERATIONS, "UPDATE history SET events = max(events, ?1)"] {
            removed += sqlx::query(statement).bind(upto).execute(&mut *act).await?.rows_affected();
        }
        // That of the history itself is not removed.
        removed -= 1;
        let events = "DELETE FROM events WHERE number <= ?1";
        removed += sqlx::query(events).bind(upto).execute(&mut *act).await?.rows_affected();
    }
    let unnumbered = sqlx::query(UNNUMBERED).bind(before).bind(rows);
    removed += unnumbered.execute(&mut *act).await?.rows_affected();
    if removed > 0 {
        let_go(&mut act, before).await?;
    }
    let are_sealed = sqlx::query_scalar(ARE_SEALED).bind(before).bind(rows);
    if are_sealed.fetch_one(&mut *act).await? {
        for statement in [TOKEN, ENTRIES, AUDIT] {
            sqlx::query(statement).bind(before).bind(rows).execute(&mut *act).await?;
        }
        let grants = sqlx::query(GRANTS).bind(before).bind(rows);
        removed += grants.execute(&mut *act).await?.rows_affected();
    }
    act.commit().await?;
    Ok(removed)
}

/// Lets go of the operations and burials that were stored before this time, in microseconds: in the act that removes them.
pub(super) async fn let_go(
    connection: &mut SqliteConnection,
    before: i64,
) -> Result<(), sqlx::Error> {
    let call = sqlx::query("UPDATE guard SET let_go_before = max(let_go_before, ?1)").bind(before);
    call.execute(connection).await.map(drop)
}

/// Forgets what was buried before this time, in microseconds; at most so many rows. Says how many.
pub(super) async fn forget_burials(
    connection: &mut SqliteConnection,
    before: i64,
    rows: i64,
) -> Result<u64, sqlx::Error> {
    let mut act = connection.begin().await?;
    let operations =
        "SELECT EXISTS (SELECT 1 FROM buried WHERE kind = 'operation' AND buried_at < ?1)";
    if sqlx::query_scalar(operations).bind(before).fetch_one(&mut *act).await? {
        let_go(&mut act, before).await?;
    }
    let statement = "
        DELETE FROM buried WHERE (kind, id) IN (
            SELECT kind, id FROM buried WHERE buried_at < ?1 ORDER BY buried_at LIMIT ?2)";
    let call = sqlx::query(statement).bind(before).bind(rows);
    let removed = call.execute(&mut *act).await?.rows_affected();
    act.commit().await?;
    Ok(removed)
}
