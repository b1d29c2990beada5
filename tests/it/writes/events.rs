//! `GET /locks/{id}/events`: each event, once, with why; where a lock stands at first; the end of a
//! stream.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::Supersession;
use fence_core::wire::Lock;
use fence_tests::client::{Client, resource_path};
use fence_tests::events::Events;
use futures::future::join_all;
use serde_json::json;

use crate::setup::{SetUp, look, on_both, random_id, take_over, until_state};

on_both!(
    a_lock_that_is_not_renewed_is_announced_once_per_ttl,
    an_expired_lock_is_not_lost_until_somebody_takes_over,
    a_break_is_announced_and_then_the_lock_is_lost,
    every_end_is_told_with_its_reason,
    the_first_event_tells_where_the_lock_stands,
    an_unknown_lock_has_no_events,
    two_hundred_streams_at_once,
    a_quiet_stream_shows_that_it_is_alive,
    a_gateway_that_shuts_down_ends_its_streams,
);

/// Makes something happen to the resource, which must be the next event: nothing came before it.
pub async fn quiet_until_now(client: &Client, resource: &str, events: &mut Events) {
    for (act, told) in [("freeze", "frozen"), ("unfreeze", "unfrozen")] {
        let path = format!("{}/{act}", resource_path(resource));
        client.post(path, &json!({ "reason": "test" })).send().await.expect(200);
        events.expect(told).await;
    }
}

async fn a_lock_that_is_not_renewed_is_announced_once_per_ttl(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "4s").await;
    let mut events = Events::of(&client, lock.id).await;
    for _ in 0..2 {
        let expiring = events.expect("expiring").await;
        assert!(expiring.expires_in_ms <= Some(4000 / 3), "{expiring:?}");
        assert_eq!((expiring.due, expiring.superseded_by), (None, None));
        let left = look(&client, "job:1").await.expires_in_ms;
        assert!(left.is_some_and(|left| left <= 4000 / 3), "{left:?} ms are left");
        quiet_until_now(&client, "job:1", &mut events).await;
        client.renew(&lock, None).send().await.expect(200);
    }
    events.expect("expiring").await;
    client.renew(&lock, Some("10m")).send().await.expect(200);
    // A longer ttl is not running out when the shorter one would have been.
    let beside = client.acquire("beside", "4s").await;
    Events::of(&client, beside.id).await.expect("expiring").await;
    quiet_until_now(&client, "job:1", &mut events).await;
}

async fn an_expired_lock_is_not_lost_until_somebody_takes_over(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "1s").await;
    let mut events = Events::of(&client, lock.id).await;
    events.expect("expiring").await;
    until_state(&client, "job:1", "expired").await;
    quiet_until_now(&client, "job:1", &mut events).await;
    client.renew(&lock, None).send().await.expect(200);
    let again = events.expect("expiring").await;
    assert!(again.expires_in_ms <= Some(334), "{again:?}");
    take_over(&client, "job:1").await;
    let lost = events.expect("lost").await;
    assert_eq!(lost.state, "superseded");
    assert_eq!(
        (lost.expires_in_ms, lost.superseded_by),
        (Some(0), Some(Supersession::Grant.into()))
    );
    assert!(events.next().await.is_none(), "the stream ends");
}

async fn a_break_is_announced_and_then_the_lock_is_lost(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let mut events = Events::of(&client, lock.id).await;
    let soon = |after: &str| json!({ "after": after, "reason": "test" });
    client.break_lock("job:1", &soon("5m")).send().await.expect(200);
    let breaking = events.expect("breaking").await;
    assert_eq!(breaking.state, "breaking");
    let first = breaking.due.unwrap();
    // Later is no news: it is not extended. Sooner is.
    client.break_lock("job:1", &soon("9m")).send().await.expect(200);
    client.break_lock("job:1", &soon("2s")).send().await.expect(200);
    let second = events.expect("breaking").await.due.unwrap();
    assert!(second < first, "{second} is sooner than {first}");
    // Nobody else acts on the resource: it is the watching that has the break stored.
    let lost = events.expect("lost").await;
    assert_eq!((lost.state.as_str(), lost.superseded_by), ("broken", None));
    assert!(events.next().await.is_none(), "the stream ends");
    assert_eq!(look(&client, "job:1").await.state.as_str(), "broken");
}

/// Acts that end a lock, and what its stream says then.
async fn end(client: &Client, number: usize, lock: &Lock) -> (&'static str, &'static str) {
    let resource = lock.resources[0].as_str();
    match number {
        0 => {
            client.release(lock).send().await.expect(204);
            ("released", "released")
        }
        1 => {
            client.break_lock(resource, &json!({ "reason": "now" })).send().await.expect(200);
            ("lost", "broken")
        }
        2 => {
            let path = format!("/locks/{}/transfer", lock.id);
            client.post(path, &json!({ "owner": "next" })).send().await.expect(201);
            ("lost", "superseded")
        }
        _ => {
            client.renew(lock, Some("1s")).send().await.expect(200);
            take_over(client, resource).await;
            ("lost", "superseded")
        }
    }
}

async fn every_end_is_told_with_its_reason(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let by = [None, None, Some(Supersession::Transfer), Some(Supersession::Grant)];
    for (number, by) in by.into_iter().enumerate() {
        // A lock on several resources ends as a whole, whichever of them is concerned.
        let names = [format!("a:{number}"), format!("b:{number}")];
        let body = json!({ "resources": names, "ttl": "10m", "owner": "test" });
        let lock: Lock = client.lock(&body).send().await.expect(201).parse();
        let mut watchers = [Events::of(&client, lock.id).await, Events::of(&client, lock.id).await];
        let (name, state) = end(&client, number, &lock).await;
        for events in &mut watchers {
            let mut event = events.next().await.unwrap();
            if event.name == "expiring" {
                event = events.next().await.unwrap();
            }
            assert_eq!((event.name.as_str(), event.data.state.as_str()), (name, state));
            assert_eq!(event.data.superseded_by, by.map(Into::into), "{event:?}");
            assert!(events.next().await.is_none(), "the stream ends");
        }
        // Whoever comes later is told the same, and the look says so, too.
        assert_eq!(Events::of(&client, lock.id).await.expect(name).await.state, state);
        let look: Lock = client.lock_of(&lock).send().await.expect(200).parse();
        assert_eq!(look.ended.as_ref().map(|how| how.as_str()), Some(state));
    }
}

async fn the_first_event_tells_where_the_lock_stands(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let leased = client.acquire("leased", "10m").await;
    let expired = client.acquire("expired", "1s").await;
    let breaking = client.acquire("breaking", "10m").await;
    let later = json!({ "after": "5m", "reason": "x" });
    client.break_lock("breaking", &later).send().await.expect(200);
    until_state(&client, "expired", "expired").await;
    let mut events = Events::of(&client, leased.id).await;
    quiet_until_now(&client, "leased", &mut events).await;
    let first = Events::of(&client, expired.id).await.expect("expiring").await;
    assert_eq!((first.state.as_str(), first.expires_in_ms), ("expired", Some(0)));
    let first = Events::of(&client, breaking.id).await.expect("breaking").await;
    assert!(first.due.is_some() && first.expires_in_ms > Some(0), "{first:?}");
}

async fn an_unknown_lock_has_no_events(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let path = |id| format!("/locks/{id}/events");
    client.get(path(random_id())).send().await.refused(404, "lock-not-found");
    // Not of an id that was given up before it was granted, either.
    let buried = random_id();
    client.call(reqwest::Method::DELETE, format!("/locks/{buried}")).send().await.expect(200);
    client.get(path(buried)).send().await.refused(404, "lock-not-found");
}

async fn two_hundred_streams_at_once(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let names = (0..200).map(|n| format!("job:{n}"));
    let locks = join_all(names.map(async |name| client.acquire(&name, "10m").await)).await;
    let streams = join_all(locks.iter().map(async |lock| Events::of(&client, lock.id).await)).await;
    let releases = join_all(locks.iter().map(async |lock| {
        client.release(lock).send().await.expect(204);
    }));
    let told = join_all(streams.into_iter().map(async |mut events| {
        events.expect("released").await;
        assert!(events.next().await.is_none(), "the stream ends");
    }));
    tokio::join!(releases, told);
    // Other calls went on, and watching has come to an end.
    client.acquire("job:0", "10m").await;
}

async fn a_quiet_stream_shows_that_it_is_alive(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let mut events = Events::of(&client, lock.id).await;
    events.comment().await;
    client.release(&lock).send().await.expect(204);
    events.expect("released").await;
}

async fn a_gateway_that_shuts_down_ends_its_streams(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "5s");
    let mut gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let streams = join_all((0..10).map(|_| Events::of(&client, lock.id))).await;
    gateway.term();
    for mut events in streams {
        assert!(events.next().await.is_none(), "nothing has happened to the lock");
    }
    // While it still takes requests it begins no stream that it would have to end.
    let path = format!("/locks/{}/events", lock.id);
    client.get(path).send().await.refused(503, "shutting-down");
    let status = gateway.wait_for_exit().await;
    assert_eq!(status.code(), Some(0), "{}", gateway.log());
    assert!(!gateway.log().contains("stopped with work in flight"), "{}", gateway.log());
}
