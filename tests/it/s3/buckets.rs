//! Buckets as operators make and delete them.

use fence_core::wire::{Bucket, BucketList};
use fence_tests::access::Rules;
use fence_tests::access::{Key, principal, role};
use fence_tests::client::{Answer, Client};
use reqwest::Method;
use serde_json::json;

use crate::setup::{SetUp, on_both};

on_both!(
    a_bucket_is_made_listed_and_deleted,
    names_and_depths_are_checked,
    a_bucket_with_objects_stays,
    each_sees_the_buckets_that_it_may_list,
);

pub(super) async fn make(client: &Client, name: &str, depth: u8) -> Answer {
    let call = client.call(Method::PUT, format!("/buckets/{name}"));
    let body = json!({ "depth": depth }).to_string();
    call.header("content-type", "application/json").body(body).send().await
}

async fn delete(client: &Client, name: &str) -> Answer {
    client.call(Method::DELETE, format!("/buckets/{name}")).send().await
}

async fn names(client: &Client) -> Vec<String> {
    let list: BucketList = client.get("/buckets").send().await.expect(200).parse();
    list.items.into_iter().map(|bucket| bucket.name).collect()
}

async fn a_bucket_is_made_listed_and_deleted(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    assert!(names(&client).await.is_empty());
    let made: Bucket = make(&client, "lake", 2).await.expect(201).parse();
    assert_eq!((made.name.as_str(), made.depth), ("lake", 2));
    let again: Bucket = make(&client, "lake", 2).await.expect(200).parse();
    assert_eq!(again, made, "doing it again changes nothing");
    let other = make(&client, "lake", 1).await.refused(409, "bucket-depth-differs");
    assert!(other.problem().detail.contains("the depth of this bucket is 2"));
    // Without a body it is one lock for the whole bucket.
    let bay = client.call(Method::PUT, "/buckets/bay").send().await.expect(201).parse::<Bucket>();
    assert_eq!(bay.depth, 0);
    assert_eq!(names(&client).await, ["bay", "lake"]);

    delete(&client, "lake").await.expect(204);
    delete(&client, "lake").await.refused(404, "bucket-not-found");
    assert_eq!(names(&client).await, ["bay"]);
    make(&client, "lake", 0).await.refused(409, "bucket-depth-differs");
    assert_eq!(names(&client).await, ["bay"]);
    make(&client, "lake", 2).await.expect(201);
    assert_eq!(names(&client).await, ["bay", "lake"]);
}

async fn names_and_depths_are_checked(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let long = "a".repeat(64);
    for bad in ["ab", "Lake", "la_ke", "lake:x", "lake%2Fx", "-lake", "10.0.0.1", "%ff", &long] {
        make(&client, bad, 0).await.refused(400, "resource-name-invalid");
        delete(&client, bad).await.refused(400, "resource-name-invalid");
    }
    for bad in ["{\"depth\": 4}", "{\"depth\": -1}", "{\"deep\": 1}", "[1]", "{"] {
        let call = client.call(Method::PUT, "/buckets/lake");
        let call = call.header("content-type", "application/json").body(bad);
        call.send().await.refused(400, "body-malformed");
    }
    let call = client.call(Method::PUT, "/buckets/lake").body("{\"depth\": 1}");
    call.send().await.refused(415, "unsupported-media-type");
    client
        .get("/buckets")
        .query("prefix", "x")
        .unchecked()
        .send()
        .await
        .refused(400, "query-malformed");
    assert!(names(&client).await.is_empty());
}

async fn a_bucket_with_objects_stays(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    make(&client, "lake", 1).await.expect(201);
    let beside = client.acquire("lake-2", "10m").await;
    client.put("lake-2", "k", "x").under(&beside).send().await.expect(201);
    for resource in ["lake", "lake:orders"] {
        let lock = client.acquire(resource, "10m").await;
        client.put(resource, "k", "x").under(&lock).send().await.expect(201);
        delete(&client, "lake").await.refused(409, "bucket-not-empty");
        client.delete(resource, "k").under(&lock).send().await.expect(204);
    }
    delete(&client, "lake").await.expect(204);
}

async fn each_sees_the_buckets_that_it_may_list(setup: SetUp) {
    let rules = Rules::new().await;
    let (ann, bob) = (Key::new().await, Key::new().await);
    let text = rules.admin()
        + &role("whole", "allow = [\"list\"]\nresources = [\"lake\", \"lake:*\"]")
        + &role("part", "allow = [\"list\"]\nresources = [\"bay:*\"]")
        + &principal("ann", "whole", &[&ann])
        + &principal("bob", "part", &[&bob]);
    let gateway = setup.start_ruled(setup.settings().await, &rules, &text).await;
    let client = gateway.client();
    for name in ["lake", "bay", "sea"] {
        let make = || client.call(Method::PUT, format!("/buckets/{name}"));
        ann.by(make()).send().await.refused(403, "permission-denied");
        rules.admin.by(make()).send().await.expect(201);
    }
    let seen = async |key: &Key| {
        let list: BucketList = key.by(client.get("/buckets")).send().await.expect(200).parse();
        list.items.into_iter().map(|bucket| bucket.name).collect::<Vec<_>>()
    };
    assert_eq!(seen(&ann).await, ["lake"]);
    assert_eq!(seen(&bob).await, ["bay"]);
    let drop = || client.call(Method::DELETE, "/buckets/lake");
    ann.by(drop()).send().await.refused(403, "permission-denied");
    rules.admin.by(drop()).send().await.expect(204);
    assert!(seen(&ann).await.is_empty());
}

#[tokio::test]
async fn a_bucket_is_known_at_other_gateways_at_once() {
    let settings = SetUp::Clustered.settings().await.flag("--s3-listen", "127.0.0.1:0");
    let (one, other) = (settings.clone().start().await, settings.start().await);
    let (one, other) = (one.client(), other.client());
    for number in 0..5 {
        let name = format!("lake-{number}");
        let lock = json!({ "resource": name, "ttl": "1m" });
        let before = other.lock(&lock).send().await.expect(201).json();
        assert_eq!(before.get("s3"), None);
        make(&one, &name, 0).await.expect(201);
        let lock = json!({ "resource": format!("{name}"), "ttl": "1m", "id": before["id"] });
        let after = other.lock(&lock).send().await.expect(200).json();
        assert!(after["s3"]["access_key_id"].is_string(), "{after}");
    }
}
