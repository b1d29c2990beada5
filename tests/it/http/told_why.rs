//! What a caller is told beside the code of a refusal: the operator's reason, the version that was there
//! first, that an id names nothing; and what is told of names that are none.

use fence_core::wire::Lock;
use fence_tests::client::{Client, resource_path};
use fence_tests::events::Events;
use fence_tests::multipart;
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use crate::setup::{SetUp, on_both, random_id, until_state};

on_both!(
    the_holder_hears_of_a_freeze_and_why,
    the_holder_hears_of_a_break_and_why,
    a_lock_on_several_resources_is_told_of_each,
    a_mismatch_tells_what_is_there,
    a_mismatch_in_a_commit_tells_what_is_there,
    a_release_of_an_id_that_never_was_says_so,
);

async fn mark(client: &Client, resource: &str, mark: &str, reason: &str) {
    let path = format!("{}/{mark}", resource_path(resource));
    client.post(path, &json!({ "reason": reason })).send().await.expect(200);
}

async fn the_holder_hears_of_a_freeze_and_why(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let mut events = Events::of(&client, lock.id).await;
    mark(&client, "job:1", "freeze", "the disk is full").await;
    let frozen = events.expect("frozen").await;
    assert_eq!(
        (frozen.reason.as_deref(), frozen.state.as_str()),
        (Some("the disk is full"), "leased")
    );
    let own: Lock = client.lock_of(&lock).send().await.expect(200).parse();
    assert_eq!((own.frozen.as_deref(), own.reason), (Some("the disk is full"), None));
    let refused = client.put("job:1", "k", "x").under(&lock).send().await;
    let refused = refused.refused(423, "resource-frozen").problem();
    assert_eq!(refused.reason.as_deref(), Some("the disk is full"));
    // Another reason is told, too; and whoever comes now hears of it first.
    mark(&client, "job:1", "freeze", "still full").await;
    assert_eq!(events.expect("frozen").await.reason.as_deref(), Some("still full"));
    let mut late = Events::of(&client, lock.id).await;
    assert_eq!(late.expect("frozen").await.reason.as_deref(), Some("still full"));
    mark(&client, "job:1", "unfreeze", "there is room").await;
    for events in [&mut events, &mut late] {
        assert_eq!(events.expect("unfrozen").await.reason, None);
    }
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    // Nor is a lock granted while it is frozen.
    client.release(&lock).send().await.expect(204);
    mark(&client, "job:1", "freeze", "moved").await;
    let refused = client.lock(&json!({ "resource": "job:1" })).send().await;
    let refused = refused.refused(423, "resource-frozen").problem();
    assert_eq!(refused.reason.as_deref(), Some("moved"));
}

async fn the_holder_hears_of_a_break_and_why(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    // A break of an earlier holder has a reason of its own.
    client.acquire("job:1", "10m").await;
    client.break_lock("job:1", &json!({ "reason": "an old one" })).send().await.expect(200);
    let lock = client.acquire("job:1", "10m").await;
    let mut events = Events::of(&client, lock.id).await;
    let soon = json!({ "reason": "it hangs", "after": "2s" });
    client.break_lock("job:1", &soon).send().await.expect(200);
    let breaking = events.expect("breaking").await;
    assert_eq!(breaking.reason.as_deref(), Some("it hangs"));
    let own: Lock = client.lock_of(&lock).send().await.expect(200).parse();
    assert_eq!((own.state.as_str(), own.reason.as_deref()), ("breaking", Some("it hangs")));
    let renewal = client.renew(&lock, None).send().await.refused(409, "lock-breaking");
    assert_eq!(renewal.problem().reason.as_deref(), Some("it hangs"));

    until_state(&client, "job:1", "broken").await;
    let lost = events.expect("lost").await;
    assert_eq!((lost.state.as_str(), lost.reason.as_deref()), ("broken", Some("it hangs")));
    let write = client.put("job:1", "k", "x").under(&lock).send().await;
    let write = write.refused(412, "fence-token-broken").problem();
    assert_eq!(write.reason.as_deref(), Some("it hangs"));
    // Also once somebody else has the resource.
    client.acquire("job:1", "10m").await;
    let renewal = client.renew(&lock, None).send().await.refused(409, "lock-broken");
    assert_eq!(renewal.problem().reason.as_deref(), Some("it hangs"));
    let again = json!({ "resource": "job:1", "owner": lock.owner, "id": lock.id });
    let again = client.lock(&again).send().await.refused(409, "lock-broken");
    assert_eq!(again.problem().reason.as_deref(), Some("it hangs"));
    let own: Lock = client.lock_of(&lock).send().await.expect(200).parse();
    assert_eq!(own.reason.as_deref(), Some("it hangs"));
    let mut late = Events::of(&client, lock.id).await;
    assert_eq!(late.expect("lost").await.reason.as_deref(), Some("it hangs"));
}

async fn a_lock_on_several_resources_is_told_of_each(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let both = json!({ "resources": ["job:1", "job:2"], "ttl": "10m" });
    let lock: Lock = client.lock(&both).send().await.expect(201).parse();
    let mut events = Events::of(&client, lock.id).await;
    mark(&client, "job:2", "freeze", "second").await;
    assert_eq!(events.expect("frozen").await.reason.as_deref(), Some("second"));
    client.break_lock("job:2", &json!({ "reason": "its disk" })).send().await.expect(200);
    assert_eq!(events.expect("lost").await.reason.as_deref(), Some("its disk"));
    let renewal = client.renew(&lock, None).send().await.refused(409, "lock-broken");
    assert_eq!(renewal.problem().reason.as_deref(), Some("its disk"));
}

async fn a_mismatch_tells_what_is_there(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let first = client.put("job:1", "k", "first").under(&lock).send().await.expect(201);
    let second = client.put("job:1", "k", "second").under(&lock).send().await.expect(200);
    let (first, second) = (first.must_have("etag"), second.must_have("etag"));
    for call in [
        client.put("job:1", "k", "x").header("if-match", first),
        client.put("job:1", "k", "x").header("if-none-match", "*"),
        client.delete("job:1", "k").header("if-match", first),
        client.put("job:1", "k", "x").header("x-if-resource-version", "1"),
    ] {
        let refused = call.under(&lock).send().await.refused(412, "version-mismatch").problem();
        assert_eq!((refused.version, refused.etag.as_deref()), (Some(2), Some(second)));
    }
    // What is not there has no tag.
    let absent = client.put("job:1", "other", "x").header("if-match", first).under(&lock);
    let absent = absent.send().await.refused(412, "version-mismatch").problem();
    assert_eq!((absent.version, absent.etag), (Some(2), None));
    let all = client.delete_resource("job:1").header("x-if-resource-version", "1").under(&lock);
    let all = all.send().await.refused(412, "version-mismatch").problem();
    assert_eq!((all.version, all.etag), (Some(2), None));
    let read = client.read("job:1", "k").header("if-match", first).send().await;
    let read = read.refused(412, "version-mismatch").problem();
    assert_eq!((read.version, read.etag.as_deref()), (Some(2), Some(second)));
    // With it the next try succeeds.
    let next = client.put("job:1", "k", "x").header("if-match", second).under(&lock);
    next.send().await.expect(200);
}

async fn a_mismatch_in_a_commit_tells_what_is_there(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "a", "x").under(&lock).send().await.expect(201);
    let tag = client.put("job:1", "b", "x").under(&lock).send().await.expect(201);
    let operations = json!({ "operations": [
        { "op": "delete", "resource": "job:1", "key": "a" },
        { "op": "delete", "resource": "job:1", "key": "b", "if_match": "\"g0-v1\"" },
    ] });
    let refused = multipart::commit(&client, &operations, &[]).under(&lock).send().await;
    let refused = refused.refused(412, "version-mismatch").problem();
    assert_eq!((refused.index, refused.version), (Some(1), Some(2)));
    assert_eq!(refused.etag.as_deref(), Some(tag.must_have("etag")));
    let operations = json!({
        "operations": [{ "op": "delete", "resource": "job:1", "key": "a" }],
        "versions": { "job:1": 1 },
    });
    let refused = multipart::commit(&client, &operations, &[]).under(&lock).send().await;
    let refused = refused.refused(412, "version-mismatch").problem();
    assert_eq!((refused.version, refused.etag), (Some(2), None));
}

fn release(client: &Client, id: Uuid) -> fence_tests::client::Call {
    client.call(Method::DELETE, format!("/locks/{id}"))
}

async fn a_release_of_an_id_that_never_was_says_so(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let id = random_id();
    let said = release(&client, id).send().await.expect(200);
    assert_eq!(said.json(), json!({ "released": false, "buried": true }));
    // The one that was meant is held still; and nothing is granted under the other.
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    let late = json!({ "resource": "job:2", "id": id });
    client.lock(&late).send().await.refused(409, "lock-released");
    // What is known is released, as often as one likes.
    for _ in 0..2 {
        let released = client.release(&lock).send().await.expect(204);
        assert_eq!(released.text(), "");
    }
}
