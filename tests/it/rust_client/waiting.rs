//! Standing in line with the client: places, restarts, several gateways, and giving up.

use std::time::Duration;

use fence_tests::process::eventually;
use fencegate_client::{BusyKind, Client, Error, Event, Lock, Wait};
use serde_json::json;
use tokio::task::JoinHandle;

use super::proxy::{Act, Proxy};
use super::{Dev, Told, builder, client, soon, until_in_line};
use crate::setup::SetUp;

const LONG: Wait = Wait::UpTo(Duration::from_secs(50));

/// Stands in line, in a task of its own.
fn wait(client: &Client, resource: &str, wait: Wait) -> JoinHandle<Result<Lock, Error>> {
    tokio::spawn(client.lock(resource).wait(wait).acquire())
}

#[tokio::test]
async fn a_waiter_at_another_gateway_gets_the_lock_in_its_turn() {
    let settings = SetUp::Clustered.settings().await;
    let (one, other) = tokio::join!(settings.clone().start(), settings.start());
    let (first, second) = (client(&one.url()), client(&other.url()));
    let lock = first.lock("r").acquire().await.unwrap();
    lock.put("k", "first").await.unwrap();
    let waiting = wait(&second, "r", LONG);
    until_in_line(&one.client(), "r", 1).await;
    let third = wait(&first, "r", LONG);
    until_in_line(&one.client(), "r", 2).await;
    assert!(lock.release().await);
    let next = soon(waiting).await.unwrap().unwrap();
    assert!(next.token() > lock.token() && !third.is_finished());
    next.put("k", "second").await.unwrap();
    next.release().await;
    assert!(soon(third).await.unwrap().unwrap().token() > next.token());
}

#[tokio::test]
async fn a_waiter_goes_on_at_the_next_gateway_when_its_own_is_killed() {
    let settings = SetUp::Clustered.settings().await;
    let (mut one, other) = tokio::join!(settings.clone().start(), settings.start());
    let lock = client(&other.url()).lock("r").acquire().await.unwrap();
    let both = builder(&one.url()).url(other.url()).build().unwrap();
    let waiting = wait(&both, "r", LONG);
    until_in_line(&other.client(), "r", 1).await;
    one.kill9();
    lock.put("k", "still mine").await.unwrap();
    lock.release().await;
    let next = soon(waiting).await.unwrap().unwrap();
    next.put("k", "and now the other's").await.unwrap();
}

#[tokio::test]
async fn a_place_in_line_outlives_a_restart_of_the_gateway() {
    // With Postgres: an embedded gateway forgets the order of its line.
    let mut gateway = SetUp::Clustered.start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let http = gateway.client();
    let held = http.acquire("r", "10m").await;
    let client = client(&proxy.url());
    let first = wait(&client, "r", LONG);
    until_in_line(&http, "r", 1).await;
    let second = wait(&client, "r", LONG);
    until_in_line(&http, "r", 2).await;
    gateway.kill9();
    let asked = proxy.count("POST", "/locks");
    let in_vain = async || (proxy.count("POST", "/locks") >= asked + 2).then_some(());
    eventually("they ask in vain", in_vain).await;
    gateway.restart().await;
    // Whoever is away when the lock becomes free is passed over: both have asked again.
    let both = async || (proxy.under_way() == 2).then_some(());
    eventually("both ask again", both).await;
    http.release(&held).send().await.expect(204);
    let lock = soon(first).await.unwrap().unwrap();
    assert!(!second.is_finished(), "the first comes first");
    lock.release().await;
    drop(soon(second).await.unwrap().unwrap());
}

#[tokio::test]
async fn whoever_gives_up_leaves_nothing_behind() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let http = gateway.http();
    http.acquire("r", "10m").await;
    let client = client(&proxy.url());
    let given_up = client.lock("r").wait(Wait::UpTo(Duration::from_millis(400))).acquire().await;
    match given_up {
        Err(Error::Busy(busy)) => {
            assert_eq!((busy.kind, busy.position), (BusyKind::WaitElapsed, Some(1)));
        }
        other => panic!("{other:?}"),
    }
    // The id was buried before the caller was told.
    let asked = proxy.seen("POST", "/locks");
    let id = asked[0].json()["id"].as_str().unwrap().to_owned();
    assert!(asked.iter().all(|asked| asked.json()["id"] == id.as_str()));
    assert_eq!(proxy.count("DELETE", &id), 1);
    until_in_line(&http, "r", 0).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_buries_its_id() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let http = gateway.http();
    let held = http.acquire("r", "10m").await;
    let client = client(&proxy.url());
    let waiting = wait(&client, "r", Wait::Forever);
    until_in_line(&http, "r", 1).await;
    waiting.abort();
    let id = proxy.seen("POST", "/locks")[0].json()["id"].as_str().unwrap().to_owned();
    let buried = async || (proxy.count("DELETE", &id) == 1).then_some(());
    eventually("the id is buried", buried).await;
    until_in_line(&http, "r", 0).await;
    http.release(&held).send().await.expect(204);
    // Nothing is granted under it any more.
    let again = json!({ "resource": "r", "owner": "late", "id": id });
    http.lock(&again).send().await.refused(409, "lock-released");
    http.acquire("r", "1m").await;
}

#[tokio::test]
async fn a_grant_whose_answer_is_lost_is_one_grant() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&proxy.url());
    for (resource, act) in [
        ("a", Act::LoseAnswer),
        ("b", Act::Interfere),
        ("c", Act::CutAnswer(300)),
        ("d", Act::Twice),
    ] {
        proxy.next("POST", act);
        let lock = client.lock(resource).acquire().await.unwrap();
        lock.put("k", "x").await.unwrap();
        let grants = client.audit().resource(resource).all().await.unwrap();
        assert_eq!(grants.iter().filter(|entry| entry.action == "grant").count(), 1, "{grants:?}");
    }
}

#[tokio::test]
async fn a_lost_grant_that_ended_meanwhile_is_asked_for_anew() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let http = gateway.http();
    proxy.next("POST", Act::LoseAnswer);
    proxy.next("POST", Act::Late(Duration::from_secs(1)));
    let acquiring = tokio::spawn(client(&proxy.url()).lock("r").wait(LONG).acquire());
    super::until_state(&http, "r", "leased").await;
    http.break_lock("r", &json!({ "reason": "a test" })).send().await.expect(200);
    let lock = soon(acquiring).await.unwrap().unwrap();
    lock.put("k", "x").await.unwrap();
    let ids: Vec<_> =
        proxy.seen("POST", "/locks").iter().map(|seen| seen.json()["id"].clone()).collect();
    assert_eq!((ids[0] == ids[1], ids[1] == ids[2]), (true, false), "{ids:?}");
    assert_eq!(ids[2], lock.id().to_string().as_str());
}

#[tokio::test]
async fn a_call_that_nobody_answered_gives_back_what_it_may_have_got() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    proxy.rule("POST", "/locks", usize::MAX, Act::LoseAnswer);
    let client = builder(&proxy.url()).call_timeout(Duration::from_millis(500)).build().unwrap();
    let failed = client.lock("r").infinite().acquire().await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    // It was granted, and nobody knew: but for the release, it would lie there for a minute.
    super::until_state(&gateway.http(), "r", "released").await;
}

#[tokio::test]
async fn a_client_whose_first_gateway_is_dead_uses_the_next() {
    let gateway = Dev::start().await;
    let dead = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead_url = format!("http://{}", dead.local_addr().unwrap());
    drop(dead);
    let told = Told::default();
    let urls = format!("{dead_url}, {}", gateway.url());
    let client = builder(&urls).on_event(told.hook()).build().unwrap();
    let lock = client.lock("r").acquire().await.unwrap();
    let retries = |event: &Event| matches!(event, Event::Retry { .. });
    assert_eq!(told.count(retries), 1);
    lock.put("k", "x").await.unwrap();
    assert_eq!(client.get("r", "k").await.unwrap().text().unwrap(), "x");
    assert_eq!(told.count(retries), 1, "it stays with the one that answers");
}
