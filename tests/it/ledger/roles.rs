//! The role that gateways serve with: it owns nothing, changes no history and removes none but through what keeps to the
//! agreement. All other tests on Postgres serve with it, too.

use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use sqlx::{Connection as _, Executor as _, PgConnection};

/// A ledger with something in it, and a session of the role on it.
async fn used() -> (String, PgConnection) {
    let postgres = Postgres::shared().await;
    let database = postgres.database_name().await;
    let etcd = fence_tests::etcd::Etcd::shared().await;
    let url = postgres.url(&database);
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    for _ in 0..2 {
        let lock = client.acquire("r", "10m").await;
        client.put("r", "k", "x").under(&lock).unchecked().send().await;
        client.release(&lock).send().await.expect(204);
    }
    let mut session = PgConnection::connect(&url).await.expect("the role may connect");
    let prepare = "SELECT pg_catalog.set_config(
                       'fencegate.session', pg_catalog.current_setting('synchronous_commit'), false)";
    session.execute(prepare).await.expect("a setting");
    (database, session)
}

#[tokio::test]
async fn it_changes_no_history_and_removes_none() {
    let (_, mut session) = used().await;
    let denied = [
        "DELETE FROM fencegate.grants",
        "UPDATE fencegate.grants SET owner = 'eve'",
        "DELETE FROM fencegate.operations",
        "UPDATE fencegate.operations SET owner = 'eve'",
        "DELETE FROM fencegate.audit",
        "UPDATE fencegate.audit SET reason = 'another'",
        "DELETE FROM fencegate.audit_tiles",
        "DELETE FROM fencegate.audit_tree",
        "DELETE FROM fencegate.fences",
        "DELETE FROM fencegate.events",
        "UPDATE fencegate.events SET number = 0",
        "UPDATE fencegate.history SET token = 0",
        "UPDATE fencegate.agreed SET value = '0s'",
        "INSERT INTO fencegate.agreed (name, value) VALUES ('x', 'y')",
        "DELETE FROM fencegate.agreed_before",
        "UPDATE fencegate.agreed_before SET until = now()",
        "UPDATE fencegate.access SET rules = ''",
        "UPDATE fencegate.s3_root SET root = root",
        "INSERT INTO fencegate.s3_root (root) VALUES (sha256('mine'))",
        "TRUNCATE fencegate.s3_root",
        "DELETE FROM fencegate.s3_buckets",
        "DELETE FROM fencegate.access",
        "TRUNCATE fencegate.grants",
        "INSERT INTO fencegate.audit (number, at, action) VALUES (-9, now(), 'broken')",
        "INSERT INTO fencegate.grants (number, token, resource, lock_id, owner, ordinal, at)
         VALUES (-8, 9, 'r', gen_random_uuid(), 'eve', 9, now())",
        "SELECT setval('fencegate.audit_numbers', 9000000000000000000)",
        "ALTER TABLE fencegate.grants DISABLE TRIGGER ALL",
        "DROP TRIGGER grants_only_grow ON fencegate.grants",
        "CREATE TRIGGER mine BEFORE INSERT ON fencegate.grants FOR EACH ROW EXECUTE FUNCTION fencegate.refuse_change()",
        "SET session_replication_role = replica",
        "CREATE TABLE fencegate.mine (a int)",
        "CREATE OR REPLACE FUNCTION fencegate_acts_1.flushed() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
    ];
    for statement in denied {
        let refused = session.execute(statement).await.expect_err(statement);
        let code = refused.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("42501"), "{statement}: {refused}");
    }
}

#[tokio::test]
async fn nothing_is_let_go_that_is_kept_by_agreement() {
    let (database, mut session) = used().await;
    let postgres = Postgres::shared().await;
    let count = async |session: &mut PgConnection| -> i64 {
        let prune = "SELECT fencegate_acts_1.prune(0, 0, 1000)";
        let burials = "SELECT fencegate_acts_1.forget_burials(0, 1000)";
        for statement in [prune, burials] {
            session.execute(statement).await.expect("it is done");
        }
        let left = "SELECT (SELECT count(*) FROM fencegate.grants) + (SELECT count(*) FROM fencegate.operations)";
        sqlx::query_scalar(left).fetch_one(session).await.expect("a count")
    };
    let sealed = "UPDATE fencegate.audit_tree SET upto = 1000";
    let numbered = format!("{sealed}; SELECT fencegate_acts_1.number_events(0)");
    postgres.execute(&database, &numbered).await;
    // Started without history_kept: all is kept for ever.
    assert_eq!(count(&mut session).await, 4);
    for (kept, left) in [("1month 15days", 4), ("1day", 4), ("0s", 2)] {
        let agree =
            format!("UPDATE fencegate.agreed SET value = '{kept}' WHERE name = 'history_kept'");
        let pass = "UPDATE fencegate.own_time SET at = clock_timestamp()";
        postgres.execute(&database, &format!("{agree}; {pass}")).await;
        assert_eq!(count(&mut session).await, left, "{kept}");
    }
    // As gateways write 90 and 400 days: their months and years are not those of Postgres.
    let mut owner = postgres.connect(&database).await;
    for (kept, seconds) in [
        ("2months 29days 2h 52m 48s", 7_776_000.0),
        ("1year 1month 4days 7h 26m 24s", 34_560_000.0),
        ("1s 500ms", 1.5),
    ] {
        let agree =
            format!("UPDATE fencegate.agreed SET value = '{kept}' WHERE name = 'history_kept'");
        postgres.execute(&database, &agree).await;
        let read = sqlx::query_scalar("SELECT fencegate_acts_1.agreed_s('history_kept')");
        let read: f64 = read.fetch_one(&mut owner).await.expect("seconds");
        assert!((read - seconds).abs() < 1e-6, "{kept} is read as {read} s");
    }
}

#[tokio::test]
async fn what_is_agreed_has_bounds_and_the_audit_says_all_of_it() {
    let (_, mut session) = used().await;
    let agree = |kept: &str| {
        format!(
            "SELECT * FROM fencegate_acts_1.agree(
                 ARRAY['history_kept', 'buried_kept'], ARRAY['{kept}', '2days'], repeat('tidied up. ', 24))"
        )
    };
    for kept in ["0s", "23h", "1day"] {
        let agree = sqlx::query(sqlx::AssertSqlSafe(agree(kept)));
        let refused = agree.execute(&mut session).await.expect_err(kept);
        let code = refused.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("FG010"), "{kept}: {refused}");
    }
    let agree = sqlx::query(sqlx::AssertSqlSafe(agree("30days")));
    agree.execute(&mut session).await.expect("it is agreed");
    let entry = "SELECT owner || ': ' || reason FROM fencegate.audit WHERE action = 'agree'";
    let entries: Vec<String> = sqlx::query_scalar(entry).fetch_all(&mut session).await.expect("it");
    assert_eq!(entries.len(), 1, "{entries:?}");
    let parts = ["database role ", "tidied up.", "buried_kept 1day -> 2days", "-> 30days"];
    assert!(parts.iter().all(|part| entries[0].contains(part)), "{entries:?}");
}

#[tokio::test]
async fn a_gateway_that_owns_its_tables_says_so() {
    let postgres = Postgres::shared().await;
    let etcd = fence_tests::etcd::Etcd::shared().await;
    let database = postgres.empty_database_name().await;
    let (url, says) = (postgres.owner_url(&database), "this gateway's role owns the tables");
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    gateway.logged(says).await;
    let url = postgres.url(&postgres.database_name().await);
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    assert!(!gateway.log().contains(says));
}
