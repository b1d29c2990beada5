//! The root that keys are derived from: that of the settings, which all gateways have alike, or that of the data directory.

use fence_core::wire::{Lock, S3Access};
use fence_tests::client::Client;

use super::keys::{keys, root, speaking_s3};
use crate::setup::{SetUp, on_both};

on_both!(a_root_outlives_its_gateway);

pub(super) async fn key_of(client: &Client, lock: &Lock) -> S3Access {
    client.get(format!("/locks/{}/s3", lock.id)).send().await.expect(200).parse()
}

async fn a_root_outlives_its_gateway(setup: SetUp) {
    let settings = setup.settings().await.flag("--s3-listen", "127.0.0.1:0");
    let mut gateway = settings.start().await;
    let lock = gateway.client().acquire("lake", "10m").await;
    let before = key_of(&gateway.client(), &lock).await;
    assert!(before.endpoint.starts_with("http://127.0.0.1:"), "{}", before.endpoint);
    gateway.kill9();
    gateway.restart().await;
    let after = key_of(&gateway.client(), &lock).await;
    assert_eq!(after.access_key_id, before.access_key_id);
    assert_eq!(after.secret_access_key, before.secret_access_key);
}

#[tokio::test]
async fn the_same_lock_has_the_same_key_through_any_gateway() {
    let settings = SetUp::Clustered.settings().await.flag("--s3-listen", "127.0.0.1:0");
    let (one, other) = tokio::join!(settings.clone().start(), settings.start());
    let lock = one.client().acquire("lake", "10m").await;
    let (one, other) = (key_of(&one.client(), &lock).await, key_of(&other.client(), &lock).await);
    assert_eq!(one.access_key_id, other.access_key_id);
    assert_eq!(one.secret_access_key, other.secret_access_key);
}

#[tokio::test]
async fn a_gateway_with_another_root_does_not_start_until_that_is_agreed() {
    let settings = SetUp::Clustered.settings().await;
    // One without S3 has no root to agree on.
    let without = settings.clone().start().await;
    let (old, new) = (root(), root());
    let first = speaking_s3(settings.clone(), &old).start().await;
    let lock = first.client().acquire("lake", "10m").await;
    let made = key_of(&first.client(), &lock).await;
    let (status, log) = speaking_s3(settings.clone(), &new).start_refused().await;
    assert!(status.code() == Some(1) && log.contains("s3_root is "), "{log}");
    assert!(!log.contains(&old) && !log.contains(&new), "{log}");
    // First both are read, and then the other one makes keys.
    let mut last = None;
    for roots in [format!("{old},{new}"), format!("{new},{old}")] {
        let gateway = speaking_s3(settings.clone(), &roots).begin();
        gateway.agree().await;
        let gateway = speaking_s3(settings.clone(), &roots).start().await;
        last = Some(key_of(&gateway.client(), &lock).await);
    }
    let last = last.expect("two gateways were started");
    assert_ne!(last.access_key_id, made.access_key_id);
    assert_eq!(
        keys(&new).read(&last.access_key_id).map(|it| it.0),
        keys(&old).read(&made.access_key_id).map(|it| it.0)
    );
    without.client().acquire("other", "1m").await;
}
