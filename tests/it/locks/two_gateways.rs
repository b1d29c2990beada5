//! Several gateways on one etcd and one Postgres are one gateway: whatever was done through one
//! holds at the next request to another. And what a gateway refuses to stand on.

use fence_core::wire::Lock;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use futures::future::join_all;
use serde_json::json;

use crate::setup::{SetUp, look, random_id, take_over};

/// Gateways side by side, as many as asked for.
async fn side_by_side(count: usize) -> Vec<Gateway> {
    let settings = SetUp::Clustered.settings().await;
    join_all((0..count).map(|_| settings.clone().start())).await
}

#[tokio::test]
async fn a_lock_taken_through_one_is_good_at_the_other() {
    let gateways = side_by_side(2).await;
    let (one, other) = (gateways[0].client(), gateways[1].client());
    let lock = one.acquire("job:1", "10m").await;
    let held = other.lock(&json!({ "resource": "job:1" })).send().await;
    assert_eq!(held.refused(409, "lock-held").problem().holder.as_deref(), Some("test"));
    let again = json!({ "resource": "job:1", "owner": "test", "id": lock.id.to_string() });
    let again: Lock = other.lock(&again).send().await.expect(200).parse();
    assert_eq!(again.token, lock.token);

    other.put("job:1", "k", "through the other").under(&lock).send().await.expect(201);
    assert_eq!(one.read("job:1", "k").send().await.expect(200).text(), "through the other");
    let renewed: Lock = other.renew(&lock, Some("1h")).send().await.expect(200).parse();
    assert_eq!((renewed.token, renewed.ttl_ms), (lock.token, Some(3_600_000)));
    assert!(look(&one, "job:1").await.expires_in_ms > Some(600_000));
    other.release(&lock).send().await.expect(204);
    one.put("job:1", "k", "late").under(&lock).send().await.refused(412, "fence-token-released");
    assert!(one.acquire("job:1", "10m").await.token > lock.token);
}

#[tokio::test]
async fn a_takeover_through_one_refuses_the_old_holder_at_the_other() {
    let gateways = side_by_side(2).await;
    let (one, other) = (gateways[0].client(), gateways[1].client());
    for round in 0..3 {
        let resource = format!("job:{round}");
        let a = one.acquire(&resource, "1s").await;
        one.put(&resource, "k", "by A").under(&a).send().await.expect(201);
        let b = take_over(&other, &resource).await;
        // The very next request: no gateway remembers what it once admitted.
        let late = one.put(&resource, "k", "late").under(&a).send().await;
        late.refused(412, "fence-token-stale");
        one.renew(&a, None).send().await.refused(409, "lock-superseded");
        one.put(&resource, "k", "by B").under(&b).send().await.expect(200);
    }
    let broken = one.acquire("job:broken", "10m").await;
    other.break_lock("job:broken", &json!({ "reason": "x" })).send().await.expect(200);
    let late = one.put("job:broken", "k", "late").under(&broken).send().await;
    late.refused(412, "fence-token-broken");
}

#[tokio::test]
async fn a_key_used_through_one_is_replayed_by_the_other() {
    let gateways = side_by_side(2).await;
    let clients: Vec<_> = gateways.iter().map(Gateway::client).collect();
    let lock = clients[0].acquire("job:1", "10m").await;
    let puts = (0..8).map(|index| {
        let put = clients[index % 2].put("job:1", "k", "once").under(&lock);
        put.idempotency_key("order-1").send()
    });
    let answers = join_all(puts).await;
    let replayed = |answer: &&fence_tests::client::Answer| {
        answer.header("idempotent-replayed") == Some("true")
    };
    assert_eq!(answers.iter().filter(replayed).count(), 7, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.status == 201 && answer.body == answers[0].body));
    assert_eq!(clients[1].version("job:1").await, 1);
}

#[tokio::test]
async fn of_a_crowd_at_two_gateways_exactly_one_gets_the_lock() {
    let gateways = side_by_side(2).await;
    let clients: Vec<_> = gateways.iter().map(Gateway::client).collect();
    let body = json!({ "resource": "job:1", "ttl": "10m" });
    let answers = join_all((0..32).map(|index| clients[index % 2].lock(&body).send())).await;
    let granted = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(granted, 1, "{answers:?}");
    let id = random_id().to_string();
    let named = json!({ "resource": "job:2", "ttl": "10m", "id": id });
    let answers = join_all((0..8).map(|index| clients[index % 2].lock(&named).send())).await;
    let token = answers[0].must_have("x-fence-token");
    assert!(answers.iter().all(|answer| answer.must_have("x-fence-token") == token));
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{answers:?}");
}

#[tokio::test]
async fn three_gateways_start_at_once_on_an_empty_database() {
    let gateways = side_by_side(3).await;
    let locks = join_all(gateways.iter().enumerate().map(async |(index, gateway)| {
        gateway.client().acquire(&format!("job:{index}"), "10m").await
    }));
    for (lock, gateway) in locks.await.iter().zip(gateways.iter().rev()) {
        let resource = lock.resources[0].as_str();
        gateway.client().put(resource, "k", "x").under(lock).send().await.expect(201);
    }
}

#[tokio::test]
async fn a_postgres_that_may_forget_what_it_acknowledged_is_refused() {
    let server = Postgres::dedicated().await;
    let database = server.database_name().await;
    let etcd = fence_tests::etcd::Etcd::shared().await;
    let settings = Gateway::clustered(&server.url(&database), &etcd.endpoint(), &etcd.prefix());
    for setting in ["synchronous_commit", "fsync", "full_page_writes"] {
        set(&server, setting, "off").await;
        let (status, log) = settings.clone().start_refused().await;
        assert_eq!(status.code(), Some(1), "{setting}: {log}");
        let reason = format!("{setting} is off on the Postgres server");
        assert!(log.contains(&reason), "{setting}: {log}");
        set(&server, setting, "on").await;
    }
    let client_side = format!("ALTER DATABASE {database} SET synchronous_commit = off");
    server.execute("postgres", &client_side).await;
    let (status, log) = settings.clone().start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    // With standbys, nor what they may have in memory alone.
    for unsafe_with_standbys in ["local", "remote_write"] {
        let alter =
            format!("ALTER DATABASE {database} SET synchronous_commit = {unsafe_with_standbys}");
        server.execute("postgres", &alter).await;
        set(&server, "synchronous_standby_names", "nobody").await;
        let (status, log) = settings.clone().start_refused().await;
        assert_eq!(status.code(), Some(1), "{log}");
        let reason = format!("synchronous_commit is {unsafe_with_standbys} on the Postgres server");
        assert!(log.contains(&reason), "{log}");
        set(&server, "synchronous_standby_names", "''").await;
    }
    server.execute("postgres", &format!("ALTER DATABASE {database} RESET ALL")).await;
    settings.start().await.client().acquire("job:1", "10m").await;
}

/// Changes a setting of the server and waits until new sessions have it.
async fn set(server: &Postgres, setting: &str, value: &str) {
    server.execute("postgres", &format!("ALTER SYSTEM SET {setting} = {value}")).await;
    server.execute("postgres", "SELECT pg_reload_conf()").await;
    eventually(&format!("{setting} is {value}"), async || {
        let mut connection = server.connect("postgres").await;
        let ask = format!("SHOW {setting}");
        let now: String = sqlx::query_scalar(sqlx::AssertSqlSafe(ask))
            .fetch_one(&mut connection)
            .await
            .expect("a setting is shown");
        (now == value.trim_matches('\'')).then_some(())
    })
    .await;
}
