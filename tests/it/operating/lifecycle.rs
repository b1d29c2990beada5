//! The life of a gateway: draining, stopping, crashing, starting again, and what it must not start
//! on.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::path::PathBuf;

use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::operating::commands::fencegate;
use crate::setup::{SetUp, look, on_both, take_over};

on_both!(
    a_gateway_that_was_told_to_stop_finishes_what_is_in_flight,
    a_gateway_that_was_told_twice_stops_at_once,
    a_restart_keeps_objects_fences_and_rising_tokens,
    a_crash_keeps_objects_fences_and_rising_tokens,
);

/// Begins a put of ten bytes and sends five of them.
async fn begun(gateway: &Gateway, token: impl std::fmt::Display) -> RawConnection {
    let mut connection = RawConnection::open(gateway.address()).await;
    let head = format!(
        "PUT /resources/job:1/objects/slow HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {token}\r\n\
         Content-Length: 10\r\n\r\n01234"
    );
    connection.send(head.as_bytes()).await;
    connection
}

async fn until_draining(gateway: &Gateway) {
    let client = gateway.client();
    eventually("/readyz says that the gateway drains", async || {
        let answer = client.get("/readyz").send().await;
        let drains = answer.status == 503 && answer.text().contains("shutting down");
        drains.then_some(())
    })
    .await;
}

async fn a_gateway_that_was_told_to_stop_finishes_what_is_in_flight(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "5s");
    let mut gateway = settings.start().await;
    let lock = gateway.client().acquire("job:1", "10m").await;
    let mut slow = begun(&gateway, lock.token).await;
    gateway.term();
    until_draining(&gateway).await;
    // Load balancers need a moment to notice; until then nobody is turned away.
    gateway.client().put("job:1", "meanwhile", "x").under(&lock).send().await.expect(201);
    slow.send(b"56789").await;
    let answer = slow.answer().await.expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.text());
    let status = gateway.wait_for_exit().await;
    assert_eq!(status.code(), Some(0), "{}", gateway.log());

    gateway.restart().await;
    let client = gateway.client();
    assert_eq!(client.read("job:1", "slow").send().await.expect(200).text(), "0123456789");
}

async fn a_gateway_that_was_told_twice_stops_at_once(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "1h");
    let mut gateway = settings.start().await;
    let lock = gateway.client().acquire("job:1", "10m").await;
    let mut slow = begun(&gateway, lock.token).await;
    gateway.term();
    until_draining(&gateway).await;
    gateway.term();
    let status = gateway.wait_for_exit().await;
    assert_eq!(status.code(), Some(143), "{}", gateway.log());
    assert_eq!(slow.answer().await, None);
    gateway.restart().await;
    let client = gateway.client();
    client.read("job:1", "slow").send().await.refused(404, "object-not-found");
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
}

async fn a_restart_keeps_objects_fences_and_rising_tokens(setup: SetUp) {
    kept_over(setup, async |gateway| {
        gateway.term();
        assert_eq!(gateway.wait_for_exit().await.code(), Some(0), "{}", gateway.log());
        gateway.restart().await;
    })
    .await;
}

async fn a_crash_keeps_objects_fences_and_rising_tokens(setup: SetUp) {
    kept_over(setup, async |gateway| {
        gateway.kill9();
        gateway.restart().await;
    })
    .await;
}

async fn kept_over(setup: SetUp, restart: impl AsyncFn(&mut Gateway)) {
    let mut gateway = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "0s").start().await;
    let client = gateway.client();
    let stale = client.acquire("job:1", "1s").await;
    let keyed = client.put("job:1", "k", "first").under(&stale).idempotency_key("order-1");
    let first = keyed.clone().send().await.expect(201);
    let live = take_over(&client, "job:1").await;
    client.put("job:1", "k", "second").under(&live).header("x-fence-seq", "7").send().await;
    let released = client.acquire("job:2", "10m").await;
    client.release(&released).send().await.expect(204);
    let mut highest = released.token;

    for round in 0..2 {
        restart(&mut gateway).await;
        assert_eq!(client.read("job:1", "k").send().await.expect(200).text(), "second");
        let view = look(&client, "job:1").await;
        assert_eq!((view.version, view.objects, view.state.as_str()), (2, 1, "leased"));
        let late = client.put("job:1", "k", "late").under(&stale).send().await;
        late.refused(412, "fence-token-stale");
        let late = client.put("job:2", "k", "late").under(&released).send().await;
        let code = if round == 0 { "fence-token-released" } else { "fence-token-stale" };
        late.refused(412, code);
        let replay = keyed.clone().send().await.expect(201);
        assert_eq!((&replay.body, replay.must_have("idempotent-replayed")), (&first.body, "true"));
        client.renew(&live, None).send().await.expect(200);
        let repeated = client.put("job:1", "k", "dup").under(&live).header("x-fence-seq", "7");
        repeated.send().await.refused(409, "sequence-out-of-order");
        let next = client.acquire("job:2", "10m").await;
        assert!(next.token > highest, "{} after {highest}", next.token);
        highest = next.token;
        client.release(&next).send().await.expect(204);
    }
    client.put("job:1", "k", "third").under(&live).send().await.expect(200);
}

/// A gateway that was started twice and granted a lock each time, stopped; and what its files held
/// after the first time.
async fn stopped_with_copy() -> (Gateway, Vec<(PathBuf, Vec<u8>)>) {
    let mut gateway = Gateway::embedded().env("FENCEGATE_DRAIN_DELAY", "0s").start().await;
    gateway.client().acquire("job:1", "10m").await;
    stop(&mut gateway).await;
    let copy = files(&gateway);
    gateway.restart().await;
    gateway.client().acquire("job:2", "10m").await;
    stop(&mut gateway).await;
    (gateway, copy)
}

async fn stop(gateway: &mut Gateway) {
    gateway.term();
    assert_eq!(gateway.wait_for_exit().await.code(), Some(0), "{}", gateway.log());
}

fn files(gateway: &Gateway) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(gateway.data_dir()).unwrap();
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|file| (file.clone(), std::fs::read(file).unwrap())).collect()
}

/// Replaces all files of the gateway by these; those of the mint alone, or all but those.
fn restore(gateway: &Gateway, copy: &[(PathBuf, Vec<u8>)], mint: bool) {
    let chosen = |file: &PathBuf| file.ends_with("mint") == mint;
    for (file, _) in files(gateway).iter().filter(|(file, _)| chosen(file)) {
        std::fs::remove_file(file).unwrap();
    }
    for (file, bytes) in copy.iter().filter(|(file, _)| chosen(file)) {
        std::fs::write(file, bytes).unwrap();
    }
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

#[tokio::test]
async fn a_mint_that_was_restored_lost_or_damaged_is_refused() {
    let (mut gateway, copy) = stopped_with_copy().await;
    let current = files(&gateway);
    restore(&gateway, &copy, true);
    let said = refused(&mut gateway).await;
    assert!(said.contains("the mint") && said.contains("restored from an older copy"), "{said}");

    restore(&gateway, &[], true);
    let said = refused(&mut gateway).await;
    assert!(said.contains("has a ledger but no mint"), "{said}");
    let mint = gateway.data_dir().join("mint");
    assert!(!mint.exists(), "a refusal must not put a new mint in the place of the lost one");

    restore(&gateway, &current, true);
    let whole = std::fs::read(&mint).unwrap();
    std::fs::write(&mint, &whole[..whole.len() / 2]).unwrap();
    let said = refused(&mut gateway).await;
    assert!(said.contains("is damaged"), "{said}");

    // Refusing has changed nothing: with the right file it goes on.
    restore(&gateway, &current, true);
    gateway.restart().await;
    gateway.client().acquire("job:3", "10m").await;
}

#[tokio::test]
async fn a_ledger_that_was_restored_or_lost_is_refused() {
    let (mut gateway, copy) = stopped_with_copy().await;
    let current = files(&gateway);
    for older in [copy.as_slice(), &[]] {
        restore(&gateway, older, false);
        let said = refused(&mut gateway).await;
        assert!(said.contains("the ledger") && said.contains("older copy"), "{said}");
    }
    restore(&gateway, &current, false);
    gateway.restart().await;
    gateway.client().acquire("job:3", "10m").await;
}

#[tokio::test]
async fn a_copy_of_the_ledger_made_while_it_ran_is_refused_after_a_clean_stop() {
    let mut gateway = Gateway::embedded().env("FENCEGATE_DRAIN_DELAY", "0s").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let ledger = gateway.data_dir().join("ledger.sqlite");
    let copy = gateway.data_dir().join("copy.sqlite");
    let mut connection =
        SqliteConnectOptions::new().filename(&ledger).read_only(true).connect().await.unwrap();
    let backup = format!("VACUUM INTO '{}'", copy.display());
    sqlx::query(sqlx::AssertSqlSafe(backup)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    client.put("job:1", "k", "since the copy").under(&lock).send().await.expect(201);
    stop(&mut gateway).await;
    std::fs::rename(&copy, &ledger).unwrap();
    let said = refused(&mut gateway).await;
    assert!(said.contains("the ledger") && said.contains("older copy"), "{said}");
}

#[tokio::test]
async fn a_directory_that_was_restored_in_part_is_refenced_by_command() {
    for mint in [false, true] {
        let (mut gateway, copy) = stopped_with_copy().await;
        gateway.restart().await;
        let old = gateway.client().acquire("job:old", "10m").await;
        stop(&mut gateway).await;
        restore(&gateway, &copy, mint);
        let data = gateway.data_dir();
        let data = data.to_str().unwrap();
        let said = refused(&mut gateway).await;
        assert!(said.contains(&format!("fencegate refence --data-dir {data}")), "{said}");
        let args = ["refence", "--data-dir", data, "--reason", "restored from a backup"];
        let done = fencegate(&args, &[]).await;
        assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
        for told in ["older than the other", "generation ", "restored from a backup"] {
            assert!(done.out.contains(told), "{told}: {}", done.out);
        }
        gateway.restart().await;
        let client = gateway.client();
        let late = client.put("job:old", "k", "late").under(&old).send().await;
        late.refused(412, "fence-token-void");
        let beside = fencegate(&args, &[]).await;
        assert_eq!(beside.code, Some(1), "{}", beside.err);
        assert!(beside.err.contains("in use by another process"), "{}", beside.err);
        let new = client.acquire("job:old", "10m").await;
        assert!(new.token > old.token);
        client.put("job:old", "k", "x").under(&new).send().await.expect(201);
        stop(&mut gateway).await;
        let again = fencegate(&args, &[]).await;
        assert_eq!(again.code, Some(1), "{}", again.err);
        assert!(again.err.contains("nothing calls for a re-fence"), "{}", again.err);
        gateway.restart().await;
        gateway.client().put("job:old", "k", "y").under(&new).send().await.expect(200);
    }
}

#[tokio::test]
async fn a_directory_without_its_mint_or_ledger_or_with_a_damaged_mint_is_refenced() {
    for (lost, more) in [("mint", None), ("ledger", None), ("damaged", Some("--force"))] {
        let (mut gateway, _) = stopped_with_copy().await;
        gateway.restart().await;
        let old = gateway.client().acquire("job:old", "10m").await;
        stop(&mut gateway).await;
        match lost {
            "mint" => restore(&gateway, &[], true),
            "ledger" => restore(&gateway, &[], false),
            _ => std::fs::write(gateway.data_dir().join("mint"), "fencegate mi").unwrap(),
        }
        let said = refused(&mut gateway).await;
        assert!(said.contains("fencegate refence --data-dir"), "{said}");
        let data = gateway.data_dir();
        let mut args = vec!["refence", "--data-dir", data.to_str().unwrap(), "--reason", "lost"];
        if let Some(more) = more {
            assert_eq!(fencegate(&args, &[]).await.code, Some(1));
            args.push(more);
        }
        let done = fencegate(&args, &[]).await;
        assert_eq!(done.code, Some(0), "{lost}: {}{}", done.out, done.err);
        gateway.restart().await;
        let client = gateway.client();
        let late = client.put("job:old", "k", "late").under(&old).send().await;
        late.refused(412, "fence-token-void");
        let new = client.acquire("job:old", "10m").await;
        assert!(new.token > old.token, "{lost}: {} after {}", new.token, old.token);
    }
    let empty = tempfile::TempDir::new().unwrap();
    let args = ["refence", "--data-dir", empty.path().to_str().unwrap(), "--reason", "x"];
    let nothing = fencegate(&args, &[]).await;
    assert_eq!(nothing.code, Some(1), "{}", nothing.err);
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}
