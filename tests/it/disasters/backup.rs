//! `fencegate backup`, and copies that were made without it.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fence_core::wire::Lock;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use futures::future::join_all;
use serde_json::json;
use tempfile::TempDir;

use crate::blobs::rig::{body, default_blobs, put, seed_of};
use crate::disasters::kill9::{Work, Writer};
use crate::ledger::history::History;
use crate::operating::commands::fencegate;

const R: &str = "job:1";
const MIB: usize = 1 << 20;

/// A gateway that has been killed and whose data directory is gone: a place for another's.
async fn place() -> Gateway {
    let mut gateway = Gateway::embedded().start().await;
    gateway.kill9();
    std::fs::remove_dir_all(gateway.data_dir()).unwrap();
    gateway
}

/// Starts the gateway, which must refuse to; returns what it says.
async fn refused(gateway: &mut Gateway) -> String {
    let before = gateway.log().len();
    gateway.spawn();
    let status = gateway.wait_for_exit().await;
    let said = gateway.log().split_off(before);
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_what_was_acknowledged_and_starts_once_it_is_refenced() {
    let gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    for seed in 1..=3 {
        put(&client, &lock, &format!("big-{seed}"), seed, 3 * MIB).await;
    }
    put(&client, &lock, "big-1", 4, MIB).await;
    client.put(R, "small", "bytes").under(&lock).send().await.expect(201);

    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers = (0..4).map(|number| Writer {
        number,
        clients: vec![gateway.client()],
        stop: Arc::clone(&stop),
        acknowledged: Arc::clone(&acknowledged),
        length: 50_000 * number,
        done: Work::default(),
        grants: 0,
    });
    let load = join_all(writers.map(Writer::work));
    let mut copy = place().await;
    let to = copy.data_dir();
    let backup = async {
        let begun = |at_least| {
            let acknowledged = Arc::clone(&acknowledged);
            async move { (acknowledged.load(Ordering::SeqCst) >= at_least).then_some(()) }
        };
        eventually("the writers write", async || begun(100).await).await;
        let last = put(&client, &lock, "big-2", 5, 2 * MIB).await.written();
        let ended = gateway.run(&["backup", path(&to)]).await;
        // What comes afterwards is not in it, and does not hurt.
        put(&client, &lock, "big-3", 6, MIB).await;
        stop.store(true, Ordering::SeqCst);
        (last, ended)
    };
    let (_, (last, (code, told, log))) = tokio::join!(load, backup);
    assert_eq!(code, Some(0), "{told}{log}");
    for line in ["blobs:  5 (", &format!("fencegate refence --data-dir {}", path(&to))] {
        assert!(told.contains(line), "no {line:?} in:\n{told}");
    }

    let said = refused(&mut copy).await;
    assert!(said.contains("older copy") && said.contains("fencegate refence"), "{said}");
    let (code, told, log) = copy.run(&["refence", "--reason", "the backup of Tuesday"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    copy.restart().await;
    let restored = copy.client();
    for (key, seed) in [("big-1", 4), ("big-2", 5), ("big-3", 3)] {
        assert_eq!(seed_of(&restored.read(R, key).send().await.expect(200).body), seed, "{key}");
    }
    assert_eq!(restored.read(R, "small").send().await.expect(200).text(), "bytes");
    assert!(restored.version(R).await >= last.version);
    let late = restored.put(R, "small", "late").under(&lock).send().await;
    late.refused(412, "fence-token-void");
    let newer = json!({ "resource": R, "ttl": "10m", "owner": "since the restore" });
    let newer: Lock = restored.lock(&newer).send().await.expect(201).parse();
    assert!(newer.token > lock.token);
    restored.put(R, "small", "new").under(&newer).send().await.expect(200);
    copy.kill9();
    let history = History::of_sqlite(&copy).await;
    history.check();
    assert!(history.operations.len() >= 100, "{} operations", history.operations.len());

    // The original goes on.
    client.put(R, "small", "still").under(&lock).send().await.expect(200);
}

/// Nobody looked after the directory since its gateway died.
#[tokio::test]
async fn a_backup_of_a_directory_that_nobody_uses() {
    let mut gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    client.put(R, "k", "bytes").under(&lock).send().await.expect(201);
    gateway.kill9();
    let mut copy = place().await;
    let (code, told, log) = gateway.run(&["backup", path(&copy.data_dir())]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    assert!(told.contains("blobs:  none"), "{told}");
    let said = refused(&mut copy).await;
    assert!(said.contains("older copy"), "{said}");
    copy.run(&["refence", "--reason", "moved"]).await;
    copy.restart().await;
    assert_eq!(copy.client().read(R, "k").send().await.expect(200).text(), "bytes");
    gateway.restart().await;
    client.put(R, "k", "more").under(&lock).send().await.expect(200);
}

#[tokio::test]
async fn backups_are_refused_where_they_would_do_harm_or_no_good() {
    let gateway = Gateway::embedded().start().await;
    let full = TempDir::new().unwrap();
    std::fs::write(full.path().join("ours"), "precious").unwrap();
    let (code, _, log) = gateway.run(&["backup", path(full.path())]).await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("is not empty"), "{log}");
    let left: Vec<_> = std::fs::read_dir(full.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");

    let (code, _, log) = gateway.run(&["backup", path(&gateway.data_dir())]).await;
    assert_eq!(code, Some(1), "{log}");
    gateway.client().acquire(R, "10m").await;

    let empty = TempDir::new().unwrap();
    let (from, to) = (empty.path().join("from"), empty.path().join("to"));
    let ended = fencegate(&["backup", path(&to), "--data-dir", path(&from)], &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains("holds no ledger"), "{}", ended.err);
    assert!(!to.exists() && !from.exists(), "nothing was made");

    let shared = ["--postgres", "postgres://127.0.0.1/fence", "--etcd", "127.0.0.1:2379"];
    let args: Vec<&str> = ["backup", path(&to)].into_iter().chain(shared).collect();
    let ended = fencegate(&args, &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains("pg_basebackup"), "{}", ended.err);
    assert!(!to.exists(), "nothing was made");
}

/// What cannot be copied is named, and the rest is there.
#[tokio::test]
async fn a_backup_of_damaged_blobs_says_so() {
    let gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    put(&client, &lock, "damaged", 1, MIB).await;
    let blob = blob_files(&gateway).pop().unwrap();
    put(&client, &lock, "whole", 2, MIB).await;
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[MIB / 2] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    let mut copy = place().await;
    let (code, told, log) = gateway.run(&["backup", path(&copy.data_dir())]).await;
    assert_eq!(code, Some(1), "{told}{log}");
    assert!(told.contains("blobs:  1 (1048576 bytes)"), "{told}");
    assert!(told.contains("job:1 damaged, version 1 (current)"), "{told}");
    copy.run(&["refence", "--reason", "restored"]).await;
    copy.restart().await;
    assert_eq!(seed_of(&copy.client().read(R, "whole").send().await.expect(200).body), 2);
    copy.client().read(R, "damaged").send().await.refused(500, "blob-missing");
}

fn blob_files(gateway: &Gateway) -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(default_blobs(gateway).join("blobs")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

/// What `rsync` makes of a directory in use: each file as it is when its turn comes.
#[tokio::test]
async fn a_copy_of_a_directory_in_use_is_refused() {
    let gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    let write = async |from: u64, to: u64| {
        for seed in from..to {
            let put = client.put(R, &format!("k-{seed}"), body(seed, 200_000)).under(&lock);
            put.send().await.expect(201);
        }
    };
    // Twice so much that the log goes back into the file and begins anew.
    write(0, 100).await;
    let mut copy = place().await;
    let to = copy.data_dir();
    std::fs::create_dir(&to).unwrap();
    let take = |file: &str| {
        std::fs::copy(gateway.data_dir().join(file), to.join(file)).unwrap();
    };
    take("ledger.sqlite");
    write(100, 220).await;
    take("ledger.sqlite-wal");
    take("mint");
    for _ in 0..2 {
        let said = refused(&mut copy).await;
        assert!(said.contains("is damaged") && said.contains("fencegate backup"), "{said}");
    }
}

/// Looking costs time, so it is left out after a clean stop, and only then.
#[tokio::test]
async fn pages_are_looked_at_unless_the_last_stop_was_clean() {
    for clean in [false, true] {
        let settings = Gateway::embedded().env("FENCEGATE_DRAIN_DELAY", "0s");
        let mut gateway = settings.start().await;
        let client = gateway.client();
        let lock = client.acquire(R, "10m").await;
        for seed in 0..20 {
            let put = client.put(R, &format!("k-{seed}"), body(seed, 100_000)).under(&lock);
            put.send().await.expect(201);
        }
        // The file itself has all of it.
        gateway.term();
        assert_eq!(gateway.wait_for_exit().await.code(), Some(0), "{}", gateway.log());
        if !clean {
            gateway.restart().await;
            gateway.kill9();
        }
        let ledger = gateway.data_dir().join("ledger.sqlite");
        let mut bytes = std::fs::read(&ledger).unwrap();
        // The last leaf of some table, or of the bytes of an object that nobody asks for at the start.
        let page = bytes.len() - 4096;
        bytes[page..].fill(0xA5);
        std::fs::write(&ledger, bytes).unwrap();
        if clean {
            gateway.restart().await;
        } else {
            let said = refused(&mut gateway).await;
            assert!(said.contains("is damaged"), "{said}");
        }
    }
}

/// The log's index, with what it remembers of the last checkpoint, lives as long as anybody has it open.
#[tokio::test]
async fn a_ledger_that_another_process_has_open_is_refused() {
    use sqlx::{ConnectOptions as _, Connection as _};
    let mut gateway = Gateway::embedded().start().await;
    gateway.client().acquire(R, "10m").await;
    let ledger = crate::setup::ledger_file(&gateway);
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(ledger).read_only(true);
    let mut reader = options.connect().await.unwrap();
    let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM grants");
    assert_eq!(count.fetch_one(&mut reader).await.unwrap(), 1);
    gateway.kill9();
    let said = refused(&mut gateway).await;
    assert!(said.contains("is open in another process"), "{said}");
    reader.close().await.unwrap();
    gateway.restart().await;
}
