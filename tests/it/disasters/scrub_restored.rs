//! `fencegate scrub --fix` on a ledger that went back: what it has forgotten is not garbage.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::path::{Path, PathBuf};

use fence_core::wire::Lock;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, Stop};
use fence_tests::process::eventually;

use crate::blobs::rig::{default_blobs, put, seed_of};
use crate::setup::SetUp;

const R: &str = "job:1";
const LENGTH: usize = 300_000;

/// The files of all blobs.
fn files(gateway: &Gateway) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(default_blobs(gateway).join("blobs")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

/// Stores a second blob, which the copy that was taken before does not know of.
async fn put_lost(gateway: &Gateway, lock: &Lock) -> PathBuf {
    let before = files(gateway);
    put(&gateway.client(), lock, "lost", 2, LENGTH).await;
    files(gateway).into_iter().find(|file| !before.contains(file)).unwrap()
}

/// `scrub --fix`, which must be refused for this reason and delete nothing.
async fn refused(gateway: &Gateway, why: &str, lost: &Path) {
    let (code, told, log) = gateway.run(&["scrub", "--fix"]).await;
    assert!(lost.exists(), "a blob of a ledger that went back was deleted:\n{told}{log}");
    assert_eq!((code, told.as_str()), (Some(1), ""), "{log}");
    assert!(log.contains(why) && log.contains("no more was deleted"), "{log}");
    let (code, told, log) = gateway.run(&["scrub"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    assert!(told.contains("blobs unknown to the ledger: 1"), "{told}");
}

/// The horizon is 0 before the re-fence, so that only the ledger's own state keeps what it has lost; and
/// `scrub --fix` keeps it for the horizon after one.
async fn refenced_and_kept(gateway: &mut Gateway, lost: &Path) {
    let (code, told, log) = gateway.run(&["refence", "--reason", "restored"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    gateway.set_env("FENCEGATE_ROLLBACK_HORIZON", "1h");
    let (code, told, log) = gateway.run(&["scrub", "--fix"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    let kept = "kept, since the ledger was re-fenced less than rollback_horizon ago: 1";
    assert!(told.contains("deleted: 0") && told.contains(kept), "{told}");
    assert!(lost.exists());
    gateway.set_env("FENCEGATE_ROLLBACK_HORIZON", "0s");
    let (code, told, log) = gateway.run(&["scrub", "--fix"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    assert!(told.contains("deleted: 1") && !lost.exists(), "{told}");
}

/// A volume snapshot comes back on its own timeline: only the witness in etcd tells.
#[tokio::test]
async fn a_snapshot_of_postgres_deletes_nothing_that_it_forgot() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    let (database, prefix) = (postgres.database_name().await, etcd.prefix());
    let settings = Gateway::clustered(&postgres.url(&database), &etcd.endpoint(), &prefix)
        .env("FENCEGATE_ROLLBACK_HORIZON", "0s");
    let mut gateway = settings.start().await;
    let lock = gateway.client().acquire(R, "1h").await;
    put(&gateway.client(), &lock, "k", 1, LENGTH).await;
    postgres.stop(Stop::Fast).await;
    let copy = postgres.copy();
    postgres.start().await;
    gateway.wait_until_ready().await;
    let lost = put_lost(&gateway, &lock).await;
    let mut connection = postgres.connect(&database).await;
    // A restored server writes too (autovacuum, for one): with a segment between them it cannot catch up.
    sqlx::query("SELECT pg_switch_wal()").execute(&mut connection).await.unwrap();
    let position: i64 = sqlx::query_scalar("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    drop(connection);
    let mut mint = etcd.client().await;
    eventually("the witness has seen it", async || {
        let found = mint.get(format!("{prefix}/witness"), None).await.unwrap();
        let witness: serde_json::Value =
            serde_json::from_slice(found.kvs().first()?.value()).unwrap();
        (witness["flushed"].as_i64()? >= position).then_some(())
    })
    .await;
    gateway.kill9();
    postgres.stop(Stop::Fast).await;
    postgres.restore(&copy);
    postgres.start().await;

    refused(&gateway, "has lost commits", &lost).await;
    // Once a gateway has noticed, the ledger itself says so.
    gateway.set_env("FENCEGATE_REFENCE", "manual");
    gateway.spawn();
    gateway.logged("the ledger must be re-fenced").await;
    gateway.kill9();
    refused(&gateway, "has lost commits", &lost).await;
    refenced_and_kept(&mut gateway, &lost).await;
}

#[tokio::test]
async fn an_older_ledger_file_deletes_nothing_that_it_forgot() {
    let mut gateway =
        SetUp::Embedded.settings().await.env("FENCEGATE_ROLLBACK_HORIZON", "0s").start().await;
    let lock = gateway.client().acquire(R, "1h").await;
    put(&gateway.client(), &lock, "k", 1, LENGTH).await;
    gateway.kill9();
    let ledger = |gateway: &Gateway| -> Vec<PathBuf> {
        let found = std::fs::read_dir(gateway.data_dir()).unwrap().map(|file| file.unwrap().path());
        found.filter(|file| file.to_string_lossy().contains("ledger.sqlite")).collect()
    };
    let copies: Vec<_> = ledger(&gateway)
        .into_iter()
        .map(|file| {
            let bytes = std::fs::read(&file).unwrap();
            (file, bytes)
        })
        .collect();
    gateway.restart().await;
    let lost = put_lost(&gateway, &lock).await;
    gateway.kill9();
    ledger(&gateway).iter().for_each(|file| std::fs::remove_file(file).unwrap());
    copies.iter().for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());

    refused(&gateway, "was restored from an older copy", &lost).await;
    refenced_and_kept(&mut gateway, &lost).await;
    gateway.restart().await;
    assert_eq!(seed_of(&gateway.client().read(R, "k").send().await.expect(200).body), 1);
}

/// What remembers how far the ledger was cannot be asked.
#[tokio::test]
async fn without_the_mint_nothing_is_deleted() {
    let (etcd, postgres) = tokio::join!(Etcd::dedicated(), Postgres::shared());
    let (url, prefix) = (postgres.database().await, etcd.prefix());
    let settings =
        Gateway::clustered(&url, &etcd.endpoint(), &prefix).env("FENCEGATE_ROLLBACK_HORIZON", "0s");
    let gateway = settings.start().await;
    let lock = gateway.client().acquire(R, "1h").await;
    put(&gateway.client(), &lock, "k", 1, LENGTH).await;
    let stray = default_blobs(&gateway).join("blobs/9f/9f0c5b0e-1111-4222-8333-944445555666");
    std::fs::create_dir_all(stray.parent().unwrap()).unwrap();
    std::fs::write(&stray, b"left behind").unwrap();
    etcd.kill9();
    refused(&gateway, "the mint does not answer", &stray).await;
    etcd.start().await;
    let (code, told, log) = gateway.run(&["scrub", "--fix"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    assert!(told.contains("deleted: 1") && !stray.exists(), "{told}");
}
