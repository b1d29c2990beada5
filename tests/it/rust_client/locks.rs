//! Locks in hand: how they end, and what is written under them then.

use std::time::Duration;

use fence_tests::process::eventually;
use fencegate_client::{BusyKind, Error, Event, Handoff, LockState, LossReason};
use serde_json::json;

use super::proxy::{Act, Proxy};
use super::{Dev, Told, builder, client, loss, soon, take_over, text};

#[tokio::test]
async fn a_takeover_while_writing_ends_the_guard_and_everything_written_by_it() {
    let gateway = Dev::start().await;
    let (proxy, told) = (Proxy::start(gateway.address()).await, Told::default());
    let client = builder(&proxy.url()).on_event(told.hook()).build().unwrap();
    let lock = client.lock("r").acquire().await.unwrap();
    let cancelled = lock.cancellation();
    lock.put("k", "mine").await.unwrap();
    let rival = take_over(&gateway.http(), "r").await;
    gateway.http().put("r", "k", "the rival's").under(&rival).send().await.expect(200);

    let late = lock.put("k", "late").await;
    let code = late.as_ref().unwrap_err().code().map(str::to_owned);
    assert_eq!(loss(late), LossReason::Superseded);
    assert_eq!(code.as_deref(), Some("fence-token-stale"));
    assert_eq!(soon(lock.lost()).await.reason, LossReason::Superseded);
    assert!(cancelled.is_cancelled());
    assert_eq!(lock.state(), LockState::Lost(LossReason::Superseded));
    let was_told =
        |event: &Event| matches!(event, Event::StaleWrite { reason: LossReason::Superseded, .. });
    assert_eq!(told.count(was_told), 1);

    // From now on nothing is sent.
    let sent = proxy.count("", "");
    assert_eq!(loss(lock.put("k", "later").await), LossReason::Superseded);
    assert_eq!(loss(lock.delete("k").await), LossReason::Superseded);
    assert_eq!(loss(lock.delete_all().await), LossReason::Superseded);
    assert_eq!(loss(lock.commit().put("r", "k", "x").await), LossReason::Superseded);
    assert_eq!(loss(lock.renew().await), LossReason::Superseded);
    assert_eq!(loss(lock.check()), LossReason::Superseded);
    lock.release().await;
    assert_eq!(proxy.count("", ""), sent);
    assert_eq!(text(&gateway.http(), "r", "k").await, "the rival's");
    assert_eq!(told.count(|event| matches!(event, Event::Ended { .. })), 1);
}

#[tokio::test]
async fn the_body_under_a_lock_is_dropped_when_the_next_renewal_hears_of_a_rival() {
    let gateway = Dev::start().await;
    let (dropped, http) = (tokio_util::sync::CancellationToken::new(), gateway.http());
    let guard = dropped.clone().drop_guard();
    let lock = gateway.client().lock("r").ttl(Duration::from_secs(3));
    let run = lock.run(async |lock| {
        let _guard = guard;
        lock.put("k", "mine").await?;
        take_over(&http, "r").await;
        std::future::pending::<Result<(), Error>>().await
    });
    // How its lock ended, by the renewal: it was broken for the rival.
    assert_eq!(loss(soon(run).await), LossReason::Broken);
    assert!(dropped.is_cancelled());
}

#[tokio::test]
async fn a_break_to_come_is_announced_and_comes() {
    let (gateway, told) = (Dev::start().await, Told::default());
    let client = builder(gateway.url()).on_event(told.hook()).build().unwrap();
    let lock = client.lock("r").acquire().await.unwrap();
    assert_eq!(lock.breaks_in(), None);
    let soon_broken = client.break_lock("r", "it is time").after(Duration::from_secs(3));
    soon_broken.await.unwrap();
    let refused = lock.renew().await.unwrap_err();
    assert_eq!(refused.code(), Some("lock-breaking"));
    told.until("a warning", 1, |event| matches!(event, Event::Breaking { .. })).await;

    let left = lock.breaks_in().expect("it is known");
    assert!(left <= Duration::from_secs(3), "{left:?}");
    assert_eq!((lock.state(), lock.cancellation().is_cancelled()), (LockState::Held, false));
    lock.put("k", "in time").await.unwrap();
    assert_eq!(soon(lock.lost()).await.reason, LossReason::Broken);
    assert_eq!(loss(lock.put("k", "late").await), LossReason::Broken);
    assert_eq!(text(&gateway.http(), "r", "k").await, "in time");
}

#[tokio::test]
async fn a_frozen_resource_is_waited_for_only_if_asked_for() {
    let gateway = Dev::start().await;
    let (proxy, told) = (Proxy::start(gateway.address()).await, Told::default());
    let client = builder(&proxy.url()).on_event(told.hook()).build().unwrap();
    let lock = client.lock("r").acquire().await.unwrap();
    client.freeze("r", "closing the books").await.unwrap();
    match lock.put("k", "x").await {
        Err(Error::Busy(busy)) => {
            assert_eq!(busy.kind, BusyKind::Frozen);
            assert_eq!(busy.details.reason.as_deref(), Some("closing the books"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(proxy.count("PUT", ""), 1, "asked once");
    let put = async { lock.put("k", "ridden out").ride_out().await };
    let thaw = async {
        told.until("it is tried again", 1, |event| {
            matches!(event, Event::Retry { call: "put", .. })
        })
        .await;
        client.unfreeze("r", "closed").await.unwrap();
    };
    let (put, ()) = tokio::join!(put, thaw);
    assert!(put.unwrap().receipt.attempts > 1);
    assert_eq!(lock.state(), LockState::Held);
}

#[tokio::test]
async fn an_infinite_lock_is_confirmed_before_it_is_given_out() {
    let gateway = Dev::start().await;
    let lock = gateway.client().lock("r").infinite().acquire().await.unwrap();
    assert_eq!((lock.remaining(), lock.state()), (None, LockState::Held));
    let path = format!("/locks/{}", lock.id());
    let known = gateway.http().get(&path).send().await.expect(200).json();
    assert_eq!((&known["ttl_ms"], known.get("confirm_within_ms")), (&json!(null), None));
    lock.put("k", "x").await.unwrap();
    assert!(lock.release().await);
}

#[tokio::test]
async fn an_infinite_lock_that_cannot_be_confirmed_is_not_given_out() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    proxy.rule("POST", "/renew", usize::MAX, Act::LoseRequest);
    let client = builder(&proxy.url()).call_timeout(Duration::from_secs(1)).build().unwrap();
    let refused = client.lock("r").infinite().acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
    // What was granted meanwhile is given back.
    let http = gateway.http();
    super::until_state(&http, "r", "released").await;
}

#[tokio::test]
async fn a_lock_is_held_no_longer_than_it_may_be() {
    let gateway = Dev::start().await;
    let second = Duration::from_secs(1);
    let lock = gateway.client().lock("r").ttl(second).max_hold(2 * second);
    let lock = lock.acquire().await.unwrap();
    lock.put("k", "x").await.unwrap();
    let why = soon(lock.lost()).await.reason;
    // The gateway says it, or the deadline that it gave is over before.
    assert!([LossReason::HoldExceeded, LossReason::Unconfirmed].contains(&why), "{why:?}");
    assert_eq!(loss(lock.put("k", "late").await), why);
}

#[tokio::test]
async fn a_lock_is_handed_over_as_text() {
    let (gateway, told) = (Dev::start().await, Told::default());
    let first = builder(gateway.url()).on_event(told.hook()).build().unwrap();
    let old = first.lock(["a", "b"]).acquire().await.unwrap();
    old.on("a").put("k", "one").await.unwrap();
    let message = old.transfer("second").await.unwrap().to_text();
    assert!(message.starts_with("fence1:") && !message.contains('\n'), "{message}");
    // Whoever hands a lock over knows that it is gone.
    assert!(!old.cancellation().is_cancelled());
    assert_eq!(loss(old.on("a").put("k", "late").await), LossReason::Transferred);

    let handoff = Handoff::from_text(&format!("  {message}\n")).unwrap();
    assert!(!format!("{handoff:?}").contains(&handoff.id.to_string()));
    let second = client(gateway.url());
    let new = second.adopt(&handoff).acquire().await.unwrap();
    assert!(new.token() > old.token());
    assert_eq!((new.owner(), new.resources().len()), ("second", 2));
    new.on("a").put("k", "two").await.unwrap();
    new.commit().put("a", "k", "three").put("b", "k", "three").await.unwrap();
    assert_eq!(text(&gateway.http(), "a", "k").await, "three");
    assert!(new.release().await);
    // It is over: nobody can take it up once more.
    assert_eq!(loss(second.adopt(&handoff).acquire().await), LossReason::ReleasedElsewhere);
}

#[tokio::test]
async fn a_transfer_while_a_renewal_is_due_gives_no_signal() {
    let gateway = Dev::start().await;
    let (proxy, told) = (Proxy::start(gateway.address()).await, Told::default());
    let client = builder(&proxy.url()).on_event(told.hook()).build().unwrap();
    // Renewed after a second; the transfer takes longer than that, and is in force all the while.
    let lock = client.lock("r").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    let signal = lock.cancellation();
    proxy.rule("POST", "/transfer", 1, Act::LateAnswer(Duration::from_millis(1500)));
    let handoff = lock.transfer("second").await.unwrap();
    assert_eq!(lock.state(), LockState::Lost(LossReason::Transferred));
    assert!(!signal.is_cancelled());
    let ended = |event: &Event| matches!(event, Event::Ended { .. });
    let handed =
        |event: &Event| matches!(event, Event::Ended { reason: LossReason::Transferred, .. });
    assert_eq!((told.count(ended), told.count(handed)), (1, 1));
    client.adopt(&handoff).acquire().await.unwrap().put("k", "x").await.unwrap();
}

#[tokio::test]
async fn a_transfer_whose_answer_is_lost_is_the_same_transfer() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&proxy.url());
    let lock = client.lock("r").acquire().await.unwrap();
    proxy.rule("POST", "/transfer", 1, Act::LoseAnswer);
    let handoff = lock.transfer("second").await.unwrap();
    let sent = proxy.seen("POST", "/transfer");
    assert_eq!((sent.len(), sent[0].json()), (2, sent[1].json()));
    let lock = client.adopt(&handoff).acquire().await.unwrap();
    lock.put("k", "x").await.unwrap();
}

#[tokio::test]
async fn a_task_that_asks_for_its_own_lock_is_told_at_once() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&proxy.url());
    tokio::spawn(async move {
        let lock = client.lock(["a", "b"]).acquire().await.unwrap();
        let sent = proxy.count("", "");
        let again = client.lock(["b", "c"]).acquire().await.unwrap_err();
        assert!(matches!(again, Error::Misuse(_)) && again.to_string().contains("deadlock"));
        assert_eq!(proxy.count("", ""), sent, "nothing was sent");
        // Another task may stand in line for it.
        let other = client.clone();
        let other = tokio::spawn(async move { other.lock("b").try_acquire().await });
        assert!(other.await.unwrap().unwrap().is_none());
        lock.release().await;
        drop(client.lock(["b", "c"]).acquire().await.unwrap());
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_lock_that_is_held_is_refused_with_its_holder() {
    let gateway = Dev::start().await;
    let holder = builder(gateway.url()).owner("the holder").build().unwrap();
    let _lock = holder.lock("b").acquire().await.unwrap();
    let client = gateway.client();
    match client.lock(["a", "b"]).acquire().await {
        Err(Error::Busy(busy)) => {
            assert_eq!(busy.kind, BusyKind::LockHeld);
            assert_eq!(busy.holder.as_deref(), Some("the holder"));
            assert!(busy.holder_age.is_some());
        }
        other => panic!("{other:?}"),
    }
    // All or none: the other one is free.
    assert!(client.lock(["a", "b"]).try_acquire().await.unwrap().is_none());
    assert!(client.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_guard_that_is_dropped_gives_its_lock_back() {
    let gateway = Dev::start().await;
    let (client, http) = (gateway.client(), gateway.http());
    drop(client.lock("r").infinite().acquire().await.unwrap());
    super::until_state(&http, "r", "released").await;
    // So does one whose task is aborted in the middle of its work.
    let working = client.clone();
    let work = tokio::spawn(async move {
        working.lock("s").run(async |_lock| std::future::pending::<Result<(), Error>>().await).await
    });
    eventually("it works", async || {
        let seen = http.get("/resources/s").send().await;
        (seen.json()["state"] == "leased").then_some(())
    })
    .await;
    work.abort();
    super::until_state(&http, "s", "released").await;
}
