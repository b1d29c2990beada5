//! Guards that renew themselves while their gateway is killed, stopped or hardly heard.

use std::time::Duration;

use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fencegate_client::{Client, Error, Event, Lock, LockState, LossReason, OnUncertain};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::proxy::{Act, Proxy};
use super::{Dev, Told, builder, client, loss, soon, take_over, text, until_state};

fn is_renewed(event: &Event) -> bool {
    matches!(event, Event::Renewed { .. })
}

/// So many locks of this ttl.
async fn locks(client: &Client, count: usize, ttl: Duration) -> Vec<Lock> {
    let taken = (0..count).map(|n| client.lock(format!("r{n}")).ttl(ttl).acquire());
    stream::iter(taken).buffer_unordered(16).try_collect().await.unwrap()
}

#[tokio::test]
async fn a_thousand_guards_of_one_ttl_are_renewed_by_few_calls() {
    // It is renewed each third of it.
    const TTL: Duration = Duration::from_secs(12);
    const GUARDS: usize = 1_000;
    let (gateway, told) = (Dev::start().await, Told::default());
    let proxy = Proxy::start(gateway.address()).await;
    let client = builder(&proxy.url()).on_event(told.hook()).build().unwrap();
    let guards = locks(&client, GUARDS, TTL).await;
    let twice = async || {
        let (calls, renewed) = (proxy.count("POST", "/renew"), told.count(is_renewed));
        told.until("each is renewed twice", renewed + 2 * GUARDS, is_renewed).await;
        proxy.count("POST", "/renew") - calls
    };
    // At first they fall into step.
    twice().await;
    let calls = twice().await;
    assert!(calls <= 10, "{calls} calls");
    assert!(guards.iter().all(|guard| guard.state() == LockState::Held));
    client.close(Duration::ZERO).await;
    assert!(guards.iter().all(|guard| guard.state() == LockState::Lost(LossReason::Closed)));
}

#[tokio::test]
async fn guards_outlive_a_gateway_that_is_killed_and_started_again() {
    let told = Told::default();
    let mut gateway = Gateway::embedded().start().await;
    let client = builder(&gateway.url()).on_event(told.hook()).build().unwrap();
    let guards = locks(&client, 20, Duration::from_secs(20)).await;
    gateway.kill9();
    let asking = client.lock("r20").acquire();
    let asked = tokio::spawn(async move { asking.await.unwrap() });
    let in_vain = |event: &Event| matches!(event, Event::Retry { .. });
    told.until("somebody asks in vain", 1, in_vain).await;
    gateway.restart().await;
    drop(soon(asked).await.unwrap());
    for guard in &guards {
        guard.renew().await.unwrap();
        guard.put("k", "x").await.unwrap();
    }
    assert_eq!(
        told.count(|event| matches!(event, Event::Ended { .. })),
        1,
        "but the one given back"
    );
}

#[tokio::test]
async fn a_guard_whose_renewals_are_half_lost_lives_on() {
    let (gateway, told) = (Dev::start().await, Told::default());
    let proxy = Proxy::start(gateway.address()).await;
    let client = builder(&proxy.url()).on_event(told.hook()).build().unwrap();
    for act in [Act::LoseAnswer, Act::Interfere, Act::LoseRequest] {
        proxy.rule("POST", "/renew", 1, act);
        proxy.rule("POST", "/renew", 1, Act::Pass);
    }
    let lock = client.lock("r").ttl(Duration::from_secs(6)).acquire().await.unwrap();
    let failed = |event: &Event| matches!(event, Event::RenewFailed { .. });
    told.until("three renewals fail", 3, failed).await;
    told.until("and three do not", 3, is_renewed).await;
    lock.put("k", "x").await.unwrap();
}

#[tokio::test]
async fn a_gateway_that_stands_still_for_longer_than_the_ttl_ends_the_guard() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let lock = client.lock("r").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    lock.put("k", "x").await.unwrap();
    gateway.pause();
    assert_eq!(soon(lock.lost()).await.reason, LossReason::Unconfirmed);
    assert_eq!(loss(lock.put("k", "late").await), LossReason::Unconfirmed);
    gateway.resume();
    // The client gives it back meanwhile, so that copies of its writes bounce.
    until_state(&gateway.http(), "r", "released").await;
    assert_eq!(text(&gateway.http(), "r", "k").await, "x");
}

#[tokio::test]
async fn a_guard_that_holds_on_is_revived() {
    let (gateway, told) = (Dev::start().await, Told::default());
    let client = builder(gateway.url()).on_event(told.hook()).build().unwrap();
    let lock = client.lock("r").ttl(Duration::from_secs(1)).on_uncertain(OnUncertain::Hold);
    let lock = lock.acquire().await.unwrap();
    gateway.pause();
    let is = async |state| {
        let look = async || (lock.state() == state).then_some(());
        eventually(&format!("{state:?}"), look).await;
    };
    is(LockState::Uncertain).await;
    assert!(!lock.cancellation().is_cancelled());
    gateway.resume();
    is(LockState::Held).await;
    assert!(told.count(|event| matches!(event, Event::Revived { .. })) > 0);
    lock.put("k", "still mine").await.unwrap();
}

#[tokio::test]
async fn a_guard_that_holds_on_is_lost_once_somebody_else_has_the_lock() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&proxy.url());
    let lock = client.lock("r").ttl(Duration::from_secs(1)).on_uncertain(OnUncertain::Hold);
    let lock = lock.acquire().await.unwrap();
    proxy.rule("POST", "/renew", usize::MAX, Act::LoseRequest);
    until_state(&gateway.http(), "r", "expired").await;
    // Nobody took over: what it writes is good.
    lock.put("k", "late, and good").await.unwrap();
    gateway.http().acquire("r", "10m").await;
    assert_eq!(loss(lock.put("k", "too late").await), LossReason::Superseded);
    assert_eq!(text(&gateway.http(), "r", "k").await, "late, and good");
}

#[tokio::test]
async fn work_that_gives_no_sign_of_life_loses_its_lock() {
    let gateway = Dev::start().await;
    let lock = gateway.client().lock("r").stall_after(Duration::from_secs(2));
    let lock = lock.acquire().await.unwrap();
    for _ in 0..3 {
        lock.beat();
        lock.put("k", "x").await.unwrap();
    }
    assert_eq!(soon(lock.lost()).await.reason, LossReason::Stalled);
    until_state(&gateway.http(), "r", "released").await;
}

#[tokio::test]
async fn a_loss_is_heard_of_before_the_next_renewal() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let lock =
        client(&proxy.url()).lock("r").ttl(Duration::from_secs(600)).acquire().await.unwrap();
    let followed = async || (proxy.count("GET", "/events") > 0).then_some(());
    eventually("its events are followed", followed).await;
    take_over(&gateway.http(), "r").await;
    let why = soon(lock.lost()).await.reason;
    assert!([LossReason::Broken, LossReason::Superseded].contains(&why), "{why:?}");
    assert_eq!(proxy.count("POST", "/renew"), 0);
}

#[tokio::test]
async fn a_lock_that_is_renewed_for_longer_is_known_to_last_so_long() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let lock = client(&proxy.url()).lock("r").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    lock.renew_for(Duration::from_secs(3_600)).await.unwrap();
    assert!(lock.remaining() > Some(Duration::from_secs(3_000)), "{:?}", lock.remaining());
    // Of a shorter ttl nobody knows whether it is in force: it counts from the asking on.
    proxy.rule("POST", "/renew", 2, Act::LoseAnswer);
    lock.renew_for(Duration::from_secs(60)).await.unwrap();
    assert_eq!(proxy.count("POST", "/renew"), 4);
    assert!(lock.remaining() < Some(Duration::from_secs(61)), "{:?}", lock.remaining());
    assert!(matches!(lock.renew_for(Duration::ZERO).await, Err(Error::Misuse(_))));
}
