//! What all gateways of a ledger have alike: who comes first brings it, who has something else does not start, and an
//! operator can change it for all.

use std::path::{Path, PathBuf};

use fence_core::wire::Readiness;
use fence_tests::conformance::pause;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use futures::future::join_all;

use crate::blobs::rig::{body, default_blobs};
use crate::disasters::outages::part;
use crate::ledger::guard::refused;
use crate::setup::SetUp;

/// Settings that keep nothing.
const SHORT: [(&str, &str); 4] = [
    ("FENCEGATE_KEYS_KEPT", "1m"),
    ("FENCEGATE_ROLLBACK_HORIZON", "0s"),
    ("FENCEGATE_READER_GRACE", "0s"),
    ("FENCEGATE_REDELETE_AFTER", "0s"),
];

fn with(settings: Settings, env: &[(&str, &str)]) -> Settings {
    env.iter().fold(settings, |settings, (name, value)| settings.env(name, value))
}

/// `fencegate agree` with the settings of this gateway.
async fn agree(gateway: &Gateway) -> (Option<i32>, String, String) {
    gateway.run(&["agree", "--reason", "the test says so"]).await
}

/// Waits until the gateway says that this is how it stands to what is agreed.
async fn settled(gateway: &Gateway, alike: bool) -> Option<String> {
    eventually("it has heard what is agreed", async || {
        let ready: Readiness = gateway.client().get("/readyz").send().await.parse();
        assert!(ready.ready, "it goes on serving: {ready:?}");
        let (found, detail) = part(&ready, "settings");
        (found == alike).then_some(detail)
    })
    .await
}

#[tokio::test]
async fn a_gateway_with_other_settings_does_not_start_until_they_are_agreed() {
    let settings = SetUp::Clustered.settings().await;
    let mut first = settings.clone().start().await;
    assert_eq!(settled(&first, true).await, None);
    let others = with(settings.clone(), &SHORT)
        .flag("--failover", "lossless")
        .flag("--require-lock-id", "on")
        .env("FENCEGATE_REJECTIONS_MAX", "7");
    let (status, log) = others.clone().start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    let told = [
        "keys_kept is 1m here and 7days by agreement",
        "rollback_horizon is 0s here and 1day by agreement",
        "reader_grace is 0s here and 1h by agreement",
        "redelete_after is 0s here and 1h by agreement",
        "rejections_max is 7 here and 100000 by agreement",
        "failover is lossless here and lossy by agreement",
        "require_lock_id is on here and off by agreement",
        "fencegate agree --reason TEXT",
    ];
    for told in told {
        assert!(log.contains(told), "{told}: {log}");
    }
    assert!(!log.contains("versions_kept"), "it is alike: {log}");

    let mut other = others.begin();
    let (code, out, log) = agree(&other).await;
    assert_eq!(code, Some(0), "{out}{log}");
    assert_eq!(out.lines().count(), 8, "{out}");
    for told in
        ["keys_kept: 7days -> 1m", "failover: lossy -> lossless", "rejections_max: 100000 -> 7"]
    {
        assert!(out.contains(told), "{told}: {out}");
    }
    let (code, out, _) = agree(&other).await;
    assert_eq!((code, out.contains("nothing changed")), (Some(0), true), "{out}");
    let detail = settled(&first, false).await.unwrap();
    assert!(detail.contains("keys_kept is 7days here and 1m by agreement"), "{detail}");
    first.logged("have agreed on other settings").await;
    // What is stricter holds at once.
    let lock = first.client().acquire("job:1", "1h").await;
    first
        .client()
        .put("job:1", "k", "x")
        .token(lock.token)
        .send()
        .await
        .refused(428, "lock-id-missing");
    other.restart().await;
    assert_eq!(settled(&other, true).await, None);
    let audit =
        other.client().get("/audit").query("action", "agree").send().await.expect(200).json();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit}");
    let owner = audit["items"][0]["owner"].as_str().unwrap();
    assert!(owner.starts_with("database role "), "{owner}");
    let reason = audit["items"][0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("the test says so: ") && reason.contains("lossy -> lossless"),
        "{reason}"
    );

    // Whoever has what was agreed before does not come back with it.
    first.spawn();
    assert_eq!(first.wait_for_exit().await.code(), Some(1), "{}", first.log());
    // The log of one that runs says it once.
    assert_eq!(first.log().matches("have agreed on other settings").count(), 1, "{}", first.log());
}

#[tokio::test]
async fn of_gateways_that_come_first_at_once_one_brings_its_settings() {
    let settings = SetUp::Clustered.settings().await;
    let starts = (0..6).map(|number| {
        let kept = format!("{}m", 10 + number);
        let mut gateway = settings
            .clone()
            .env("FENCEGATE_KEYS_KEPT", &kept)
            .env("FENCEGATE_ENDED_LOCKS_KEPT", &kept)
            .begin();
        async move {
            eventually("it serves or has ended", async || {
                let serves = gateway.client().get("/readyz").try_send().await.is_ok();
                (serves || !gateway.is_running()).then_some(())
            })
            .await;
            gateway
        }
    });
    let mut running = 0;
    for mut gateway in join_all(starts).await {
        running += usize::from(gateway.is_running());
    }
    assert_eq!(running, 1);
}

#[tokio::test]
async fn where_there_is_one_gateway_there_is_nothing_to_agree_on() {
    let mut gateway = with(Gateway::embedded(), &SHORT).start().await;
    let (code, out, log) = agree(&gateway).await;
    assert_eq!(code, Some(1), "{out}{log}");
    assert!(log.contains("has one gateway"), "{log}");
    gateway.set_env("FENCEGATE_KEYS_KEPT", "1h");
    gateway.restart().await;
    assert_eq!(settled(&gateway, true).await, None);
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| below(entry.path())).collect()
}

/// A gateway that was started to keep nothing finds that it is to keep everything for a day: it does.
#[tokio::test]
async fn a_gateway_never_keeps_less_than_is_agreed() {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let (url, prefix) = (postgres.database().await, etcd.prefix());
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &prefix)
        .flag("--inline-bytes-max", "1000")
        .env("FENCEGATE_SWEEP_INTERVAL", "100ms");
    let gateway = with(settings.clone(), &SHORT).start().await;
    let client = gateway.client();
    // Beside these lie the mark of the store and what it has of the audit, which comes when it comes.
    let blobs = default_blobs(&gateway).join("blobs");
    let lock = client.acquire("job:1", "1h").await;
    let put = async |seed| {
        let put = client.put("job:1", "k", body(seed, 5000)).under(&lock);
        assert!(put.send().await.status.is_success());
    };
    put(1).await;
    put(2).await;
    let replaced = eventually("what was replaced is gone", async || {
        files(&blobs).try_into().ok().map(|[left]: [PathBuf; 1]| left)
    })
    .await;
    client.put("job:1", "small", "x").under(&lock).idempotency_key("old").send().await.expect(201);

    let long = settings.begin();
    let (code, out, log) = agree(&long).await;
    assert_eq!(code, Some(0), "{out}{log}");
    settled(&gateway, false).await;
    put(3).await;
    // It would have been gone after two passes.
    let mut connection = postgres.connect(database_in(&url)).await;
    let age = "UPDATE fencegate.idempotency_keys SET stored_at = stored_at - interval '1 hour'";
    crate::schedules::forced::run(&mut connection, age).await;
    pause(3000).await;
    assert!(replaced.exists() && files(&blobs).len() == 2, "what was replaced stays");
    let again = client.put("job:1", "small", "x").under(&lock).idempotency_key("old").send().await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{}", again.text());
}

/// What the gateways ask of writers, the ledger asks of users' own transactions.
#[tokio::test]
async fn where_lock_ids_are_required_a_guard_needs_them_too() {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let url = postgres.database().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = settings.flag("--require-lock-id", "on").start().await;
    let lock = gateway.client().acquire("job:1", "1h").await;
    let mut connection = postgres.connect(database_in(&url)).await;
    let bare = format!("SELECT fencegate.guard('job:1', {})", lock.token);
    let (code, told) = refused(&mut connection, &bare).await;
    assert!(code == "FG412" && told.contains("lock-id-missing"), "{code} {told}");
    let named = format!("SELECT fencegate.guard('job:1', {}, '{}')", lock.token, lock.id);
    crate::schedules::forced::run(&mut connection, &named).await;
}
