//! The acts of this binary, as functions of a schema of their own: `schema/postgres/acts`, applied whole. So
//! gateways of two versions work beside each other on one ledger, each with acts of its own, until the older
//! acts are retired.

use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

/// Which acts these are: one more whenever one of them changes after a release.
pub const NUMBER: i64 = 1;

/// The schema that has them, as a literal, for statements; `fencegate_acts_` and [`NUMBER`].
macro_rules! acts {
    () => {
        "fencegate_acts_1"
    };
}

/// The files of `schema/postgres/acts`, in the order in which they are applied.
const FILES: [&str; 28] = [
    include_str!("../../../../schema/postgres/acts/frame.sql"),
    include_str!("../../../../schema/postgres/acts/own_time.sql"),
    include_str!("../../../../schema/postgres/acts/rule.sql"),
    include_str!("../../../../schema/postgres/acts/views.sql"),
    include_str!("../../../../schema/postgres/acts/queue.sql"),
    include_str!("../../../../schema/postgres/acts/sealing.sql"),
    include_str!("../../../../schema/postgres/acts/seal.sql"),
    include_str!("../../../../schema/postgres/acts/renew.sql"),
    include_str!("../../../../schema/postgres/acts/release.sql"),
    include_str!("../../../../schema/postgres/acts/break.sql"),
    include_str!("../../../../schema/postgres/acts/multipart.sql"),
    include_str!("../../../../schema/postgres/acts/writing.sql"),
    include_str!("../../../../schema/postgres/acts/write.sql"),
    include_str!("../../../../schema/postgres/acts/blobs.sql"),
    include_str!("../../../../schema/postgres/acts/listing.sql"),
    include_str!("../../../../schema/postgres/acts/buckets.sql"),
    include_str!("../../../../schema/postgres/acts/upstreams.sql"),
    include_str!("../../../../schema/postgres/acts/events.sql"),
    include_str!("../../../../schema/postgres/acts/operators.sql"),
    include_str!("../../../../schema/postgres/acts/access.sql"),
    include_str!("../../../../schema/postgres/acts/stocks.sql"),
    include_str!("../../../../schema/postgres/acts/records.sql"),
    include_str!("../../../../schema/postgres/acts/audit_tree.sql"),
    include_str!("../../../../schema/postgres/acts/epochs.sql"),
    include_str!("../../../../schema/postgres/acts/disasters.sql"),
    include_str!("../../../../schema/postgres/acts/history.sql"),
    include_str!("../../../../schema/postgres/acts/sweep.sql"),
    include_str!("../../../../schema/postgres/acts/shared.sql"),
];

/// What a ledger says of acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The lowest that may still act.
    pub lowest: i64,
    /// The newest that are there.
    pub newest: i64,
    /// Whether those of this binary are there, with this very text.
    pub is_there: bool,
}

/// Whether a gateway may go on with the acts that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It may.
    InForce,
    /// They were retired: they refuse everything.
    Retired,
    /// They are not there: the ledger went back to before they were installed, say.
    Gone,
}

/// SQL that names the acts' schema as their files do, `acts.`, for this binary.
pub fn named(sql: &str) -> String {
    let (mut named, mut rest) = (String::with_capacity(sql.len() + sql.len() / 8), sql);
    while let Some(at) = rest.find("acts.") {
        let (before, found) = rest.split_at(at);
        let is_name = |character: char| character.is_alphanumeric() || "_.".contains(character);
        let is_schema = !before.ends_with(is_name)
            && found["acts.".len()..].starts_with(|next: char| next.is_ascii_lowercase());
        named.push_str(before);
        named.push_str(if is_schema { concat!(acts!(), ".") } else { "acts." });
        rest = &found["acts.".len()..];
    }
    named + rest
}

/// The text of all of them.
fn text() -> String {
    FILES.map(named).join("\n").replace("NUMBER_OF_THESE_ACTS", &NUMBER.to_string())
}

fn digest() -> String {
    hex::encode(Sha256::digest(text()))
}

/// What acts the ledger has. They are there if their schema is, too, and belongs to whom the tables belong to.
pub async fn installed(connection: &mut PgConnection) -> sqlx::Result<Installed> {
    let query = "SELECT (SELECT w.acts_min FROM fencegate.write_guard w),
                        coalesce((SELECT max(a.number) FROM fencegate.act_sets a), 0),
                        EXISTS (SELECT FROM fencegate.act_sets a
                                JOIN pg_namespace n ON n.nspname = $3
                                JOIN pg_namespace f ON f.nspname = 'fencegate' AND f.nspowner = n.nspowner
                                WHERE a.number = $1 AND a.digest = $2)";
    let query = sqlx::query_as(query).bind(NUMBER).bind(digest()).bind(acts!());
    let (lowest, newest, is_there) = query.fetch_one(connection).await?;
    Ok(Installed { lowest, newest, is_there })
}

/// Whether this role may look into the schema of the acts.
pub async fn may_be_used(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let query = "SELECT has_schema_privilege($1, 'USAGE')";
    sqlx::query_scalar(query).bind(acts!()).fetch_one(connection).await
}

/// Acts as this role, named as SQL names it, until the transaction ends.
pub async fn become_role(connection: &mut PgConnection, role: &str) -> sqlx::Result<()> {
    connection.execute(AssertSqlSafe(format!("SET LOCAL ROLE {role}"))).await.map(drop)
}

/// An empty schema of that name, in the place of what is there. Only whoever connects may make one, not the owner.
async fn make_anew(connection: &mut PgConnection, schema: &str, owner: &str) -> sqlx::Result<()> {
    let anew = format!(
        "SET LOCAL ROLE NONE;
         DROP SCHEMA IF EXISTS {schema} CASCADE;
         CREATE SCHEMA {schema} AUTHORIZATION {owner};
         SET LOCAL ROLE {owner}"
    );
    connection.execute(AssertSqlSafe(anew)).await.map(drop)
}

/// Puts the acts of this binary in the place of what is there under their number, in the transaction of the caller, who
/// has seen to it that no other does, and that none are newer: what is in schema `fencegate` is that of the newest.
/// All of it is the owner's. Nobody else may execute a function, unless it is one that a superuser made their own.
pub async fn install(connection: &mut PgConnection, owner: &str) -> sqlx::Result<()> {
    let (schema, text) = (acts!(), text());
    make_anew(connection, schema, owner).await?;
    let all = format!(
        "SET LOCAL check_function_bodies = off;
         {text}
         REVOKE ALL ON ALL ROUTINES IN SCHEMA {schema} FROM PUBLIC;
         DO $do$
         DECLARE
             routine regprocedure;
         BEGIN
             FOR routine IN SELECT p.oid FROM pg_proc p
                            WHERE p.pronamespace = 'fencegate'::regnamespace
                              AND pg_has_role(p.proowner, 'MEMBER') LOOP
                 EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', routine);
             END LOOP;
         END $do$;"
    );
    connection.execute(AssertSqlSafe(all)).await?;
    let note = "INSERT INTO fencegate.act_sets (number, digest) VALUES ($1, $2)
                ON CONFLICT (number) DO UPDATE SET digest = excluded.digest, installed_at = now()";
    sqlx::query(note).bind(NUMBER).bind(digest()).execute(connection).await.map(drop)
}

/// Whether the acts of this binary may still be used, and are there.
pub async fn standing(connection: &mut PgConnection) -> sqlx::Result<Standing> {
    let query =
        "SELECT w.acts_min > $1, EXISTS (SELECT FROM fencegate.act_sets a WHERE a.number = $1)
                 FROM fencegate.write_guard w";
    let (is_retired, is_there) = sqlx::query_as(query).bind(NUMBER).fetch_one(connection).await?;
    Ok(match (is_retired, is_there) {
        (true, _) => Standing::Retired,
        (false, true) => Standing::InForce,
        (false, false) => Standing::Gone,
    })
}

/// How long whoever retires older acts waits for those that are under way, and then for sessions that use them.
const RETIRING: &str = "SELECT set_config('lock_timeout', '10s', true)";

/// Lets older acts do nothing any more, once the transaction of the caller has committed. Waits for those that are
/// under way.
pub async fn retire_older(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query(RETIRING).execute(&mut *connection).await?;
    for guard in ["seal_guard", "write_guard"] {
        // The trigger of the table waits for the acts under way, whether a row changes or not.
        let older = format!("SELECT EXISTS (SELECT FROM fencegate.{guard} WHERE acts_min < $1)");
        let raise = format!("UPDATE fencegate.{guard} SET acts_min = $1");
        let is_older = sqlx::query_scalar(AssertSqlSafe(older)).bind(NUMBER);
        if is_older.fetch_one(&mut *connection).await? {
            sqlx::query(AssertSqlSafe(raise)).bind(NUMBER).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Drops the acts that are retired; returns their numbers. Their schemas stay, empty, so that nobody else takes a name
/// under which a gateway that stood still may yet look for its acts.
pub async fn drop_retired(connection: &mut PgConnection, owner: &str) -> sqlx::Result<Vec<i64>> {
    sqlx::query(RETIRING).execute(&mut *connection).await?;
    let older = "DELETE FROM fencegate.act_sets WHERE number < $1 RETURNING number";
    let older: Vec<i64> =
        sqlx::query_scalar(older).bind(NUMBER).fetch_all(&mut *connection).await?;
    for number in &older {
        make_anew(connection, &format!("fencegate_acts_{number}"), owner).await?;
    }
    Ok(older)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_number() {
        assert_eq!(acts!(), format!("fencegate_acts_{NUMBER}"));
    }

    #[test]
    fn only_the_schema_is_named() {
        let sql = "acts.seal(x) facts.seal acts. Then PERFORM acts.a(acts.b()); my.acts.c";
        let expected = sql
            .replace("acts.seal(x) ", "fencegate_acts_1.seal(x) ")
            .replace(" acts.a(acts.b())", " fencegate_acts_1.a(fencegate_acts_1.b())");
        assert_eq!(named(sql), expected);
    }

    #[test]
    fn all_files_are_applied() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../schema/postgres/acts");
        let files = std::fs::read_dir(folder).expect("the folder is there");
        let texts: Vec<_> = files
            .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("text"))
            .collect();
        assert_eq!(texts.len(), FILES.len());
        assert!(texts.iter().all(|text| FILES.contains(&text.as_str())));
    }
}
