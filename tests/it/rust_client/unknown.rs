//! Writes whose outcome nobody tells: they are named so, found out, given up, and never land late.

use std::time::Duration;

use fencegate_client::{Body, Client, Error, LossReason, OutcomeUnknown, Settled};
use futures::StreamExt as _;

use super::proxy::{Act, Proxy};
use super::{Dev, builder, client, loss, soon, take_over, text};

const BRIEFLY: Duration = Duration::from_millis(700);

async fn behind_proxy() -> (Dev, Proxy, Client) {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&proxy.url());
    (gateway, proxy, client)
}

#[track_caller]
fn unknown<T: std::fmt::Debug>(result: Result<T, Error>) -> Box<OutcomeUnknown> {
    match result {
        Err(Error::OutcomeUnknown(unknown)) => unknown,
        other => panic!("it is known: {other:?}"),
    }
}

#[track_caller]
fn applied(settled: Settled) -> Option<i64> {
    match settled {
        Settled::Applied { version, .. } => version,
        other => panic!("not applied: {other:?}"),
    }
}

#[tokio::test]
async fn a_write_that_nobody_answers_is_unknown_until_it_is_resolved() {
    let (gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    proxy.all("PUT", Act::LoseAnswer);
    proxy.all("GET", Act::LoseRequest);
    let unknown = unknown(lock.put("k", "x").within(BRIEFLY).await);
    assert_eq!(unknown.resource().as_str(), "r");
    let sent = proxy.seen("PUT", "");
    assert_eq!(unknown.key(), sent[0].header("idempotency-key"));
    assert!(sent.len() > 1);
    proxy.clear();
    let settled = unknown.resolve(Duration::from_secs(20)).await.unwrap();
    assert_eq!(applied(settled), Some(1));
    assert_eq!(text(&gateway.http(), "r", "k").await, "x");
    assert_eq!(client.resource("r").await.unwrap().version, 1);
    lock.put("k", "next").await.unwrap();
}

#[tokio::test]
async fn a_write_that_took_effect_is_looked_up_before_it_is_called_unknown() {
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock(["r", "s"]).acquire().await.unwrap();
    proxy.all("PUT", Act::LoseAnswer);
    proxy.rule("POST", "/commit", usize::MAX, Act::LoseAnswer);
    proxy.all("DELETE", Act::Interfere);
    let on = lock.on("r");
    let put = on.put("k", "x").within(BRIEFLY).await.unwrap();
    assert_eq!((put.version, put.replayed, put.size), (1, true, Some(1)));
    let commit = lock.commit().put("r", "k", "y").put("s", "k", "y").within(BRIEFLY);
    let commit = commit.send().await.unwrap();
    assert_eq!((commit.resources.len(), commit.replayed), (2, true));
    let deleted = on.delete("k").within(BRIEFLY).await.unwrap();
    assert_eq!((deleted.version, deleted.replayed), (Some(3), true));
}

#[tokio::test]
async fn a_write_that_never_arrived_is_sent_again_by_resolve() {
    let (gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    proxy.all("PUT", Act::LoseRequest);
    // An empty list decides nothing: it may be on its way.
    let unknown = unknown(lock.put("k", "x").within(BRIEFLY).await);
    let again = unknown.resolve(BRIEFLY).await;
    assert!(matches!(again, Err(Error::OutcomeUnknown(_))), "{again:?}");
    proxy.clear();
    let settled = unknown.resolve(Duration::from_secs(20)).await.unwrap();
    assert_eq!(applied(settled), Some(1));
    assert_eq!(text(&gateway.http(), "r", "k").await, "x");
    let sent = proxy.seen("PUT", "");
    let same = |name: &str| {
        sent.iter()
            .all(|one| one.header(name) == sent[0].header(name) && one.header(name).is_some())
    };
    assert!(same("idempotency-key") && same("x-fence-seq"));
}

#[tokio::test]
async fn a_write_that_is_given_up_never_lands() {
    let (gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    lock.put("k", "before").await.unwrap();
    proxy.all("PUT", Act::Keep);
    let unknown = unknown(lock.put("k", "x").within(BRIEFLY).await);
    match unknown.abandon(Duration::from_secs(20)).await.unwrap() {
        Settled::NotApplied(_) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(loss(lock.put("k", "more").await), LossReason::Released);
    let late = proxy.deliver().await;
    assert!(!late.is_empty() && late.iter().all(|answer| answer.contains("fence-token-released")));
    assert_eq!(text(&gateway.http(), "r", "k").await, "before");
}

#[tokio::test]
async fn a_write_that_is_given_up_may_have_landed() {
    let (_gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    proxy.all("PUT", Act::LoseAnswer);
    proxy.all("GET", Act::LoseRequest);
    let unknown = unknown(lock.put("k", "x").within(BRIEFLY).await);
    proxy.clear();
    let settled = unknown.abandon(Duration::from_secs(20)).await.unwrap();
    assert_eq!(applied(settled), Some(1));
    super::until_state(&_gateway.http(), "r", "released").await;
}

#[tokio::test]
async fn a_late_copy_of_an_old_write_does_not_land_on_a_newer_one() {
    let (gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    proxy.all("PUT", Act::Keep);
    let unknown = unknown(lock.put("k", "old").within(BRIEFLY).await);
    proxy.clear();
    lock.put("k", "new").await.unwrap();
    let late = proxy.deliver().await;
    assert!(late.iter().all(|answer| answer.contains("sequence-out-of-order")), "{late:?}");
    // Nor does resolve put it over what was written since.
    match unknown.resolve(Duration::from_secs(20)).await.unwrap() {
        Settled::NotApplied(Error::Changed(_)) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(text(&gateway.http(), "r", "k").await, "new");
    lock.put("k", "newer").await.unwrap();
}

#[tokio::test]
async fn a_late_copy_of_a_write_does_not_land_after_a_takeover() {
    let (gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    proxy.next("PUT", Act::Keep);
    proxy.all("PUT", Act::LoseRequest);
    let unknown = unknown(lock.put("k", "late").within(BRIEFLY).await);
    let rival = take_over(&gateway.http(), "r").await;
    gateway.http().put("r", "k", "the rival's").under(&rival).send().await.expect(201);
    let late = proxy.deliver().await;
    assert!(late[0].contains("fence-token-stale"), "{late:?}");
    proxy.clear();
    match unknown.resolve(Duration::from_secs(20)).await.unwrap() {
        Settled::NotApplied(Error::LockLost(lost)) => {
            assert_eq!(lost.reason, LossReason::Superseded);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(text(&gateway.http(), "r", "k").await, "the rival's");
}

#[tokio::test]
async fn a_refusal_that_says_nothing_of_the_first_copy_ends_nothing() {
    let (gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    // The first copy is stuck, and then an operator freezes the resource: that refusal is about the second.
    proxy.next("PUT", Act::Keep);
    let put = lock.put("k", "x").within(Duration::from_secs(2)).into_future();
    client.freeze("r", "a test").await.unwrap();
    let unknown = unknown(put.await);
    client.unfreeze("r", "a test").await.unwrap();
    let late = proxy.deliver().await;
    assert!(late[0].starts_with("HTTP/1.1 201"), "the first copy lands: {late:?}");
    let settled = unknown.resolve(Duration::from_secs(20)).await.unwrap();
    assert_eq!(applied(settled), Some(1));
    assert_eq!(text(&gateway.http(), "r", "k").await, "x");
}

#[tokio::test]
async fn nothing_is_sent_again_once_the_gateway_may_have_forgotten_its_key() {
    let gateway = Dev::with(&[("FENCEGATE_KEYS_KEPT", "1m")]).await;
    let proxy = Proxy::start(gateway.address()).await;
    // The gateway says that it keeps keys for four seconds.
    let edit = Act::Edit("\"keys_kept_ms\":60000".into(), "\"keys_kept_ms\":4000 ".into());
    proxy.rule("GET", "/status", usize::MAX, edit);
    let client = builder(&proxy.url()).answer_timeout(Duration::from_millis(300)).build().unwrap();
    let lock = client.lock("r").acquire().await.unwrap();
    // A first answer that does not come in time has the client ask the gateway how it is.
    proxy.next("PUT", Act::Silence);
    proxy.all("PUT", Act::LoseRequest);
    // It does not go on for as long as it may.
    let put = lock.put("k", "x").within(Duration::from_secs(3_600)).into_future();
    let unknown = unknown(soon(put).await);
    assert!(proxy.count("GET", "/status") > 0);
    let sent = proxy.count("PUT", "");
    proxy.clear();
    let again = unknown.resolve(Duration::from_secs(1)).await;
    assert!(matches!(again, Err(Error::OutcomeUnknown(_))), "{again:?}");
    assert_eq!(proxy.count("PUT", ""), sent, "nothing was sent again");
    // What was given up is over for good.
    let settled = unknown.abandon(Duration::from_secs(20)).await.unwrap();
    assert!(matches!(settled, Settled::NotApplied(_)), "{settled:?}");
}

#[tokio::test]
async fn a_stream_that_can_be_read_once_is_sent_once() {
    let (gateway, proxy, client) = behind_proxy().await;
    let lock = client.lock("r").acquire().await.unwrap();
    let body = || {
        let pieces = ["one ", "two"].map(|piece| Ok(bytes::Bytes::from(piece)));
        Body::once(None, futures::stream::iter(pieces).boxed())
    };
    lock.put("a", body()).await.unwrap();
    assert_eq!(text(&gateway.http(), "r", "a").await, "one two");
    // It took effect, and that can be looked up.
    proxy.next("PUT", Act::LoseAnswer);
    let looked_up = lock.put("b", body()).await.unwrap();
    assert_eq!((looked_up.replayed, looked_up.receipt.attempts), (true, 1));
    proxy.next("PUT", Act::LoseRequest);
    unknown(lock.put("c", body()).await);
    assert_eq!(proxy.count("PUT", ""), 3);
}
