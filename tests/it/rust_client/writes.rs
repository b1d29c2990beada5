//! Writes behind something that loses answers: each takes effect once, and the caller is told so.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencegate_client::{Change, Client, Error, Event, Lock, Once};
use futures::future::join_all;

use super::proxy::{Act, Proxy};
use super::{Dev, Told, builder, client, text};

/// What a first sending may meet, and whether the gateway acts on it.
fn mishaps() -> Vec<(Act, bool)> {
    vec![
        (Act::LoseRequest, false),
        (Act::LoseAnswer, true),
        (Act::CutAnswer(0), true),
        (Act::CutAnswer(100), true),
        (Act::Interfere, true),
        (Act::Twice, true),
        (Act::Late(Duration::from_millis(200)), false),
    ]
}

async fn behind_proxy() -> (Dev, Proxy, Client) {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&proxy.url());
    (gateway, proxy, client)
}

async fn version(client: &Client, resource: &str) -> i64 {
    client.resource(resource).await.unwrap().version
}

#[tokio::test]
async fn a_put_takes_effect_once_whatever_becomes_of_its_answer() {
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    for (nth, (act, acts)) in (1..).zip(mishaps()) {
        let body = format!("{act:?}");
        proxy.next("PUT", act.clone());
        let written = lock.put("k", &body).await.unwrap();
        assert_eq!((written.version, written.replayed), (nth, acts), "{act:?}");
        assert_eq!(client.get("r", "k").await.unwrap().text().unwrap(), body);
        assert_eq!(version(&client, "r").await, nth);
    }
    // All attempts of a write are the same, but for the ids of the requests.
    let sent = proxy.seen("PUT", "");
    let key = |at: usize| sent[at].header("idempotency-key").unwrap().to_owned();
    assert_eq!((key(0) == key(1), key(1) == key(2)), (true, false));
    let id = |at: usize| sent[at].header("x-request-id").unwrap().to_owned();
    assert_eq!(format!("{}.2", id(0)), id(1));
    assert_eq!(sent[0].header("x-fence-seq"), sent[1].header("x-fence-seq"));
    assert_eq!(sent[0].header("x-fence-key-kept"), Some("1h"));
}

#[tokio::test]
async fn a_delete_takes_effect_once_whatever_becomes_of_its_answer() {
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    for (act, acts) in mishaps() {
        let before = lock.put("k", "x").await.unwrap().version;
        proxy.next("DELETE", act.clone());
        let deleted = lock.delete("k").await.unwrap();
        assert_eq!((deleted.version, deleted.replayed), (Some(before + 1), acts), "{act:?}");
        assert!(client.get("r", "k").optional().await.unwrap().is_none());
    }
    for (act, acts) in mishaps() {
        lock.put("a", "x").await.unwrap();
        let before = lock.put("b", "x").await.unwrap().version;
        proxy.next("DELETE", act.clone());
        let deleted = lock.delete_all().await.unwrap();
        assert_eq!((deleted.version, deleted.replayed), (Some(before + 1), acts), "{act:?}");
        assert!(client.list("r").all().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_commit_takes_effect_once_whatever_becomes_of_its_answer() {
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock(["a", "b"]).acquire().await.unwrap();
    for (nth, (act, acts)) in (1..).zip(mishaps()) {
        proxy.rule("POST", "/commit", 1, act.clone());
        let body = format!("{act:?}");
        let commit = lock.commit().put("a", "k", &body).put("b", "k", &body).delete("b", "draft");
        let done = commit.expect_version("a", nth - 1).send().await.unwrap();
        assert_eq!(done.replayed, acts, "{act:?}");
        assert!(done.resources.iter().all(|resource| resource.version == Some(nth)), "{done:?}");
        for resource in ["a", "b"] {
            assert_eq!(client.get(resource, "k").await.unwrap().text().unwrap(), body);
            assert_eq!(version(&client, resource).await, nth);
        }
    }
}

#[tokio::test]
async fn conditions_hold_for_the_first_copy_and_not_for_the_second() {
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    proxy.next("PUT", Act::LoseAnswer);
    let first = lock.put("k", "one").if_absent().await.unwrap();
    assert_eq!((first.created, first.replayed), (Some(true), true));
    let tag = first.etag.clone().unwrap();
    proxy.next("PUT", Act::LoseAnswer);
    let second = lock.put("k", "two").if_match(&tag).await.unwrap();
    proxy.next("PUT", Act::Interfere);
    let third = lock.put("k", "three").if_resource_version(second.version).await.unwrap();
    proxy.next("DELETE", Act::LoseAnswer);
    lock.delete("k").if_match(third.etag.unwrap()).await.unwrap();
    assert_eq!(version(&client, "r").await, 4);
}

#[tokio::test]
async fn a_condition_that_fails_says_what_is_there() {
    let (_gateway, _proxy, client) = behind_proxy().await;
    let lock = client.lock(["r", "s"]).acquire().await.unwrap();
    let on = lock.on("r");
    let first = on.put("k", "one").if_absent().await.unwrap();
    let tag = first.etag.unwrap();
    let second = on.put("k", "two").if_match(&tag).await.unwrap();
    let changed = |result: Result<i64, Error>| match result {
        Err(Error::Changed(details)) => details,
        other => panic!("{other:?}"),
    };
    let put = async |put: fencegate_client::PutBuilder| put.await.map(|written| written.version);
    let absent = changed(put(on.put("k", "x").if_absent()).await);
    assert_eq!(absent.etag, second.etag);
    let stale = changed(put(on.put("k", "x").if_match(&tag)).await);
    assert_eq!(stale.etag, second.etag);
    let elsewhere = changed(put(on.put("k", "x").if_resource_version(7)).await);
    assert_eq!(elsewhere.version, Some(second.version));
    let commit = lock.commit().put("s", "k", "x").put("r", "k", "x").if_match(&tag).send().await;
    assert_eq!(changed(commit.map(|_| 0)).index, Some(1));
    let commit = lock.commit().put("s", "k", "x").expect_version("r", 1).send().await;
    assert_eq!(changed(commit.map(|_| 0)).version, Some(second.version));
    // All or nothing, and the lock is as good as before.
    assert!(client.get("s", "k").optional().await.unwrap().is_none());
    on.put("k", "three").if_match(second.etag.unwrap()).await.unwrap();
}

#[tokio::test]
async fn overlapped_writes_of_one_guard_all_succeed() {
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    // A third of the answers is lost on the way.
    for _ in 0..20 {
        proxy.rule("PUT", "", 1, Act::LoseAnswer);
        proxy.rule("PUT", "", 2, Act::Pass);
    }
    let puts = (0..64).map(|n| lock.put(&format!("k{n}"), format!("{n}")).into_future());
    let written = join_all(puts).await;
    let versions: BTreeSet<_> = written.iter().map(|one| one.as_ref().unwrap().version).collect();
    assert_eq!((versions.len(), versions.last()), (64, Some(&64)), "{written:?}");
    assert!(proxy.count("PUT", "") >= 64 + 20, "what was lost was sent again");
    for n in 0..64 {
        let object = client.get("r", &format!("k{n}")).await.unwrap();
        assert_eq!(object.text().unwrap(), n.to_string());
    }
}

#[tokio::test]
async fn an_ordered_guard_sends_one_write_at_a_time() {
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").ordered().acquire().await.unwrap();
    for _ in 0..8 {
        proxy.rule("PUT", "", 1, Act::LoseAnswer);
        proxy.rule("PUT", "", 1, Act::Pass);
    }
    let puts = (0..16).map(|n| lock.put("k", format!("{n}")).into_future());
    let written = join_all(puts).await;
    for (nth, one) in (1_i64..).zip(&written) {
        let one = one.as_ref().unwrap();
        assert_eq!((one.version, one.receipt.number), (nth, Some(nth.unsigned_abs())));
    }
    assert_eq!(client.get("r", "k").await.unwrap().text().unwrap(), "15");
}

#[tokio::test]
async fn a_key_of_ones_own_stands_for_one_write() {
    let (gateway, _proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    let put = |body: &str| lock.put("k", body).idempotency_key("message-1").into_future();
    let first = put("one").await.unwrap();
    let again = put("one").await.unwrap();
    assert_eq!((first.replayed, again.replayed, again.version), (false, true, first.version));
    let other = put("two").await.unwrap_err();
    assert_eq!(other.code(), Some("idempotency-key-reused"), "{other:?}");
    assert_eq!(text(&gateway.http(), "r", "k").await, "one");
    assert!(client.already_done("r", "message-1").await.unwrap());
}

#[tokio::test]
async fn work_is_done_once_although_its_answer_is_lost() {
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    let runs = AtomicUsize::new(0);
    for delivery in 0..3 {
        proxy.next("PUT", Act::LoseAnswer);
        let done = lock.once("message-1", async || {
            runs.fetch_add(1, Ordering::SeqCst);
            lock.put("draft", "x").await?;
            lock.put("paid", "yes").idempotency_key("message-1").await
        });
        match done.await.unwrap() {
            Once::Done(written) => assert_eq!((delivery, written.version), (0, 2)),
            Once::Before(found) => assert_eq!((delivery > 0, found.version), (true, Some(2))),
        }
        proxy.clear();
    }
    assert_eq!((runs.into_inner(), version(&client, "r").await), (1, 2));
}

#[tokio::test]
async fn updates_of_many_tasks_lose_none() {
    const TASKS: u64 = 6;
    const EACH: u64 = 4;
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    for _ in 0..6 {
        proxy.rule("PUT", "", 3, Act::Pass);
        proxy.rule("PUT", "", 1, Act::LoseAnswer);
    }
    let add = async |lock: &Lock| {
        for _ in 0..EACH {
            let one_more = |old: Option<u64>| Some(old.unwrap_or(0) + 1);
            lock.update_json("count.json", one_more).await.unwrap();
        }
    };
    join_all((0..TASKS).map(|_| add(&lock))).await;
    let count: u64 = client.get("r", "count.json").await.unwrap().json().unwrap();
    assert_eq!((count, version(&client, "r").await), (TASKS * EACH, (TASKS * EACH) as i64));
    // It may also say that nothing shall change, or that it shall go.
    assert!(lock.update("count.json", |_| Change::Keep).await.unwrap().is_none());
    assert!(lock.update("count.json", |_| Change::Delete).await.unwrap().is_none());
    assert_eq!(version(&client, "r").await, (TASKS * EACH + 1) as i64);
}

#[tokio::test]
async fn every_write_and_retry_is_told_to_the_hook() {
    let (gateway, told) = (Dev::start().await, Told::default());
    let proxy = Proxy::start(gateway.address()).await;
    let client = builder(&proxy.url()).on_event(told.hook()).build().unwrap();
    let lock = client.lock("r").acquire().await.unwrap();
    proxy.next("PUT", Act::LoseAnswer);
    proxy.next("PUT", Act::Interfere);
    let written = lock.put("k", "x").await.unwrap();
    assert_eq!((written.receipt.attempts, written.receipt.number), (3, Some(1)));
    let called = |event: &Event| {
        matches!(event, Event::Called { call: "put", class: None, attempts: 3, .. })
    };
    assert_eq!(told.count(called), 1);
    assert_eq!(told.count(|event| matches!(event, Event::Retry { call: "put", .. })), 2);
    let secrets = [lock.token().to_string(), lock.id().to_string()];
    let shown = told.count(|event| {
        secrets.iter().any(|one| one.len() > 3 && format!("{event:?}").contains(one))
    });
    assert_eq!(shown, 0, "hooks are told no token and no id");
}
