//! What `fencegate.guard` keeps waiting: all that ends or stops a holder, and nothing else.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fence_core::LockState;
use fence_core::wire::{Lock, Resource};
use fence_tests::client::{Call, Client, resource_path};
use fence_tests::process::eventually;
use fencegate::ledger::postgres::{PgLedger, PgSettings};
use futures::future::join_all;
use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor, PgConnection, Row};

use crate::ledger::guard::{Site, documented, guard, post, refused, set};
use crate::schedules::forced::{Ground, R, run, seal, sealing};
use crate::schedules::stuck_rows::{median, waiting};
use crate::setup::{random_id, until_state};

/// Somebody else's acquire, in a task of its own.
fn next_holder(client: &Client, resource: &str) -> tokio::task::JoinHandle<Lock> {
    let call = client.lock(&json!({ "resource": resource, "ttl": "10m", "owner": "next" }));
    tokio::spawn(async move { call.send().await.expect(201).parse() })
}

#[tokio::test]
async fn a_seal_waits_for_a_guarded_transaction_and_its_holder_sees_what_that_did() {
    let site = Site::new().await;
    for (end, balance) in [("COMMIT", 1), ("ROLLBACK", 1), ("COMMIT", 3)] {
        let lock = site.client.acquire("job:1", "1s").await;
        let mut guarded = site.guarded(&lock, balance).await;
        run(&mut guarded, &set(if end == "COMMIT" { balance } else { 99 })).await;
        until_state(&site.client, "job:1", "expired").await;
        let next = next_holder(&site.client, "job:1");
        waiting(&site.database, 1).await;
        // Also one that has just begun does not disturb it: the token is still the last one.
        assert!(!next.is_finished());
        run(&mut guarded, end).await;
        let next = next.await.unwrap();
        assert_eq!(site.balance().await, balance);
        assert_eq!(site.code(&lock).await, "FG403");
        site.client.release(&next).send().await.expect(204);
    }
}

#[tokio::test]
async fn what_ends_or_stops_a_holder_waits_for_its_guarded_transaction() {
    let site = Site::new().await;
    let client = &site.client;
    type Act = fn(&Client, &Lock) -> Call;
    let acts: [(&str, Act, &str); 4] = [
        ("release", |client, lock| client.release(lock), "FG404"),
        ("break", |client, lock| post(client, lock.resources[0].as_str(), "break"), "FG405"),
        ("freeze", |client, lock| post(client, lock.resources[0].as_str(), "freeze"), "FG406"),
        (
            "transfer",
            |client, lock| {
                let path = format!("/locks/{}/transfer", lock.id);
                client.post(path, &json!({ "owner": "next" }))
            },
            "FG403",
        ),
    ];
    for (name, act, code) in acts {
        let lock = client.acquire(name, "10m").await;
        let mut guarded = site.guarded(&lock, 1).await;
        let act = tokio::spawn(act(client, &lock).send());
        waiting(&site.database, 1).await;
        assert!(!act.is_finished(), "{name}");
        run(&mut guarded, "COMMIT").await;
        let answer = act.await.unwrap();
        assert!(answer.status.is_success(), "{name}: {}", answer.text());
        assert_eq!(site.code(&lock).await, code, "{name}");
    }
}

#[tokio::test]
async fn the_holders_own_writes_and_renewals_go_on_after_it() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "10m").await;
    let mut guarded = site.guarded(&lock, 1).await;
    // Reads wait for nothing.
    site.client.read("job:1", "k").send().await.refused(404, "object-not-found");
    let put = tokio::spawn(site.client.put("job:1", "k", "x").under(&lock).send());
    let renewal = tokio::spawn(site.client.renew(&lock, None).send());
    waiting(&site.database, 2).await;
    assert!(!put.is_finished() && !renewal.is_finished());
    let who = documented("SELECT a.pid").replace("invoices:2026", "job:1");
    let who = sqlx::raw_sql(sqlx::AssertSqlSafe(who)).fetch_all(&mut site.connect().await).await;
    let who: Vec<i32> = who.unwrap().iter().map(|row| row.get(0)).collect();
    let own: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut guarded).await.unwrap();
    assert_eq!(who, [own]);
    run(&mut guarded, "COMMIT").await;
    put.await.unwrap().expect(201);
    renewal.await.unwrap().expect(200);
    run(&mut guarded, &guard(&lock)).await;
}

/// While it lasts nothing was applied, and that is said: no outcome is unknown.
#[tokio::test]
async fn what_waits_for_it_too_long_was_not_applied_and_is_told_so() {
    let site = Site::new().await;
    let client = &site.client;
    let lock = client.acquire("job:1", "1s").await;
    let mut guarded = site.guarded(&lock, 7).await;
    until_state(client, "job:1", "expired").await;
    let calls = [
        client.lock(&json!({ "resource": "job:1", "ttl": "10m" })),
        client.lock(&json!({ "resource": "job:1", "ttl": "10m", "id": random_id().to_string() })),
        client.lock(&json!({ "resource": "job:1", "ttl": "10m", "wait": "1s" })),
        client.renew(&lock, Some("1h")),
        client.put("job:1", "k", "x").under(&lock),
        client.put("job:1", "k", "x").under(&lock).idempotency_key("once"),
    ];
    for answer in join_all(calls.map(Call::send)).await {
        let refused = answer.refused(503, "resource-busy");
        assert!(refused.problem().retryable && refused.problem().outcome.is_none(), "{refused:?}");
    }
    run(&mut guarded, "COMMIT").await;
    let view: Resource = client.get(resource_path("job:1")).send().await.expect(200).parse();
    assert_eq!((view.version, view.state), (0, LockState::Expired.into()), "nothing was applied");
    client.put("job:1", "k", "x").under(&lock).idempotency_key("once").send().await.expect(201);
}

#[tokio::test]
async fn guarded_transactions_of_one_holder_run_side_by_side() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "10m").await;
    let mut one = site.guarded(&lock, 1).await;
    // If it had to wait for the first one, it would do so for ever.
    let mut two = site.connect().await;
    run(&mut two, "BEGIN; SET LOCAL lock_timeout = '20s'").await;
    run(&mut two, &guard(&lock)).await;
    run(&mut two, "UPDATE accounts SET balance = 2 WHERE id = 'b'").await;
    run(&mut two, "COMMIT").await;
    run(&mut one, "COMMIT").await;
    let sum = sqlx::query_scalar("SELECT sum(balance) FROM accounts");
    let sum: i64 = sum.fetch_one(&mut one).await.unwrap();
    assert_eq!(sum, 3);
}

/// Runs guarded transactions one after the other until the token is stale; counts itself in after the first.
async fn keep_writing(
    mut connection: PgConnection,
    lock: Lock,
    pause: Duration,
    writing: Arc<AtomicUsize>,
) {
    for count in 0.. {
        run(&mut connection, "BEGIN").await;
        let call = sqlx::AssertSqlSafe(guard(&lock));
        if let Err(error) = connection.execute(call).await {
            assert_eq!(error.as_database_error().unwrap().code().unwrap(), "FG403", "{error}");
            return;
        }
        tokio::time::sleep(pause).await;
        run(&mut connection, "COMMIT").await;
        writing.fetch_add(usize::from(count == 0), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn transactions_that_overlap_without_end_do_not_keep_the_next_holder_out() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "1s").await;
    let (mut writers, writing) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
    // Of different lengths: commits that wait for one flush would bring them into step.
    for ms in [41, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97] {
        let pause = Duration::from_millis(ms);
        let (connection, writing) = (site.connect().await, Arc::clone(&writing));
        writers.push(tokio::spawn(keep_writing(connection, lock.clone(), pause, writing)));
    }
    eventually("all of them write", async || {
        (writing.load(Ordering::SeqCst) == writers.len()).then_some(())
    })
    .await;
    until_state(&site.client, "job:1", "expired").await;
    assert!(writers.iter().all(|writer| !writer.is_finished()));
    let body = json!({ "resource": "job:1", "ttl": "10m", "owner": "next", "id": random_id() });
    eventually("the next holder gets in", async || {
        site.client.lock(&body).send().await.status.is_success().then_some(())
    })
    .await;
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn an_idle_guarded_transaction_delays_no_other_resource() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "10m").await;
    let before = median(&site.client).await;
    let idle = site.guarded(&lock, 1).await;
    let put = tokio::spawn(site.client.put("job:1", "k", "x").under(&lock).send());
    waiting(&site.database, 1).await;
    let during = median(&site.client).await;
    put.await.unwrap().expect(503);
    drop(idle);
    eprintln!("median {before:?} before, {during:?} beside an idle guarded transaction");
    assert!(during < before * 20, "{during:?} is more than 20 times {before:?}");
}

#[tokio::test]
async fn a_refence_does_not_wait_for_a_guarded_transaction_but_the_next_grant_does() {
    let site = Site::new().await;
    let refence = "SET lock_timeout = '20s';
                   SELECT acts.refence(gen_random_uuid(), 0, 0, 0, 'test', true)";
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        let resource = isolation.replace(' ', "-");
        let lock = eventually("a lock is granted", async || {
            let body = json!({ "resource": resource, "ttl": "10m" });
            let answer = site.client.lock(&body).send().await;
            (answer.status == 201).then(|| answer.parse::<Lock>())
        })
        .await;
        let mut guarded = site.connect().await;
        run(&mut guarded, &format!("BEGIN ISOLATION LEVEL {isolation}")).await;
        run(&mut guarded, &guard(&lock)).await;
        run(&mut guarded, &set(7)).await;
        run(&mut site.connect().await, refence).await;
        assert_eq!(site.code(&lock).await, "FG401");
        let ended = std::cell::Cell::new(false);
        let next = async {
            eventually("the next lock is granted", async || {
                let body = json!({ "resource": resource, "ttl": "10m" });
                let answer = site.client.lock(&body).send().await;
                (answer.status == 201).then_some(())
            })
            .await;
            assert!(ended.get(), "granted beside the guarded transaction");
        };
        let end = async {
            waiting(&site.database, 1).await;
            ended.set(true);
            run(&mut guarded, "COMMIT").await;
        };
        tokio::join!(next, end);
        assert_eq!(site.balance().await, 7);
    }
}

#[tokio::test]
async fn a_guard_goes_with_the_savepoint_that_it_was_called_in_and_no_other_does() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "10m").await;
    let guard = guard(&lock);
    let free =
        "SELECT count(*) FROM (SELECT FROM fencegate.fences FOR NO KEY UPDATE SKIP LOCKED) f";
    let mut look = site.connect().await;
    let mut connection = site.connect().await;
    for (steps, expected) in [
        (["SAVEPOINT s", &guard, "ROLLBACK TO s"].as_slice(), 1),
        (&["SAVEPOINT s", &guard, "RELEASE s"], 0),
        (&[&guard, "SAVEPOINT s", &guard, "ROLLBACK TO s"], 0),
        (&["SAVEPOINT s", &guard, "ROLLBACK TO s", &guard], 0),
    ] {
        run(&mut connection, "BEGIN").await;
        for step in steps {
            run(&mut connection, step).await;
        }
        let found: i64 = sqlx::query_scalar(free).fetch_one(&mut look).await.unwrap();
        assert_eq!(found, expected, "{steps:?}");
        run(&mut connection, "ROLLBACK").await;
    }
}

/// A seal whose act is under way, by a session of its own; a guard that comes then waits for it.
async fn guard_beside_a_seal(isolation: &str) -> String {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    run(&mut ground.connect().await, "ALTER FUNCTION acts.flushed() RENAME TO flushed_only").await;
    let pause = "
        CREATE FUNCTION acts.flushed() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
        BEGIN
            IF current_setting('test.pause', true) = 'on' THEN
                PERFORM set_config('lock_timeout', '0', true);
                PERFORM pg_advisory_xact_lock(42);
            END IF;
            RETURN acts.flushed_only();
        END $$";
    run(&mut ground.connect().await, pause).await;
    let held = ground.hold("SELECT pg_advisory_xact_lock(42)").await;
    let options: PgConnectOptions = ground.server.url(&ground.database).parse().unwrap();
    let options = options.options([("test.pause", "on")]);
    let timeout = Duration::from_secs(40);
    let sealer = PgLedger::new(PgSettings { options, connections_max: 1, timeout });
    let seal = tokio::spawn(async move { seal(&sealer, sealing(R, 2)).await });
    ground.waiting(1).await;

    let mut late = ground.connect().await;
    run(&mut late, &format!("BEGIN ISOLATION LEVEL {isolation}")).await;
    let late = tokio::spawn(async move {
        refused(&mut late, &format!("SELECT fencegate.guard('{R}', 1)")).await.0
    });
    ground.kept_waiting(&late, 2).await;
    // Longer than at the gate of the fence.
    tokio::time::sleep(Duration::from_millis(600)).await;
    ground.kept_waiting(&late, 2).await;
    held.let_go().await;
    seal.await.unwrap().unwrap();
    late.await.unwrap()
}

#[tokio::test]
pub async fn a_guard_waits_for_a_seal_under_way_and_then_refuses() {
    assert_eq!(guard_beside_a_seal("READ COMMITTED").await, "FG403");
    assert_eq!(guard_beside_a_seal("REPEATABLE READ").await, "40001");
    assert_eq!(guard_beside_a_seal("SERIALIZABLE").await, "40001");
}
