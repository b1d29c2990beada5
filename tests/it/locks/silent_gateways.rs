//! Callers in line whose gateway is gone: all of them leave at once.

use std::time::Duration;

use fence_core::ports::{Ledger as _, Retention};

use crate::schedules::forced::{Ground, run};

/// So many callers of a gateway last heard of so long ago wait for `r`.
fn line(gateway: u8, silent: &str, count: u32) -> String {
    let id = format!("00000000-0000-4000-8000-0000000000{gateway:02}");
    format!(
        "INSERT INTO fencegate.gateways (id, seen_at, able)
         VALUES ('{id}', clock_timestamp() - interval '{silent}', true);
         WITH w AS (
             INSERT INTO fencegate.waiters (ticket, lock_id, resources, owner, gateway)
             SELECT nextval('fencegate.tickets'), gen_random_uuid(), ARRAY['r', 'o-' || i], 'o', '{id}'
             FROM generate_series(1, {count}) i RETURNING ticket, resources)
         INSERT INTO fencegate.waiter_resources (resource, ticket, place)
         SELECT unnest(w.resources), w.ticket, w.ticket FROM w"
    )
}

#[tokio::test]
async fn all_waiters_of_a_gateway_that_is_gone_leave_in_one_pass() {
    let ground = Ground::new().await;
    let mut operator = ground.connect().await;
    run(&mut operator, &line(1, "11 seconds", 4_000)).await;
    run(&mut operator, &line(2, "1 second", 30)).await;
    run(&mut operator, &line(3, "1 hour", 1_000)).await;
    let long = Duration::from_secs(3600);
    let retention = Retention {
        keys: long,
        ended_locks: long,
        buried: long,
        history: None,
        rejections_max: 100,
        rows_per_pass: 100,
    };
    assert_eq!(ground.ledger.sweep(&retention).await.unwrap(), 5_000);
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.waiters").await, 30);
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.waiter_resources").await, 60);
    assert_eq!(ground.ledger.sweep(&retention).await.unwrap(), 0);
    // One that has left no row of its own behind.
    let orphan = "UPDATE fencegate.gateways SET id = gen_random_uuid()";
    run(&mut operator, orphan).await;
    assert_eq!(ground.ledger.sweep(&retention).await.unwrap(), 30);
}
