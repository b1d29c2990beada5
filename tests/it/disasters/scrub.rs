//! `fencegate scrub`, and gateways whose blob store is not their ledger's.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::path::PathBuf;

use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fence_tests::stores::{Kind, Store};

use crate::blobs::rig::{default_blobs, on_store, put, seed_of};
use crate::setup::{SetUp, on_both};

const R: &str = "job:1";
const LENGTH: usize = 300_000;
const STRAY: &str = "9f0c5b0e-1111-4222-8333-944445555666";

/// The files of all blobs.
fn files(gateway: &Gateway) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(default_blobs(gateway).join("blobs")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

/// Scrubs: beside a running gateway on Postgres, after it on SQLite, which belongs to one process.
async fn scrub(setup: SetUp, gateway: &mut Gateway, args: &[&str]) -> (Option<i32>, String) {
    if setup == SetUp::Embedded {
        gateway.kill9();
    }
    let args: Vec<&str> = ["scrub"].into_iter().chain(args.iter().copied()).collect();
    let (code, told, log) = gateway.run(&args).await;
    if setup == SetUp::Embedded {
        gateway.restart().await;
    }
    (code, told + &log)
}

#[track_caller]
fn tells(told: &str, lines: &[&str]) {
    for line in lines {
        assert!(told.contains(line), "no {line:?} in:\n{told}");
    }
}

async fn a_store_that_is_whole_is_told_so(setup: SetUp) {
    let mut gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    for seed in 1..=3 {
        put(&client, &lock, "k", seed, LENGTH).await;
    }
    let (code, told) = scrub(setup, &mut gateway, &[]).await;
    assert_eq!(code, Some(0), "{told}");
    let lines = [
        "blobs in the store:       3 (900000 bytes)",
        "pointers in the ledger:   3",
        "pointers without a blob:  0",
        "blobs unknown to the ledger: 0",
    ];
    tells(&told, &lines);
}

async fn what_is_missing_is_told_and_nothing_else_is_touched(setup: SetUp) {
    let mut gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    put(&client, &lock, "lost", 1, LENGTH).await;
    let lost = files(&gateway).pop().unwrap();
    put(&client, &lock, "cut", 2, LENGTH).await;
    let cut = files(&gateway).into_iter().find(|file| *file != lost).unwrap();
    put(&client, &lock, "whole", 3, LENGTH).await;
    std::fs::remove_file(&lost).unwrap();
    std::fs::File::options().write(true).open(&cut).unwrap().set_len(1000).unwrap();
    for fix in [&[][..], &["--fix"]] {
        let (code, told) = scrub(setup, &mut gateway, fix).await;
        assert_eq!(code, Some(1), "{told}");
        let lines = [
            "pointers without a blob:  1",
            "  job:1 lost, version 1 (current), blob ",
            "blobs of another size:    1",
            "  job:1 cut, version 2 (current), blob ",
            ": 1000 bytes, not 300000",
            "blobs unknown to the ledger: 0",
        ];
        tells(&told, &lines);
    }
    client.read(R, "lost").send().await.refused(500, "blob-missing");
    client.read(R, "cut").send().await.refused(503, "blobs-unavailable");
    assert_eq!(seed_of(&client.read(R, "whole").send().await.expect(200).body), 3);
    let metrics = client.get("/metrics").send().await.expect(200).text();
    tells(&metrics, &["fencegate_blobs_missing_total 1"]);
}

#[tokio::test]
async fn writes_that_no_act_has_made_are_found() {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let database = postgres.database_name().await;
    let url = postgres.url(&database);
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    for resource in ["job:1", "job:2"] {
        let first = client.acquire(resource, "10m").await;
        client.put(resource, "k", "1").under(&first).send().await.expect(201);
        client.release(&first).send().await.expect(204);
        let second = client.acquire(resource, "10m").await;
        client.put(resource, "k", "2").under(&second).send().await.expect(200);
        client.put(resource, "k", "3").under(&second).send().await.expect(200);
    }
    let (code, told, _) = gateway.run(&["scrub"]).await;
    assert_eq!(code, Some(0), "{told}");
    assert!(!told.contains("older token"), "{told}");
    // What keeps them as they are is switched off.
    let fall = "SET session_replication_role = replica;
                DELETE FROM fencegate.operations WHERE resource = 'job:1' AND version = 2;
                UPDATE fencegate.operations SET token = (
                    SELECT min(token) FROM fencegate.grants WHERE resource = 'job:2')
                WHERE resource = 'job:2' AND version = 3";
    postgres.execute(&database, fall).await;
    for fix in [&["scrub"][..], &["scrub", "--fix"]] {
        let (code, told, log) = gateway.run(fix).await;
        assert_eq!(code, Some(1), "{told}");
        tells(&log, &["the ledger has writes out of order"]);
        assert!(!log.contains("blobs"), "{log}");
        let lines = [
            "writes under an older token than the write before them: 1",
            "  job:2, version 3",
            "writes whose version is not the next one: 1",
            "  job:1, version 3",
        ];
        tells(&told, &lines);
    }
}

async fn orphans_are_deleted_once_they_are_old_enough(setup: SetUp) {
    let mut gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    put(&client, &lock, "k", 1, LENGTH).await;
    let folder = default_blobs(&gateway).join("blobs");
    let stray = folder.join("9f").join(STRAY);
    std::fs::create_dir_all(stray.parent().unwrap()).unwrap();
    std::fs::write(&stray, b"left behind").unwrap();
    let stranger = folder.join("notes.txt");
    std::fs::write(&stranger, b"not ours").unwrap();

    let (code, told) = scrub(setup, &mut gateway, &[]).await;
    assert_eq!(code, Some(0), "{told}");
    tells(&told, &["blobs unknown to the ledger: 1", STRAY, "let be: 1", "notes.txt"]);
    let (code, told) = scrub(setup, &mut gateway, &["--fix"]).await;
    assert_eq!(code, Some(0), "{told}");
    tells(&told, &["deleted: 0; kept, younger than rollback_horizon: 1"]);
    assert!(stray.exists());
    gateway.set_env("FENCEGATE_ROLLBACK_HORIZON", "0s");
    if setup == SetUp::Clustered {
        // What the command is told alone does not shorten it.
        let (code, told) = scrub(setup, &mut gateway, &["--fix"]).await;
        assert_eq!(code, Some(0), "{told}");
        tells(&told, &["deleted: 0; kept, younger than rollback_horizon: 1"]);
        gateway.agree().await;
    }
    let (code, told) = scrub(setup, &mut gateway, &["--fix"]).await;
    assert_eq!(code, Some(0), "{told}");
    tells(&told, &["deleted: 1; kept, younger than rollback_horizon: 0"]);
    assert!(!stray.exists() && stranger.exists());
    assert_eq!(seed_of(&client.read(R, "k").send().await.expect(200).body), 1);
}

on_both!(
    a_store_that_is_whole_is_told_so,
    what_is_missing_is_told_and_nothing_else_is_touched,
    orphans_are_deleted_once_they_are_old_enough,
);

#[tokio::test]
async fn a_directory_in_use_is_not_scrubbed() {
    let gateway = Gateway::embedded().start().await;
    let (code, told, log) = gateway.run(&["scrub"]).await;
    assert_eq!((code, told.as_str()), (Some(1), ""));
    tells(&log, &["is in use"]);
}

/// A gateway that was given nothing goes without; one that was given another store does not start.
#[tokio::test]
async fn gateways_of_one_ledger_share_a_store() {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let (store, other) = tokio::join!(Store::start(Kind::S3), Store::start(Kind::Folder));
    let (database, prefix) = (postgres.database().await, etcd.prefix());
    let settings = || Gateway::clustered(&database, &etcd.endpoint(), &prefix);
    let first = on_store(settings(), &store).start().await;
    let client = first.client();
    let lock = client.acquire(R, "10m").await;
    put(&client, &lock, "k", 1, LENGTH).await;
    put(&client, &lock, "small", 2, 1000).await;

    let (status, log) = on_store(settings(), &other).start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    tells(&log, &["the blobs of this ledger are in another store than file:///"]);

    let without = settings().start().await;
    without.logged("in another store").await;
    let client = without.client();
    assert_eq!(seed_of(&client.read(R, "small").send().await.expect(200).body), 2);
    client.read(R, "k").send().await.refused(503, "blobs-unavailable");
    let large = client.put(R, "k", crate::blobs::rig::body(3, LENGTH)).under(&lock).send().await;
    large.refused(503, "blobs-unavailable");
    put(&client, &lock, "small", 4, 1000).await;
    let ready = client.get("/readyz").send().await.expect(200).json();
    let blobs = ready["parts"].as_array().unwrap().iter().find(|part| part["part"] == "blobs");
    assert_eq!(blobs.unwrap()["ready"], false);

    let second = on_store(settings(), &store).start().await;
    let read = second.client().read(R, "k").send().await.expect(200);
    assert_eq!(seed_of(&read.body), 1);
}

/// Started when there were no blobs, each on a folder of its own: whoever uploads first decides. The other
/// one neither takes large payloads, nor misses any, nor deletes what it does not have.
#[tokio::test]
async fn a_gateway_on_the_wrong_folder_does_no_harm() {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let (database, prefix) = (postgres.database().await, etcd.prefix());
    let settings = || {
        Gateway::clustered(&database, &etcd.endpoint(), &prefix)
            .env("FENCEGATE_SWEEP_INTERVAL", "100ms")
            .env("FENCEGATE_READER_GRACE", "0s")
            .env("FENCEGATE_ROLLBACK_HORIZON", "0s")
            .env("FENCEGATE_REDELETE_AFTER", "0s")
    };
    let (mut right, wrong) = (settings().start().await, settings().start().await);
    let lock = right.client().acquire(R, "10m").await;
    put(&right.client(), &lock, "k", 1, LENGTH).await;
    right.kill9();
    let client = wrong.client();
    let large = client.put(R, "k", crate::blobs::rig::body(2, LENGTH)).under(&lock).send().await;
    large.refused(503, "blobs-unavailable");
    client.read(R, "k").send().await.refused(503, "blobs-unavailable");
    client.delete(R, "k").under(&lock).send().await.expect(204);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(files(&right).len(), 1, "only who has it deletes it");
    let metrics = client.get("/metrics").send().await.expect(200).text();
    assert!(!metrics.contains("fencegate_blobs_missing_total 1"), "{metrics}");
    right.restart().await;
    eventually("it is deleted", async || files(&right).is_empty().then_some(())).await;
}

/// Whatever the ledger does not know of would be garbage to it.
#[tokio::test]
async fn the_store_of_another_ledger_is_refused() {
    let store = Store::start(Kind::Folder).await;
    let first = on_store(Gateway::embedded(), &store).start().await;
    let lock = first.client().acquire(R, "10m").await;
    put(&first.client(), &lock, "k", 1, LENGTH).await;
    let second = on_store(Gateway::embedded(), &store);
    let (status, log) = second.clone().start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    tells(&log, &["has the blobs of another ledger"]);

    let mut other = Gateway::embedded().start().await;
    other.set_env("FENCEGATE_BLOBS", &store.url());
    other.set_env("FENCEGATE_ROLLBACK_HORIZON", "0s");
    other.kill9();
    let (code, told, log) = other.run(&["scrub", "--fix"]).await;
    assert_eq!((code, told.as_str()), (Some(1), ""), "{log}");
    tells(&log, &["nothing was compared"]);
    assert_eq!(seed_of(&first.client().read(R, "k").send().await.expect(200).body), 1);
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_refused_at_the_start() {
    let store = Store::start(Kind::S3).await;
    let wrong = on_store(Gateway::embedded(), &store).env("AWS_SECRET_ACCESS_KEY", "wrong");
    let (status, log) = wrong.start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    tells(&log, &["cannot use the blob store s3://blobs/some/prefix"]);
    let nowhere = Gateway::embedded().flag("--blobs", "file:///proc/nowhere");
    let (status, log) = nowhere.start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    tells(&log, &["cannot use the folder /proc/nowhere for blobs"]);
    let unknown = Gateway::embedded().flag("--blobs", "ftp://somewhere");
    let (status, log) = unknown.start_refused().await;
    assert_eq!(status.code(), Some(2), "{log}");
    tells(&log, &["file:///folder, s3://bucket/prefix or az://container/prefix"]);
}
