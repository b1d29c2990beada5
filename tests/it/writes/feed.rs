//! `GET /events` and `GET /resources/{resource}/versions`: what was written, by whom, in which order.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test has the real clock")]

use std::time::{Duration, Instant};

use fence_core::wire::{EventList, Lock, VersionList, WriteEvent};
use fence_tests::client::{Client, resource_path};
use fence_tests::conformance::pause;
use fence_tests::feed::Feed;
use fence_tests::gateway::Gateway;
use serde_json::json;

use crate::setup::{SetUp, assert_hides, on_both};

on_both!(
    the_history_of_a_resource_is_paged,
    every_write_is_an_event_and_no_token_is_shown,
    events_are_paged_and_resumed,
    a_long_poll_answers_as_soon_as_something_is_written,
    a_stream_goes_on_where_it_was,
    only_new_events_are_seen_from_now_on,
    bad_places_are_refused,
    a_gateway_that_shuts_down_ends_its_feeds,
    events_survive_a_crash,
    a_quiet_feed_shows_that_it_is_alive,
);

async fn list(client: &Client, query: &[(&str, &str)]) -> EventList {
    let call =
        query.iter().fold(client.get("/events"), |call, (name, value)| call.query(name, value));
    call.send().await.expect(200).parse()
}

/// Resource, version, kind and key.
fn told(event: &WriteEvent) -> (&str, i64, &str, Option<&str>) {
    (&event.resource, event.version, &event.kind, event.key.as_deref())
}

async fn the_history_of_a_resource_is_paged(setup: SetUp) {
    let gateway = setup.start_with_high_tokens(|settings| settings).await;
    let client = gateway.client();
    let path = format!("{}/versions", resource_path("job:1"));
    client.get(path.clone()).send().await.refused(404, "resource-not-found");
    let lock = client.acquire("job:1", "10m").await;
    let empty: VersionList = client.get(path.clone()).send().await.expect(200).parse();
    assert!(empty.items.is_empty() && empty.next_cursor.is_none());
    for n in 0..4 {
        client.put("job:1", &format!("k{n}"), "12345").under(&lock).send().await.expect(201);
    }
    client.delete("job:1", "nothing").under(&lock).send().await.expect(204);
    client.delete("job:1", "k0").under(&lock).send().await.expect(204);
    let answer = client.get(path.clone()).query("limit", "3").send().await.expect(200);
    assert_hides(&answer, &lock);
    let first: VersionList = answer.parse();
    let cursor = first.next_cursor.unwrap();
    let rest = client.get(path.clone()).query("cursor", &cursor).query("limit", "3").send().await;
    let rest: VersionList = rest.expect(200).parse();
    assert_eq!(rest.next_cursor, None);
    let items: Vec<_> = first.items.iter().chain(&rest.items).collect();
    let words: Vec<_> = items
        .iter()
        .map(|one| (one.version, one.kind.as_str(), one.key.as_deref().unwrap()))
        .collect();
    assert_eq!(
        words,
        [
            (5, "delete", "k0"),
            (4, "put", "k3"),
            (3, "put", "k2"),
            (2, "put", "k1"),
            (1, "put", "k0")
        ]
    );
    assert_eq!((items[0].size, items[0].sha256.as_deref()), (None, None));
    assert_eq!((items[1].size, items[1].owner.as_str()), (Some(5), "test"));
    assert_eq!(items[1].sha256.as_ref().map(String::len), Some(64));
    let one: VersionList = client.get(path).query("prefix", "k2").send().await.expect(200).parse();
    assert_eq!(one.items.iter().map(|one| one.version).collect::<Vec<_>>(), [3]);
}

async fn every_write_is_an_event_and_no_token_is_shown(setup: SetUp) {
    let gateway = setup.start_with_high_tokens(|settings| settings).await;
    let client = gateway.client();
    let empty = list(&client, &[]).await;
    assert_eq!((empty.items.len(), empty.next_cursor.as_str()), (0, "g0-0"));
    let lock = client.acquire("job:1", "10m").await;
    let put = || client.put("job:1", "a/b", "12345").under(&lock).idempotency_key("once");
    put().send().await.expect(201);
    put().send().await.expect(201);
    client.put("job:1", "a/b", "x").token(7).send().await.expect(403);
    client.delete("job:1", "nothing").under(&lock).send().await.expect(204);
    client.delete_resource("job:1").under(&lock).send().await.expect(204);
    // The very next call sees what was committed.
    let answer = client.get("/events").send().await.expect(200);
    assert_hides(&answer, &lock);
    let events: EventList = answer.parse();
    let words: Vec<_> = events.items.iter().map(told).collect();
    assert_eq!(words, [("job:1", 1, "put", Some("a/b")), ("job:1", 2, "delete_all", None)]);
    assert_eq!(events.items[0].size, Some(5));
    assert_eq!(events.items[0].owner, "test");
    assert_eq!((events.items[0].event.as_str(), events.next_cursor.as_str()), ("g0-1", "g0-2"));
}

async fn events_are_paged_and_resumed(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    for n in 0..5 {
        client.put("job:1", &format!("k{n}"), "x").under(&lock).send().await.expect(201);
    }
    let first = list(&client, &[("limit", "2")]).await;
    let second = list(&client, &[("limit", "2"), ("after", &first.next_cursor)]).await;
    let third = list(&client, &[("after", &second.next_cursor)]).await;
    let pages = [first.items, second.items, third.items];
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
    let versions: Vec<_> = pages.iter().flatten().map(|event| event.version).collect();
    assert_eq!(versions, [1, 2, 3, 4, 5]);
    let middle = list(&client, &[("after", &pages[0][0].event)]).await;
    assert_eq!(middle.items[0].version, 2);
    // Nothing is behind the last, and the place stays.
    let end = list(&client, &[("after", "g0-5")]).await;
    assert_eq!((end.items.len(), end.next_cursor.as_str()), (0, "g0-5"));
}

async fn a_long_poll_answers_as_soon_as_something_is_written(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let began = Instant::now();
    let none = list(&client, &[("wait", "1s")]).await;
    assert_eq!((none.items.len(), none.next_cursor.as_str()), (0, "g0-0"));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let poll = list(&client, &[("wait", "50s")]);
    let write = async {
        pause(500).await;
        client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    };
    let (found, ()) = tokio::join!(poll, write);
    // One whose wait is over has none.
    assert_eq!(found.items.len(), 1);
}

async fn a_stream_goes_on_where_it_was(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let write = async |n: i64| {
        client.put("job:1", &format!("k{n}"), "x").under(&lock).send().await.expect(201);
    };
    let mut feed = Feed::open(client.get("/events")).await;
    assert_eq!(feed.at, "g0-0");
    for n in 1..=3 {
        write(n).await;
        assert_eq!(feed.next().await.unwrap().version, n);
    }
    drop(feed);
    write(4).await;
    let call = client.get("/events").query("after", "g0-1").header("last-event-id", "g0-3");
    let mut feed = Feed::open(call).await;
    assert_eq!(feed.at, "g0-3");
    assert_eq!(feed.next().await.unwrap().version, 4);
    write(5).await;
    assert_eq!(feed.next().await.unwrap().event, "g0-5");
    let mut all = Feed::open(client.get("/events").query("limit", "2")).await;
    for n in 1..=5 {
        assert_eq!(all.next().await.unwrap().version, n, "a stream has no end");
    }
}

async fn only_new_events_are_seen_from_now_on(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "old", "x").under(&lock).send().await.expect(201);
    let now = list(&client, &[("after", "now")]).await;
    assert_eq!((now.items.len(), now.next_cursor.as_str()), (0, "g0-1"));
    let mut feed = Feed::open(client.get("/events").query("after", "now")).await;
    assert_eq!(feed.at, "g0-1");
    client.put("job:1", "new", "x").under(&lock).send().await.expect(201);
    assert_eq!(feed.next().await.unwrap().key.as_deref(), Some("new"));
    let after = list(&client, &[("after", &now.next_cursor)]).await;
    assert_eq!(after.items.len(), 1);
}

async fn bad_places_are_refused(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let place = |place: &str| client.get("/events").query("after", place);
    // Of another generation, or from a ledger that was ahead.
    for void in ["g1-0", "g9-17", "g0-1", "g0-9223372036854775807"] {
        let problem = place(void).send().await.refused(410, "events-cursor-void").problem();
        assert_eq!(problem.begin_after.as_deref(), Some("g0-0"), "{void}");
        let stream = place("g0-0").header("accept", "text/event-stream");
        let stream = stream.header("last-event-id", void).send().await;
        stream.refused(410, "events-cursor-void");
    }
    for bad in ["", "17", "g0", "g0--1", "g-1-0", "g0-01", "g0-9223372036854775808", "latest"] {
        place(bad).send().await.refused(400, "query-malformed");
    }
    let id = |value: &str| client.get("/events").header("last-event-id", value);
    id("17").send().await.refused(400, "request-malformed");
    id("g0-0").header("last-event-id", "g0-0").send().await.refused(400, "request-malformed");
}

async fn a_gateway_that_shuts_down_ends_its_feeds(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "5s");
    let mut gateway = settings.start().await;
    let client = gateway.client();
    let mut feed = Feed::open(client.get("/events")).await;
    let poll = list(&client, &[("wait", "50s")]);
    let stop = async {
        pause(500).await;
        gateway.term();
        assert!(feed.next().await.is_none());
    };
    let (found, ()) = tokio::join!(poll, stop);
    assert!(found.items.is_empty());
    let late = client.get("/events").header("accept", "text/event-stream").send().await;
    late.refused(503, "shutting-down");
    assert_eq!(gateway.wait_for_exit().await.code(), Some(0), "{}", gateway.log());
    assert!(!gateway.log().contains("stopped with work in flight"), "{}", gateway.log());
}

async fn events_survive_a_crash(setup: SetUp) {
    let mut gateway: Gateway = setup.start().await;
    let lock: Lock = gateway.client().acquire("job:1", "10m").await;
    gateway.client().put("job:1", "k", "1").under(&lock).send().await.expect(201);
    assert_eq!(list(&gateway.client(), &[]).await.next_cursor, "g0-1");
    gateway.client().put("job:1", "k", "2").under(&lock).send().await.expect(200);
    gateway.kill9();
    gateway.restart().await;
    let client = gateway.client();
    client.put("job:1", "k", "3").under(&lock).send().await.expect(200);
    let rest = list(&client, &[("after", "g0-1")]).await;
    assert_eq!(rest.items.iter().map(|event| event.version).collect::<Vec<_>>(), [2, 3]);
}

async fn a_quiet_feed_shows_that_it_is_alive(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.lock(&json!({ "resource": "job:1", "ttl": "10m" })).send().await;
    let lock: Lock = lock.expect(201).parse();
    let mut feed = Feed::open(client.get("/events")).await;
    feed.comment().await;
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    assert_eq!(feed.next().await.unwrap().version, 1);
}
