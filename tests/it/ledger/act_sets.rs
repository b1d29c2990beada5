//! Acts of several versions on one ledger: each in a schema of its own, until the older ones are retired.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::cell::Cell;

use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fencegate::ledger::postgres::acts::{NUMBER, named};
use fencegate::ledger::postgres::{migrate, retire_older};
use sqlx::AssertSqlSafe;

use crate::schedules::forced::run;
use crate::setup::random_id;

/// A database that a gateway has made.
struct Ledger {
    postgres: &'static Postgres,
    database: String,
    settings: Settings,
}

impl Ledger {
    async fn new() -> Self {
        let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
        let database = postgres.empty_database_name().await;
        let url = postgres.owner_url(&database);
        migrate(&url.parse().unwrap()).await.unwrap();
        let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
        Self { postgres, database, settings }
    }

    fn options(&self) -> sqlx::postgres::PgConnectOptions {
        self.postgres.owner_url(&self.database).parse().unwrap()
    }

    async fn execute(&self, sql: &str) {
        self.postgres.execute(&self.database, sql).await;
    }

    async fn number(&self, query: &str) -> i64 {
        let mut connection = self.postgres.connect(&self.database).await;
        let query = sqlx::query_scalar(AssertSqlSafe(named(query)));
        query.fetch_one(&mut connection).await.unwrap()
    }

    /// As after the start of a gateway of a newer version: its tables and its acts are there, too.
    async fn has_newer(&self) {
        let newer = "INSERT INTO fencegate._sqlx_migrations
                         (version, description, success, checksum, execution_time)
                     VALUES (9999, 'from the future', true, 'x', 0);
                     CREATE SCHEMA fencegate_acts_9;
                     INSERT INTO fencegate.act_sets (number, digest) VALUES (9, 'x')";
        self.execute(newer).await;
    }
}

#[tokio::test]
async fn acts_that_are_there_are_left_alone_and_others_replaced() {
    let ledger = Ledger::new().await;
    let installed =
        "SELECT (extract(epoch FROM installed_at) * 1000000)::bigint FROM fencegate.act_sets";
    let before = ledger.number(installed).await;
    migrate(&ledger.options()).await.unwrap();
    assert_eq!(ledger.number(installed).await, before);
    // Another build of the same number, as they come while it is written.
    ledger.execute("UPDATE fencegate.act_sets SET digest = 'another'").await;
    ledger.execute("CREATE FUNCTION acts.left_over() RETURNS int LANGUAGE sql AS 'SELECT 1'").await;
    migrate(&ledger.options()).await.unwrap();
    assert!(ledger.number(installed).await > before);
    let left = "SELECT count(*) FROM pg_proc WHERE proname = 'left_over'
                AND pronamespace::regnamespace::text LIKE 'fencegate%'";
    assert_eq!(ledger.number(left).await, 0);
}

#[tokio::test]
async fn a_gateway_goes_on_beside_newer_ones_while_its_acts_are_there() {
    let ledger = Ledger::new().await;
    ledger.has_newer().await;
    let gateway = ledger.settings.clone().start().await;
    let lock = gateway.client().acquire("job:1", "10m").await;
    gateway.client().put("job:1", "k", "x").under(&lock).send().await.expect(201);
}

#[tokio::test]
async fn a_gateway_whose_acts_are_not_there_does_not_take_a_newer_ledger() {
    let ledger = Ledger::new().await;
    ledger.has_newer().await;
    ledger.execute(&format!("DELETE FROM fencegate.act_sets WHERE number = {NUMBER}")).await;
    let (status, log) = ledger.settings.clone().start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("newer than this binary") && log.contains("run a newer"), "{log}");
}

#[tokio::test]
async fn a_gateway_whose_acts_are_retired_stops_and_says_so() {
    let ledger = Ledger::new().await;
    let mut gateway = ledger.settings.clone().start().await;
    ledger.has_newer().await;
    // As `fencegate migrate --retire-older` of the newer one does it.
    let raise = "BEGIN; UPDATE fencegate.seal_guard SET acts_min = 9;
                 UPDATE fencegate.write_guard SET acts_min = 9; COMMIT";
    ledger.execute(raise).await;
    let status = gateway.wait_for_exit().await;
    let log = gateway.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("were retired by a newer one"), "{log}");
    let (status, log) = ledger.settings.clone().start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("were retired on this ledger, which takes 9"), "{log}");
    // For good.
    let mut connection = ledger.postgres.connect(&ledger.database).await;
    let back = "UPDATE fencegate.write_guard SET acts_min = 1";
    let (code, _) = crate::ledger::guard::refused(&mut connection, back).await;
    assert_eq!(code, "FG011");
}

#[tokio::test]
async fn older_acts_are_dropped_once_they_are_retired() {
    let ledger = Ledger::new().await;
    let gateway = ledger.settings.clone().start().await;
    let older = "CREATE SCHEMA fencegate_acts_0;
                 CREATE FUNCTION fencegate_acts_0.seal() RETURNS int LANGUAGE sql AS 'SELECT 1';
                 INSERT INTO fencegate.act_sets (number, digest) VALUES (0, 'x')";
    ledger.execute(older).await;
    assert_eq!(retire_older(&ledger.options()).await.unwrap(), [0]);
    assert_eq!(retire_older(&ledger.options()).await.unwrap(), [0i64; 0]);
    // The name stays taken.
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname = 'fencegate_acts_0'";
    assert_eq!(ledger.number(left).await, 1);
    let left = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencegate_acts_0'::regnamespace";
    assert_eq!(ledger.number(left).await, 0);
    // Its own are not.
    gateway.client().acquire("job:1", "10m").await;
}

#[tokio::test]
async fn whoever_does_not_own_the_schema_says_who_is_to_bring_it_up_to_date() {
    let ledger = Ledger::new().await;
    let role = format!("gateways_{}", random_id().simple());
    let rights = format!(
        "CREATE ROLE {role} LOGIN;
         GRANT USAGE ON SCHEMA fencegate TO {role};
         GRANT SELECT ON ALL TABLES IN SCHEMA fencegate TO {role}"
    );
    ledger.execute(&rights).await;
    let url = ledger.postgres.owner_url(&ledger.database);
    let options: sqlx::postgres::PgConnectOptions =
        url.replace("postgres@", &format!("{role}@")).parse().unwrap();
    let refused = migrate(&options).await.unwrap_err().to_string();
    assert!(refused.contains("may not use the acts"), "{refused}");
    let usage = format!("GRANT USAGE ON SCHEMA fencegate_acts_{NUMBER} TO {role}");
    ledger.execute(&usage).await;
    migrate(&options).await.unwrap();
    ledger.execute("UPDATE fencegate.act_sets SET digest = 'another'").await;
    let refused = migrate(&options).await.unwrap_err().to_string();
    assert!(refused.contains("as its owner"), "{refused}");
}

#[tokio::test]
async fn acts_belong_to_whom_the_tables_belong_to_whoever_installs_them() {
    let ledger = Ledger::new().await;
    let owner = format!("owner_{}", random_id().simple());
    // Also where a superuser has made one of the functions their own, and granted it on.
    let other = format!(
        "CREATE ROLE {owner} LOGIN; ALTER SCHEMA fencegate OWNER TO {owner};
         DO $$ DECLARE it record; BEGIN
             FOR it IN SELECT c.oid::regclass AS name FROM pg_class c
                       WHERE c.relnamespace = 'fencegate'::regnamespace AND c.relkind = 'r' LOOP
                 EXECUTE format('ALTER TABLE %s OWNER TO {owner}', it.name);
             END LOOP;
             FOR it IN SELECT p.oid::regprocedure AS name FROM pg_proc p
                       WHERE p.pronamespace = 'fencegate'::regnamespace
                         AND p.proname <> 'timeline_history' LOOP
                 EXECUTE format('ALTER FUNCTION %s OWNER TO {owner}', it.name);
             END LOOP;
         END $$"
    );
    ledger.execute(&other).await;
    // The acts are still those of the superuser: they are made anew, as the owner's.
    migrate(&ledger.options()).await.unwrap();
    let strangers = format!(
        "SELECT count(*) FROM pg_proc p
         WHERE p.pronamespace::regnamespace::text LIKE 'fencegate%'
           AND p.proname <> 'timeline_history' AND pg_get_userbyid(p.proowner) <> '{owner}'"
    );
    assert_eq!(ledger.number(&strangers).await, 0);
    let gateway = ledger.settings.clone().start().await;
    let lock = gateway.client().acquire("job:1", "10m").await;
    let mut connection = ledger.postgres.connect(&ledger.database).await;
    let guard = format!("SELECT fencegate.guard('job:1', {})", lock.token);
    crate::schedules::forced::run(&mut connection, &guard).await;
    // The owner itself may install them, too.
    ledger.execute("UPDATE fencegate.act_sets SET digest = 'another'").await;
    ledger.execute(&format!("GRANT CREATE ON DATABASE {} TO {owner}", ledger.database)).await;
    let url =
        ledger.postgres.owner_url(&ledger.database).replace("postgres@", &format!("{owner}@"));
    migrate(&url.parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_gateway_whose_acts_are_gone_stops_and_a_start_installs_them() {
    let ledger = Ledger::new().await;
    let mut gateway = ledger.settings.clone().start().await;
    // As after a restore to before they were installed.
    let gone =
        format!("DELETE FROM fencegate.act_sets; DROP SCHEMA fencegate_acts_{NUMBER} CASCADE");
    ledger.execute(&gone).await;
    let status = gateway.wait_for_exit().await;
    let log = gateway.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("are not in the ledger any more"), "{log}");
    gateway.restart().await;
    gateway.client().acquire("job:1", "10m").await;
}

#[tokio::test]
async fn a_schema_that_is_not_there_is_made_whatever_its_row_says() {
    let ledger = Ledger::new().await;
    ledger.execute(&format!("DROP SCHEMA fencegate_acts_{NUMBER} CASCADE")).await;
    let gateway = ledger.settings.clone().start().await;
    gateway.client().acquire("job:1", "10m").await;
}

#[tokio::test]
async fn acts_that_somebody_looks_at_are_retired_and_dropped_later() {
    let ledger = Ledger::new().await;
    let older = "CREATE SCHEMA fencegate_acts_0;
                 CREATE VIEW fencegate_acts_0.views AS SELECT 1;
                 INSERT INTO fencegate.act_sets (number, digest) VALUES (0, 'x');
                 ALTER TABLE fencegate.write_guard DISABLE TRIGGER USER;
                 UPDATE fencegate.write_guard SET acts_min = 0;
                 ALTER TABLE fencegate.write_guard ENABLE TRIGGER USER";
    ledger.execute(older).await;
    let mut looking = ledger.postgres.connect(&ledger.database).await;
    crate::schedules::forced::run(&mut looking, "BEGIN; SELECT * FROM fencegate_acts_0.views")
        .await;
    let refused = retire_older(&ledger.options()).await.unwrap_err().to_string();
    assert!(refused.contains("run this again"), "{refused}");
    let lowest = "SELECT acts_min FROM fencegate.write_guard";
    assert_eq!(ledger.number(lowest).await, NUMBER, "they are retired all the same");
    crate::schedules::forced::run(&mut looking, "ROLLBACK").await;
    assert_eq!(retire_older(&ledger.options()).await.unwrap(), [0]);
}

/// Behind a statement that waits for the lock of a table, all who read that table wait as well: so it waits for a moment
/// only, and lets them pass, until it is let through.
#[tokio::test]
async fn a_migration_gives_way_to_an_idle_transaction() {
    let ledger = Ledger::new().await;
    let connect = || ledger.postgres.connect(&ledger.database);
    ledger
        .execute(
            "ALTER TABLE fencegate.locks DROP COLUMN credential, DROP COLUMN credential_ends_us;
             DROP TABLE fencegate.own_time; DROP FUNCTION fencegate.check_own_time();
             DROP TABLE fencegate.agreed_before;
             ALTER TABLE fencegate.fences DROP COLUMN ended_at CASCADE;
             ALTER TABLE fencegate.grants DROP COLUMN previous_end, DROP COLUMN previous_ended_at;
             DROP DOMAIN fencegate.grant_end;
             DELETE FROM fencegate._sqlx_migrations WHERE version > 15",
        )
        .await;
    let (mut idle, mut looker, mut reader) = tokio::join!(connect(), connect(), connect());
    run(&mut idle, "BEGIN").await;
    run(&mut idle, "SELECT FROM fencegate.locks").await;
    let (options, is_over) = (ledger.options(), Cell::new(false));
    let migration = async {
        let version = migrate(&options).await.unwrap();
        is_over.set(true);
        version
    };
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let beside = async {
        for _ in 0..2 {
            eventually("the migration waits for the table", async || {
                let waiting: i64 = sqlx::query_scalar(waits).fetch_one(&mut looker).await.unwrap();
                (waiting > 0).then_some(())
            })
            .await;
            // It would wait for as long as the idle transaction lasts.
            run(&mut reader, "SELECT FROM fencegate.locks").await;
        }
        assert!(!is_over.get());
        run(&mut idle, "COMMIT").await;
    };
    let (version, ()) = tokio::join!(migration, beside);
    assert!(version > 15);
    run(&mut reader, "SELECT credential FROM fencegate.locks").await;
}
