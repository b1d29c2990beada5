//! Replaced blobs and synchronous standbys: one that has not got as far may be promoted, and then needs
//! them.

use std::time::Duration;

use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fencegate::ledger::postgres::acts::NUMBER;
use fencegate::ledger::postgres::{PgLedger, PgSettings};

use crate::blobs::rig::put;
use fence_tests::conformance::{AT_ONCE, tidy};

/// To a role without the right to see the progress of standbys it is NULL, as is that of one that has just
/// connected.
#[tokio::test]
async fn a_standby_whose_progress_is_not_seen_counts_as_not_there_yet() {
    let (etcd, primary) = tokio::join!(fence_tests::etcd::Etcd::shared(), Postgres::dedicated());
    let database = primary.database_name().await;
    let url = primary.url(&database);
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "1h").await;
    let _standby = primary.standby().await;
    primary.execute("postgres", "CREATE ROLE plain LOGIN").await;
    let schemas = format!("fencegate, fencegate_acts_{NUMBER}");
    let rights = format!(
        "GRANT USAGE ON SCHEMA {schemas} TO plain;
         GRANT ALL ON ALL TABLES IN SCHEMA {schemas} TO plain;
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schemas} TO plain"
    );
    primary.execute(&database, &rights).await;
    let plain = PgLedger::new(PgSettings {
        options: url.replace("serving@", "plain@").parse().unwrap(),
        connections_max: 2,
        timeout: Duration::from_secs(20),
    });
    let forgotten = async || tidy(&plain, AT_ONCE, 100, false).await.versions;
    let seen = async |wanted: &str| {
        let mut connection = primary.connect("postgres").await;
        eventually("the standby is what it should be", async || {
            let states = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'";
            let state: Option<String> =
                sqlx::query_scalar(states).fetch_optional(&mut connection).await.unwrap();
            (state.as_deref() == Some(wanted)).then_some(())
        })
        .await;
    };

    // An asynchronous one is a matter of the rollback horizon.
    seen("async").await;
    put(&client, &lock, "k", 1, 300_000).await;
    put(&client, &lock, "k", 2, 300_000).await;
    assert_eq!(forgotten().await, 1);

    let names = "ALTER SYSTEM SET synchronous_standby_names = '*'";
    primary.execute("postgres", names).await;
    primary.execute("postgres", "SELECT pg_reload_conf()").await;
    seen("sync").await;
    put(&client, &lock, "k", 3, 300_000).await;
    assert_eq!(forgotten().await, 0, "its progress cannot be seen");
    primary.execute("postgres", "GRANT pg_read_all_stats TO plain").await;
    eventually("the standby is seen to have it", async || (forgotten().await == 1).then_some(()))
        .await;
}
