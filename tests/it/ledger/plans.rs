//! Acts read what they are about, and no whole table for its sake, by whatever plans: a session keeps those that it made
//! when it first needed them, perhaps while the tables were empty.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use sqlx::{Connection as _, PgConnection};

use crate::schedules::forced::{Ground, run};

/// How the sessions of a gateway plan.
const PLANNING: &str = "
    SELECT set_config('plan_cache_mode', 'force_generic_plan', false),
           set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
           set_config('jit', 'off', false)";

const UNTOLD: &str = "
    DO $do$ DECLARE
        one text;
    BEGIN
        FOR one IN SELECT t.tablename FROM pg_tables t WHERE t.schemaname = 'fencegate' LOOP
            EXECUTE format('ALTER TABLE fencegate.%I SET (autovacuum_enabled = off)', one);
        END LOOP;
    END $do$";

/// Far more than the dead versions of a row that was just changed many times.
const MANY: i64 = 20_000;

/// So many rows, of resources that were locked, written and given back, or are held by locks that have expired.
const FILL: &str = "
    INSERT INTO fencegate.fences (resource, token, lock_id, owner, hold, ttl_ms, deadline, acquired_at, renewed_at,
                                  grants, objects, live_token)
    SELECT 'x' || n, n, gen_random_uuid(), 'o', CASE n % 2 WHEN 0 THEN 'held' ELSE 'released' END, 0, now(), now(), now(),
           1, 1, n
    FROM generate_series(1, 20000) n;
    INSERT INTO fencegate.grants (token, resource, lock_id, owner, ordinal, at)
    SELECT f.token, f.resource, f.lock_id, f.owner, 1, now() FROM fencegate.fences f WHERE f.resource LIKE 'x%';
    INSERT INTO fencegate.locks (id, resources, token, owner, ttl_ms, acquired_at, ended)
    SELECT f.lock_id, ARRAY[f.resource], f.token, f.owner, 0, now(), CASE f.hold WHEN 'released' THEN 'released' END
    FROM fencegate.fences f WHERE f.resource LIKE 'x%';
    INSERT INTO fencegate.operations (id, resource, version, kind, generation, token, created, size, owner, committed_at)
    SELECT gen_random_uuid(), f.resource, 1, 'put', 0, f.token, true, 0, 'o', now()
    FROM fencegate.fences f WHERE f.resource LIKE 'x%';
    INSERT INTO fencegate.objects (resource, key, version, generation, content_type, size, sha256, written_at, body)
    SELECT f.resource, 'k', 1, 0, 't', 0, sha256(''), now(), ''
    FROM fencegate.fences f WHERE f.resource LIKE 'x%'";

/// What the running transaction has read most rows of, and how many.
const READ: &str = "
    SELECT relname::text, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
    WHERE schemaname = 'fencegate' ORDER BY 2 DESC LIMIT 1";

/// One of each act on a resource: a lock that is new, one after it that has expired, its renewal, a write, its release.
fn acts(resource: &str, number: i64) -> Vec<String> {
    let id = |n: i64| format!("00000000-0000-4000-8000-{n:012}");
    let (first, next) = (number, number + 1);
    let seal = |number: i64, ttl_ms: i64| {
        format!(
            "SELECT * FROM acts.seal(0, 0, 0, '{{{resource}}}', '{{1}}', '{{{}}}', '{{o}}', '{{{ttl_ms}}}',
                 '{{{number}}}', '{{NULL}}', '{{0}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', '{{NULL}}',
                 '{{p}}', '{{p}}', NULL, '{{0}}', NULL, NULL, NULL)",
            id(number)
        )
    };
    vec![
        seal(first, 0),
        seal(next, 60_000),
        format!("SELECT * FROM acts.renew(0, 0, '{{{}}}', '{{NULL}}', '{{p}}', '{{0}}', NULL, NULL)", id(next)),
        format!(
            "SELECT * FROM acts.write(0, 0, false, NULL, false, '{{{resource}}}', ARRAY[gen_random_uuid()],
                 '{{{resource}}}', '{{{next}}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', NULL, NULL, NULL, NULL, NULL,
                 '{{put}}', '{{k}}', NULL, NULL, NULL, '{{t}}', '{{0}}', ARRAY[sha256('')], ARRAY[''::bytea], NULL,
                 '{{p role:r}}', '{{0}}', NULL, NULL, NULL, NULL)"
        ),
        format!("SELECT * FROM acts.release(0, 0, '{{{}}}', '{{NULL}}', '{{t}}', '{{p}}', '{{0}}')", id(next)),
    ]
}

#[tokio::test]
async fn no_act_reads_a_whole_table() {
    let ground = Ground::new().await;
    let mut session = ground.connect().await;
    run(&mut session, PLANNING).await;
    // The plans are made while there is next to nothing in the tables, and nobody tells the planner of what comes.
    run(&mut session, UNTOLD).await;
    for number in 0..8 {
        for act in acts("r", 1_000_000 + 10 * number) {
            run(&mut session, &act).await;
        }
    }
    run(&mut ground.connect().await, FILL).await;
    read_little(&mut session, 2_000_000).await;
    // Plans of full tables.
    run(&mut ground.connect().await, "ANALYZE").await;
    let mut later = ground.connect().await;
    run(&mut later, PLANNING).await;
    read_little(&mut later, 3_000_000).await;
}

async fn read_little(session: &mut PgConnection, mut number: i64) {
    let new = format!("new{number}");
    for resource in ["r", "x17", "x18", new.as_str()] {
        number += 10;
        for act in acts(resource, number) {
            let (table, read) = rows_read(session, &act).await;
            assert!(read < MANY / 20, "{read} rows of {table}: {act}");
        }
    }
}

/// A bucket is found empty, or not, without reading the objects that are in it, or beside it.
#[tokio::test]
async fn buckets_are_made_and_deleted_without_their_objects() {
    let ground = Ground::new().await;
    let mut session = ground.connect().await;
    run(&mut session, PLANNING).await;
    run(&mut session, UNTOLD).await;
    let [make, drop] = [
        "SELECT * FROM acts.make_bucket(0, 'xyz', 1, NULL)",
        "SELECT * FROM acts.drop_bucket(0, 'xyz', NULL)",
    ];
    run(&mut session, make).await;
    run(&mut session, drop).await;
    run(&mut ground.connect().await, FILL).await;
    for more in ["SELECT 1", "UPDATE fencegate.objects SET resource = 'xyz:' || resource"] {
        run(&mut ground.connect().await, more).await;
        for _ in 0..2 {
            for act in [make, drop] {
                let (table, read) = rows_read(&mut session, act).await;
                assert!(read < MANY / 20, "{read} rows of {table}: {act}");
            }
            run(&mut ground.connect().await, "ANALYZE").await;
        }
    }
}

async fn rows_read(session: &mut PgConnection, act: &str) -> (String, i64) {
    let mut transaction = session.begin().await.unwrap();
    run(&mut transaction, act).await;
    let read: (String, i64) = sqlx::query_as(READ).fetch_one(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert!(read.1 > 0, "nothing was read: {act}");
    read
}

/// Locks that are in force are few beside resources that are free, and so are resources that are frozen. They are counted
/// every few seconds.
#[tokio::test]
async fn locks_are_counted_without_the_resources_that_are_free() {
    let ground = Ground::new().await;
    let mut session = ground.connect().await;
    run(&mut session, PLANNING).await;
    run(&mut session, UNTOLD).await;
    for act in acts("r", 1_000_000) {
        run(&mut session, &act).await;
    }
    run(&mut session, FILL).await;
    let released =
        "UPDATE fencegate.fences SET hold = 'released' WHERE resource LIKE 'x%' AND token > 20";
    run(&mut session, released).await;
    for _ in 0..2 {
        let mut later = ground.connect().await;
        run(&mut later, PLANNING).await;
        for count in ["SELECT acts.count_stocks(-1)", "SELECT * FROM acts.totals"] {
            let (table, read) = rows_read(&mut later, count).await;
            assert!(read < MANY / 20, "{read} rows of {table}: {count}");
        }
        run(&mut session, "VACUUM ANALYZE fencegate.fences").await;
    }
}
