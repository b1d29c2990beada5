//! Users' tables that refuse unguarded writes, and the roles that may use `fencegate.guard`.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test makes names of its own")]

use fence_core::wire::Lock;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::ledger::guard::{Site, documented, guard, refused};
use crate::schedules::forced::run;

async fn count(connection: &mut PgConnection, table: &str) -> i64 {
    let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
    sqlx::query_scalar(query).fetch_one(connection).await.unwrap()
}

/// Runs statements in one transaction, the last of which must fail; returns its SQLSTATE.
async fn fails(connection: &mut PgConnection, statements: &[&str]) -> String {
    let (last, before) = statements.split_last().unwrap();
    run(connection, "BEGIN").await;
    for statement in before {
        run(connection, statement).await;
    }
    let (code, _) = refused(connection, last).await;
    run(connection, "ROLLBACK").await;
    code
}

/// Runs statements in one transaction, which must commit.
async fn commits(connection: &mut PgConnection, statements: &[&str]) {
    run(connection, "BEGIN").await;
    for statement in statements {
        run(connection, statement).await;
    }
    run(connection, "COMMIT").await;
}

#[tokio::test]
async fn a_table_refuses_what_is_written_without_a_guard_in_the_same_transaction() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "10m").await;
    let guard = &*guard(&lock);
    let c = &mut site.connect().await;
    run(c, "SELECT fencegate.require_guard('accounts')").await;

    let insert = "INSERT INTO accounts VALUES ('c', 1)";
    let update = "UPDATE accounts SET balance = 1 WHERE id = 'a'";
    let delete = "DELETE FROM accounts WHERE id = 'a'";
    let upsert = "INSERT INTO accounts VALUES ('a', 1) ON CONFLICT (id) DO UPDATE SET balance = 1";
    let copy = "COPY accounts FROM PROGRAM 'echo c,1' WITH (FORMAT csv)";
    let writes = [insert, update, delete, upsert, copy, "TRUNCATE accounts"];
    for write in writes {
        assert_eq!(refused(c, write).await.0, "FG408", "{write}");
        // A guard of its own transaction guards nothing after it.
        run(c, guard).await;
        assert_eq!(refused(c, write).await.0, "FG408", "{write}");
        assert_eq!(fails(c, &[write]).await, "FG408", "{write}");
        // Nor one that was taken back, with the lock that it had.
        let taken_back = ["SAVEPOINT s", guard, "ROLLBACK TO s", write];
        assert_eq!(fails(c, &taken_back).await, "FG408", "{write}");
        assert_eq!(
            fails(c, &["SAVEPOINT s", guard, "ROLLBACK TO s", "RELEASE s", write]).await,
            "FG408"
        );
    }
    // A mark that was left over from another transaction says nothing.
    let mark = "SET fencegate.guarded = '1 job:1'";
    assert_eq!(fails(c, &[mark, update]).await, "FG408");
    let keep =
        "SELECT set_config('fencegate.guarded', current_setting('fencegate.guarded'), false)";
    commits(c, &[guard, keep]).await;
    assert_eq!(fails(c, &[update]).await, "FG408");
    run(c, "RESET fencegate.guarded").await;
    // A caught error rolls back to before the block, and so takes the guard back.
    let caught = format!(
        "DO $$ BEGIN BEGIN PERFORM fencegate.guard('job:1', {}); PERFORM 1 / 0;
         EXCEPTION WHEN division_by_zero THEN NULL; END; {update}; END $$",
        lock.token
    );
    assert_eq!(refused(c, &caught).await.0, "FG408");
    assert_eq!(count(c, "accounts WHERE balance = 0").await, 2);

    commits(
        c,
        &[guard, upsert, insert, "SAVEPOINT s", "DELETE FROM accounts", "ROLLBACK TO s", update],
    )
    .await;
    commits(c, &["SAVEPOINT s", guard, "RELEASE s", delete]).await;
    commits(
        c,
        &[
            "SAVEPOINT s",
            "ROLLBACK TO s",
            guard,
            "SAVEPOINT s",
            guard,
            "ROLLBACK TO s",
            insert.replace("'c'", "'d'").as_str(),
        ],
    )
    .await;
    assert_eq!(count(c, "accounts").await, 3);
    commits(c, &[guard, "TRUNCATE accounts"]).await;
    assert_eq!(count(c, "accounts").await, 0);
    // Also under the other levels.
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let set = &*format!("SET TRANSACTION ISOLATION LEVEL {isolation}");
        assert_eq!(fails(c, &[set, insert]).await, "FG408");
        commits(c, &[set, guard, insert]).await;
        run(c, "BEGIN").await;
        run(c, guard).await;
        run(c, "DELETE FROM accounts; COMMIT").await;
    }
}

#[tokio::test]
async fn a_table_with_a_column_of_resources_refuses_what_is_guarded_for_another() {
    let site = Site::new().await;
    let (one, two) =
        (site.client.acquire("job:1", "10m").await, site.client.acquire("job:2", "10m").await);
    let (one, two) = (&*guard(&one), &*guard(&two));
    let c = &mut site.connect().await;
    run(
        c,
        "CREATE TABLE entries (id int, resource text);
            SELECT fencegate.require_guard('entries', 'resource')",
    )
    .await;
    let insert = "INSERT INTO entries VALUES (1, 'job:1')";
    assert_eq!(refused(c, insert).await.0, "FG408");
    assert_eq!(fails(c, &[two, insert]).await, "FG409");
    assert_eq!(fails(c, &[one, "INSERT INTO entries VALUES (1, NULL)"]).await, "FG409");
    assert_eq!(
        fails(c, &[one, "INSERT INTO entries VALUES (1, 'job:1'), (2, 'job:2')"]).await,
        "FG409"
    );
    assert_eq!(fails(c, &[one, two, "TRUNCATE entries"]).await, "FG409");
    commits(c, &[one, insert]).await;
    for write in [
        "UPDATE entries SET id = 2",
        "DELETE FROM entries",
        "UPDATE entries SET resource = 'job:2'",
    ] {
        assert_eq!(fails(c, &[two, write]).await, "FG409", "{write}");
    }
    assert_eq!(fails(c, &[one, "UPDATE entries SET resource = 'job:2'"]).await, "FG409");
    assert_eq!(
        fails(
            c,
            &[one, "SAVEPOINT s", two, "ROLLBACK TO s", "UPDATE entries SET resource = 'job:2'"]
        )
        .await,
        "FG409"
    );
    commits(c, &[one, two, one, "UPDATE entries SET resource = 'job:2'"]).await;
    commits(c, &[two, "DELETE FROM entries"]).await;

    // What triggers and generated columns make of a row is what counts.
    run(
        c,
        "CREATE TABLE made (id int, resource text GENERATED ALWAYS AS ('job:' || id) STORED);
            SELECT fencegate.require_guard('made', 'resource')",
    )
    .await;
    commits(c, &[one, "INSERT INTO made VALUES (1)"]).await;
    assert_eq!(fails(c, &[one, "INSERT INTO made VALUES (2)"]).await, "FG409");
    assert_eq!(fails(c, &[one, "UPDATE made SET id = 2"]).await, "FG409");
    // Installed again without a column it takes any guard.
    run(c, "SELECT fencegate.require_guard('made')").await;
    commits(c, &[two, "INSERT INTO made VALUES (3)"]).await;
    assert_eq!(refused(c, "DELETE FROM made").await.0, "FG408");
}

#[tokio::test]
async fn partitions_and_cascades_are_guarded_and_views_are_refused() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "10m").await;
    let guard = &*guard(&lock);
    let c = &mut site.connect().await;
    run(
        c,
        "CREATE TABLE parts (id int) PARTITION BY RANGE (id);
            CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10);
            SELECT fencegate.require_guard('parts');
            CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20)",
    )
    .await;
    for write in [
        "INSERT INTO parts VALUES (1)",
        "INSERT INTO low VALUES (1)",
        "INSERT INTO high VALUES (11)",
        "TRUNCATE parts",
        "TRUNCATE low",
    ] {
        assert_eq!(refused(c, write).await.0, "FG408", "{write}");
    }
    commits(
        c,
        &[guard, "INSERT INTO parts VALUES (1), (11)", "UPDATE parts SET id = 12 WHERE id = 1"],
    )
    .await;

    // Again, with a column: also where the first time made no trigger for TRUNCATE.
    run(c, "SELECT fencegate.require_guard('parts', 'id')").await;
    for write in ["INSERT INTO parts VALUES (1)", "INSERT INTO high VALUES (13)", "TRUNCATE high"] {
        assert_eq!(refused(c, write).await.0, "FG408", "{write}");
        assert_eq!(fails(c, &[guard, write]).await, "FG409", "{write}");
    }

    run(
        c,
        "CREATE TABLE parents (id int PRIMARY KEY);
            CREATE TABLE children (id int REFERENCES parents ON DELETE CASCADE);
            INSERT INTO parents VALUES (1); INSERT INTO children VALUES (1);
            SELECT fencegate.require_guard('children')",
    )
    .await;
    assert_eq!(refused(c, "DELETE FROM parents").await.0, "FG408");
    commits(c, &[guard, "DELETE FROM parents"]).await;

    run(c, "CREATE VIEW v AS SELECT 1 AS x").await;
    run(c, "CREATE TABLE heirs (id int); CREATE TABLE heirs_2026 () INHERITS (heirs)").await;
    for (call, code) in [
        ("SELECT fencegate.require_guard('v')", "42809"),
        ("SELECT fencegate.require_guard('heirs')", "42809"),
        ("SELECT fencegate.require_guard('fencegate.fences')", "42809"),
        ("SELECT fencegate.require_guard('nowhere')", "42P01"),
        ("SELECT fencegate.require_guard('accounts', 'nothing')", "42703"),
        ("SELECT fencegate.require_guard('accounts', 'ctid')", "42703"),
    ] {
        assert_eq!(refused(c, call).await.0, code, "{call}");
    }
}

#[tokio::test]
async fn a_role_needs_no_more_than_to_be_granted_the_functions() {
    let site = Site::new().await;
    let lock: Lock = site.client.acquire("job:1", "10m").await;
    let (app, owner) =
        (format!("app_{}", Uuid::new_v4().simple()), format!("own_{}", Uuid::new_v4().simple()));
    let operator = &mut site.connect().await;
    run(
        operator,
        &format!(
            "CREATE ROLE {app}; CREATE ROLE {owner};
        ALTER TABLE accounts OWNER TO {owner}; GRANT ALL ON accounts TO {app}"
        ),
    )
    .await;
    let (as_app, as_owner) = (&mut site.connect().await, &mut site.connect().await);
    run(as_app, &format!("SET ROLE {app}")).await;
    run(as_owner, &format!("SET ROLE {owner}")).await;
    let require = "SELECT fencegate.require_guard('accounts')";

    assert_eq!(refused(as_app, &guard(&lock)).await.0, "42501");
    run(operator, &format!("GRANT USAGE ON SCHEMA fencegate TO {app}, {owner}")).await;
    assert_eq!(refused(as_app, &guard(&lock)).await.0, "42501");
    let many = format!("SELECT fencegate.guard_all('{{job:1}}', '{{{}}}')", lock.token);
    assert_eq!(refused(as_app, &many).await.0, "42501");
    assert_eq!(refused(as_owner, require).await.0, "42501");
    let to_app = documented("GRANT USAGE ON SCHEMA fencegate TO app");
    run(operator, &to_app.replace(" TO app", &format!(" TO {app}"))).await;
    let to_owner = documented("GRANT USAGE ON SCHEMA fencegate TO owner");
    run(operator, &to_owner.replace(" TO owner", &format!(" TO {owner}"))).await;
    run(as_owner, require).await;
    assert_eq!(refused(as_app, require).await.0, "42501");

    let write = "UPDATE accounts SET balance = 1";
    assert_eq!(refused(as_app, write).await.0, "FG408");
    for isolation in ["READ COMMITTED", "SERIALIZABLE"] {
        let set = format!("SET TRANSACTION ISOLATION LEVEL {isolation}");
        commits(as_app, &[&set, &guard(&lock), write]).await;
    }
    commits(as_app, &[&many, write]).await;
    let stale = guard(&lock).replace(&lock.token.to_string(), "1");
    assert_eq!(refused(as_app, &stale).await.0, "FG402");

    // Nothing else of the ledger is theirs.
    let tables = "SELECT c.oid::regclass::text FROM pg_class c
                  WHERE c.relnamespace = 'fencegate'::regnamespace AND c.relkind IN ('r', 'S')";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *operator).await.unwrap();
    assert!(tables.len() > 10, "{tables:?}");
    for table in tables {
        for role in [&mut *as_app, &mut *as_owner] {
            assert_eq!(refused(role, &format!("SELECT FROM {table}")).await.0, "42501", "{table}");
        }
    }
    for act in [
        "SELECT acts.halt('x')",
        "SELECT * FROM fencegate.place()",
        "SELECT fencegate.refuse('FG403', 'x', 'x', 'x')",
        "SELECT acts.lock_fences('{job:1}', 0)",
    ] {
        assert_eq!(refused(as_app, act).await.0, "42501", "{act}");
    }
    // Names are not looked up where a caller put something of the same name.
    run(as_app, "CREATE TEMP TABLE fences (resource text); SET search_path = pg_temp, public")
        .await;
    commits(as_app, &[&guard(&lock), "UPDATE public.accounts SET balance = 2"]).await;
}
