//! The key of a lock: given with it, the same each time, and nobody else's, ever (I18).

use fence_core::wire::{ContainerCredentials, Lock, ProcessCredentials, S3Access};
use fence_core::{LockId, Token};
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::client::Client;
use fence_tests::gateway::Settings;
use fencegate_s3::key::{Keys, Named, Root};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::buckets::make;
use crate::setup::{SetUp, on_both, random_id};

on_both!(
    a_lock_on_a_bucket_comes_with_its_key,
    a_fence_on_a_bucket_comes_with_its_key,
    the_key_can_be_asked_for_as_long_as_the_lock_lasts,
    a_key_is_its_principals_alone,
    without_s3_there_is_none,
);

/// A root of the test's own, so that it can read the keys.
pub(super) fn root() -> String {
    Root::generate().expect("random bytes").reveal()
}

pub(super) fn speaking_s3(settings: Settings, root: &str) -> Settings {
    let settings = settings.flag("--s3-listen", "127.0.0.1:0").env("FENCEGATE_S3_ROOT", root);
    settings.flag("--s3-endpoint", "https://s3.example.com").flag("--s3-region", "eu-north-1")
}

pub(super) fn keys(root: &str) -> Keys {
    Keys::new(&[Root::parse(root).expect("a root")]).expect("one root")
}

/// Checks that this is the key of this lock and no other.
fn is_key_of(access: &S3Access, root: &str, token: Token, lock: LockId) {
    let (named, secret) = keys(root).read(&access.access_key_id).expect("a key of this root");
    assert_eq!(named, Named::Lock { token, lock });
    assert_eq!(secret.reveal(), access.secret_access_key);
    assert_eq!(access.endpoint, "https://s3.example.com");
    assert_eq!(access.region, "eu-north-1");
}

async fn a_lock_on_a_bucket_comes_with_its_key(setup: SetUp) {
    let root = root();
    let gateway = speaking_s3(setup.settings().await, &root).start().await;
    let client = gateway.client();
    let lock = async |resources: &[&str], id: Option<LockId>| {
        let body = json!({ "resources": resources, "ttl": "10m", "id": id });
        client.lock(&body).send().await
    };
    let before: Lock = lock(&["lake"], None).await.expect(201).parse();
    assert_eq!(before.s3, None, "there is no bucket yet");
    client.release(&before).send().await.expect(204);
    make(&client, "lake", 1).await.expect(201);
    make(&client, "deep", 2).await.expect(201);
    for none in ["other", "lakes", "lakes:a", "lake:a:b", "lake-2", "deep:a", "Lake"] {
        let lock: Lock = lock(&[none], None).await.expect(201).parse();
        assert_eq!(lock.s3, None, "{none}");
    }
    for some in [&["lake"][..], &["lake:a"], &["deep:a:b"], &["another", "lake:b"]] {
        let first: Lock = lock(some, None).await.expect(201).parse();
        let access = first.s3.as_ref().expect("S3 tools reach it");
        is_key_of(access, &root, first.token, first.id);
        let again: Lock = lock(some, Some(first.id)).await.expect(200).parse();
        assert_eq!(again.s3, first.s3, "the same call is answered alike");
        let renewed: Lock = client.renew(&first, None).send().await.expect(200).parse();
        assert_eq!(renewed.s3, None);
        let looked: Lock = client.lock_of(&first).send().await.expect(200).parse();
        assert_eq!(looked.s3, None);
    }
    assert!(!gateway.log().contains("FG1"), "no key is in the log");
}

async fn a_fence_on_a_bucket_comes_with_its_key(setup: SetUp) {
    let root = root();
    let gateway = speaking_s3(setup.settings().await, &root).start().await;
    let client = gateway.client();
    make(&client, "lake", 0).await.expect(201);
    let id = LockId(random_id());
    let body = json!({ "id": id, "order": "7", "owner": "f" });
    let set = client.fence("lake", &body).send().await.expect(201).json();
    let access: S3Access = serde_json::from_value(set["s3"].clone()).expect("a key");
    let token: Token = serde_json::from_value(set["token"].clone()).expect("a token");
    is_key_of(&access, &root, token, id);
    let again = client.fence("lake", &body).send().await.expect(200).json();
    assert_eq!(again["s3"], set["s3"]);
    let elsewhere = json!({ "id": random_id(), "order": "7", "owner": "f" });
    let elsewhere = client.fence("sea", &elsewhere).send().await.expect(201).json();
    assert_eq!(elsewhere.get("s3"), None);
}

async fn the_key_can_be_asked_for_as_long_as_the_lock_lasts(setup: SetUp) {
    let root = root();
    let gateway = speaking_s3(setup.settings().await, &root).start().await;
    let client = gateway.client();
    let key_of = |lock: &Lock, form: &str| {
        let call = client.get(format!("/locks/{}/s3", lock.id));
        if form.is_empty() { call } else { call.query("as", form) }
    };
    // Also for a lock on nothing that lies in a bucket: there may be one tomorrow.
    let lock = client.acquire("lake", "10m").await;
    let access: S3Access = key_of(&lock, "").send().await.expect(200).parse();
    is_key_of(&access, &root, lock.token, lock.id);
    let process = key_of(&lock, "process").send().await.expect(200);
    assert_eq!(process.json()["Version"], 1);
    let process: ProcessCredentials = process.parse();
    assert_eq!(process.access_key_id, access.access_key_id);
    assert_eq!(process.secret_access_key, access.secret_access_key);
    let answer = key_of(&lock, "container").send().await.expect(200);
    let expires = answer.json()["Expiration"].as_str().expect("a time").to_owned();
    assert!(expires.ends_with('Z') && !expires.contains('.'), "in whole seconds: {expires}");
    let container: ContainerCredentials = answer.parse();
    assert_eq!(container.access_key_id, access.access_key_id);
    assert_eq!(container.secret_access_key, access.secret_access_key);
    #[expect(clippy::disallowed_methods, reason = "a test on real time")]
    let left = container.expiration.duration_since(Timestamp::now());
    assert!(left > SignedDuration::from_hours(11) && left <= SignedDuration::from_hours(12));
    assert!(!container.token.is_empty());
    key_of(&lock, "config").unchecked().send().await.refused(400, "query-malformed");

    // What somebody else holds by now is never told to who held it before.
    client.break_lock("lake", &json!({ "reason": "it hangs" })).send().await.expect(200);
    let next = client.acquire("lake", "1s").await;
    let form = ["", "process", "container"];
    for form in form {
        key_of(&lock, form).send().await.refused(409, "lock-broken");
    }
    let last = taken_over(&client, "lake").await;
    for form in form {
        key_of(&next, form).send().await.refused(409, "lock-superseded");
        let access = key_of(&last, form).send().await.expect(200).json();
        let id = access["access_key_id"].as_str().or(access["AccessKeyId"].as_str());
        assert_ne!(id.expect("an id"), process.access_key_id);
    }
    client.release(&last).send().await.expect(204);
    key_of(&last, "").send().await.refused(409, "lock-released");
    let unknown = client.get(format!("/locks/{}/s3", random_id()));
    unknown.send().await.refused(404, "lock-not-found");
}

/// The lock of whoever takes the resource once the lock on it has expired.
async fn taken_over(client: &Client, resource: &str) -> Lock {
    let body = json!({ "resource": resource, "ttl": "10m", "wait": "10s" });
    client.lock(&body).send().await.expect(201).parse()
}

async fn a_key_is_its_principals_alone(setup: SetUp) {
    let (root, rules) = (root(), Rules::new().await);
    let (ann, bob) = (Key::new().await, Key::new().await);
    let text = rules.admin()
        + &role("works", "allow = [\"lock\", \"write\"]\nresources = [\"lake:*\"]")
        + &principal("ann", "works", &[&ann])
        + &principal("bob", "works", &[&bob]);
    let settings = speaking_s3(setup.settings().await, &root);
    let gateway = setup.start_ruled(settings, &rules, &text).await;
    let client = gateway.client();
    let make = client.call(reqwest::Method::PUT, "/buckets/lake");
    let make = make.header("content-type", "application/json").body("{\"depth\": 1}");
    rules.admin.by(make).send().await.expect(201);
    let body = json!({ "resource": "lake:a", "ttl": "10m" });
    let lock: Lock = ann.by(client.lock(&body)).send().await.expect(201).parse();
    let access = lock.s3.clone().expect("S3 tools reach it");
    is_key_of(&access, &root, lock.token, lock.id);
    let key_of = || client.get(format!("/locks/{}/s3", lock.id)).query("as", "container");
    key_of().send().await.refused(401, "unauthenticated");
    bob.by(key_of()).send().await.refused(404, "lock-not-found");
    rules.admin.by(key_of()).send().await.refused(403, "permission-denied");
    // As the AWS tools send what AWS_CONTAINER_AUTHORIZATION_TOKEN holds.
    let token = format!("Bearer {}", ann.text);
    let told = key_of().header("authorization", &token).send().await.expect(200);
    assert_eq!(told.parse::<ContainerCredentials>().access_key_id, access.access_key_id);
    // A key of S3 is no credential here.
    let with_it = format!("Bearer {}", access.secret_access_key);
    key_of().header("authorization", &with_it).send().await.refused(401, "unauthenticated");
}

async fn without_s3_there_is_none(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    make(&client, "lake", 0).await.expect(201);
    let lock = client.acquire("lake", "10m").await;
    assert_eq!(lock.s3, None);
    let off = client.get(format!("/locks/{}/s3", lock.id)).send().await;
    assert!(off.refused(404, "route-not-found").problem().detail.contains("s3_listen"));
    let off = client.post("/admin/s3-keys", &json!({ "rights": "read" })).send().await;
    off.refused(404, "route-not-found");
    assert_eq!(client.get("/status").send().await.expect(200).json().get("s3"), None);
    let root = root();
    let gateway = speaking_s3(setup.settings().await, &root).start().await;
    let status = gateway.client().get("/status").send().await.expect(200).json();
    assert_eq!(status["s3"], "https://s3.example.com");
    assert!(!status.to_string().contains(&root), "{status}");
}
