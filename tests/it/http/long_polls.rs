//! `GET /locks/{id}?wait=&since=`: the answer comes when the lock's word is another.
#![expect(clippy::disallowed_methods, reason = "a test measures and sleeps on the real clock")]

use std::time::{Duration, Instant};

use fence_core::wire::Lock;
use fence_tests::client::{Call, Client};
use serde_json::json;
use tokio::time::timeout;

use crate::setup::{SetUp, on_both, take_over};

on_both!(
    a_long_poll_answers_when_the_word_changes,
    a_long_poll_answers_at_once_when_the_word_differs,
    a_long_poll_ends_with_its_wait,
    a_renewal_is_no_change_of_the_word,
    a_gateway_that_shuts_down_answers_its_long_polls,
);

fn poll(client: &Client, lock: &Lock, wait: &str, since: Option<&str>) -> Call {
    let call = client.lock_of(lock).query("wait", wait);
    match since {
        Some(word) => call.query("since", word),
        None => call,
    }
}

/// What the lock is called: how it ended, or else its state.
fn word(lock: &Lock) -> String {
    let word = lock.ended.as_ref().map_or(lock.state.as_str(), |how| how.as_str());
    word.to_owned()
}

/// The longest wait there is. An answer that comes sooner was caused by what has happened.
const WAIT: Duration = Duration::from_secs(50);

/// The answer to a poll, which must come before its wait is over.
async fn told(call: Call) -> String {
    let answer = timeout(WAIT, call.send()).await.expect("an answer before the wait is over");
    word(&answer.expect(200).parse())
}

async fn a_long_poll_answers_when_the_word_changes(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let pause = || tokio::time::sleep(Duration::from_millis(300));

    let lock = client.acquire("expires", "1s").await;
    assert_eq!(told(poll(&client, &lock, "50s", Some("leased"))).await, "expired");
    let waiting = told(poll(&client, &lock, "50s", None));
    let taken = async {
        pause().await;
        take_over(&client, "expires").await
    };
    let (now, _) = tokio::join!(waiting, taken);
    assert_eq!(now, "superseded");

    let lock = client.acquire("breaks", "10m").await;
    let soon = json!({ "after": "2s", "reason": "x" });
    let breaking = async {
        pause().await;
        client.break_lock("breaks", &soon).send().await.expect(200);
    };
    let (now, ()) = tokio::join!(told(poll(&client, &lock, "50s", Some("leased"))), breaking);
    assert_eq!(now, "breaking");
    assert_eq!(told(poll(&client, &lock, "50s", Some("breaking"))).await, "broken");

    let lock = client.acquire("released", "10m").await;
    let release = async {
        pause().await;
        client.release(&lock).send().await.expect(204);
    };
    let waits = (0..5).map(|_| told(poll(&client, &lock, "50s", Some("leased"))));
    let (all, ()) = tokio::join!(futures::future::join_all(waits), release);
    assert!(all.iter().all(|now| now == "released"), "{all:?}");
}

async fn a_long_poll_answers_at_once_when_the_word_differs(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    for since in ["expired", "breaking", "draining", "superseded", "released", "broken", "void"] {
        assert_eq!(told(poll(&client, &lock, "50s", Some(since))).await, "leased", "{since}");
    }
    client.release(&lock).send().await.expect(204);
    assert_eq!(told(poll(&client, &lock, "50s", Some("leased"))).await, "released");
    // Without a wait the word makes no difference.
    let answer: Lock =
        client.lock_of(&lock).query("since", "released").send().await.expect(200).parse();
    assert_eq!(word(&answer), "released");
}

async fn a_long_poll_ends_with_its_wait(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    for since in [None, Some("leased")] {
        let began = Instant::now();
        let answer = poll(&client, &lock, "700ms", since).send().await.expect(200);
        assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
        let now: Lock = answer.parse();
        // As it stands then, not as it stood when the wait began.
        assert!(now.expires_in_ms <= lock.expires_in_ms.map(|ms| ms - 700), "{now:?}");
    }
    assert_eq!(told(poll(&client, &lock, "0s", Some("leased"))).await, "leased");
}

async fn a_renewal_is_no_change_of_the_word(setup: SetUp) {
    const TTL: Duration = Duration::from_secs(3);
    let gateway = setup.start().await;
    let client = gateway.client();
    for round in 0.. {
        let began = Instant::now();
        let lock = client.acquire(&format!("job:{round}"), "3s").await;
        let renewals = async {
            let (mut before, mut longest) = (began, Duration::ZERO);
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let asked = Instant::now();
                client.renew(&lock, None).send().await.expect(200);
                longest = longest.max(before.elapsed());
                before = asked;
            }
            longest
        };
        let waiting = told(poll(&client, &lock, "4s", Some("leased")));
        let waiting = async { (waiting.await, began.elapsed()) };
        let ((now, took), longest) = tokio::join!(waiting, renewals);
        // On a machine that stood still it may have expired in between.
        if longest < TTL {
            assert!(now == "leased" && took >= Duration::from_secs(4), "{now} after {took:?}");
            return;
        }
    }
}

async fn a_gateway_that_shuts_down_answers_its_long_polls(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "0s");
    let mut gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let waits = (0..5).map(|_| told(poll(&client, &lock, "50s", Some("leased"))));
    let term = async {
        // All of them are under way by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        gateway.term();
    };
    let (all, ()) = tokio::join!(futures::future::join_all(waits), term);
    assert!(all.iter().all(|now| now == "leased"), "{all:?}");
    let status = gateway.wait_for_exit().await;
    assert_eq!(status.code(), Some(0), "{}", gateway.log());
}
