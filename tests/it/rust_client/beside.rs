//! What stands beside locks: fences for locks of another kind, tokens that were lent, upstreams, and operators.

use std::time::Duration;

use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::upstream::Upstream;
use fencegate_client::wire::{AuditAction, ErrorCode, LockId};
use fencegate_client::{BusyKind, Error, LossReason, Settled, Wait};
use reqwest::Method;

use super::proxy::{Act, Proxy};
use super::{Dev, client, loss, text};
use crate::setup::random_id;

#[tokio::test]
async fn a_fence_with_an_order_bounces_whoever_comes_late() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let seventh = client.fence("r").order(7).set().await.unwrap();
    seventh.put("k", "seven").await.unwrap();
    let stale = client.fence("r").order(7).set().await;
    assert_eq!(loss(stale), LossReason::OrderStale);
    assert_eq!(loss(client.fence("r").order(3).set().await), LossReason::OrderStale);
    let eighth = client.fence("r").order(8).set().await.unwrap();
    assert!(eighth.token() > seventh.token());
    assert_eq!(loss(seventh.put("k", "late").await), LossReason::Superseded);
    assert_eq!(loss(seventh.check()), LossReason::Superseded);
    eighth.commit().put("r", "k", "eight").send().await.unwrap();
    assert_eq!(text(&gateway.http(), "r", "k").await, "eight");
}

#[tokio::test]
async fn a_fence_is_one_although_its_answer_is_lost() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&proxy.url());
    proxy.next("POST", Act::LoseAnswer);
    let fence = client.fence("r").order(7).set().await.unwrap();
    let sent = proxy.seen("POST", "/fence");
    assert_eq!((sent.len(), sent[0].json()), (2, sent[1].json()));
    proxy.next("PUT", Act::LoseAnswer);
    assert!(fence.put("k", "x").await.unwrap().replayed);
    // The same again, as after a restart under an id that was kept.
    let id = LockId(random_id());
    let one = client.fence("s").order(1).id(id).set().await.unwrap();
    let again = client.fence("s").order(1).id(id).set().await.unwrap();
    assert_eq!(one.token(), again.token());
}

#[tokio::test]
async fn a_fence_does_not_pass_a_live_lock_but_by_force() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let lock = client.lock("r").acquire().await.unwrap();
    match client.fence("r").set().await {
        Err(Error::Busy(busy)) => assert_eq!(busy.kind, BusyKind::LockHeld),
        other => panic!("{other:?}"),
    }
    let fence = client.fence("r").force().owner("operator").set().await.unwrap();
    fence.put("k", "x").await.unwrap();
    assert_eq!(loss(lock.put("k", "late").await), LossReason::Superseded);
}

#[tokio::test]
async fn a_token_that_was_lent_writes_beside_its_holder() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let lock = gateway.client().lock(["a", "b"]).unnumbered().acquire().await.unwrap();
    let [(_, token), (_, id)] = lock.headers();
    let child = client(&proxy.url());
    let lent = child.lent(["a", "b"], &token, &id).unwrap();
    lent.on("a").put("k", "the child's").await.unwrap();
    lock.on("a").put("k", "the holder's").await.unwrap();
    lent.commit().put("a", "k", "both").put("b", "k", "both").send().await.unwrap();
    assert!(proxy.seen("PUT", "")[0].header("x-fence-seq").is_none());
    drop(lent);
    lock.on("b").put("k", "still held").await.unwrap();
    let lent = child.lent("a", &token, &id).unwrap();
    lock.release().await;
    assert_eq!(loss(lent.put("k", "late").await), LossReason::ReleasedElsewhere);
    assert_eq!(proxy.count("DELETE", ""), 0, "what is lent is not given back");
}

/// A gateway in front of an upstream, and something in front of the gateway.
async fn fronted(more: &str) -> (Gateway, Upstream, Proxy) {
    let upstream = Upstream::start().await;
    let setting = upstream.setting("drained", more);
    let gateway = Gateway::embedded().flag("--upstream", &setting).start().await;
    let proxy = Proxy::start(gateway.address()).await;
    (gateway, upstream, proxy)
}

#[tokio::test]
async fn a_request_to_an_upstream_is_sent_once() {
    let (_gateway, upstream, proxy) = fronted("").await;
    let client = client(&proxy.url());
    let lock = client.lock("u:1").acquire().await.unwrap();
    let post = |query: &str| {
        lock.upstream("u", Method::POST, &format!("/r/1/orders{query}")).body("hello")
    };
    let done = post("?status=409").header("x-own", "1").await.unwrap();
    assert_eq!((done.status, &done.body[..]), (409, &b"done"[..]), "its answer, whatever it says");
    let operation = done.operation.expect("it has one");
    assert!(client.operation(operation).await.unwrap().is_some());

    // An answer that is lost on the way back to the client.
    for act in [Act::LoseAnswer, Act::Interfere, Act::CutAnswer(40), Act::LoseRequest] {
        let before = proxy.count("POST", "/upstreams");
        proxy.rule("POST", "/upstreams", 1, act.clone());
        let lost = post("").await;
        let Err(Error::OutcomeUnknown(unknown)) = lost else { panic!("{act:?}: {lost:?}") };
        assert_eq!(unknown.key(), None);
        assert_eq!(proxy.count("POST", "/upstreams") - before, 1, "{act:?}: sent once");
        let resolved = unknown.resolve(Duration::from_millis(300)).await;
        assert!(matches!(resolved, Err(Error::OutcomeUnknown(_))), "no operation was told");
        assert_eq!(proxy.count("POST", "/upstreams") - before, 1, "{act:?}: and never again");
    }
    assert_eq!(upstream.seen().len(), 4);
    assert_eq!(upstream.seen()[0].token(), Some(lock.token().get()));
    assert!(upstream.seen().iter().all(|seen| !seen.headers.contains_key("idempotency-key")));
    // One that never goes out certainly does nothing.
    let refused = lock.upstream("u", Method::POST, "/r/2/orders").await;
    assert!(refused.is_err() && upstream.seen().len() == 4, "{refused:?}");
}

#[tokio::test]
async fn what_became_of_a_request_to_an_upstream_is_found_by_its_operation() {
    let (_gateway, upstream, proxy) = fronted("").await;
    let client = client(&proxy.url());
    let lock = client.lock("u:1").acquire().await.unwrap();
    // The head of the answer comes, with the operation, and then not all of the rest.
    proxy.rule("POST", "/upstreams", 1, Act::CutAnswer(50_000));
    let cut = lock.upstream("u", Method::POST, "/r/1/orders?size=100000").body("x").await;
    let Err(Error::OutcomeUnknown(unknown)) = cut else { panic!("{cut:?}") };
    let operation = unknown.operation().expect("it was told");
    match unknown.resolve(Duration::from_secs(20)).await.unwrap() {
        Settled::Applied { operation: found, .. } => assert_eq!(found, Some(operation)),
        other => panic!("{other:?}"),
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_request_that_an_upstream_does_not_answer_is_an_operators_matter() {
    let (_gateway, upstream, proxy) = fronted(",timeout=1s,connect_timeout=1s").await;
    let client = client(&proxy.url());
    let lock = client.lock("u:1").acquire().await.unwrap();
    let hangs = lock.upstream("u", Method::POST, "/r/1/orders?hang").body("x").await;
    let Err(Error::OutcomeUnknown(unknown)) = hangs else { panic!("{hangs:?}") };
    assert_eq!(unknown.details().code.as_deref(), Some("upstream-timeout"));
    let intents = client.intents().upstream("u").all().await.unwrap();
    assert_eq!(unknown.operation(), Some(intents[0].operation));
    let still = unknown.resolve(Duration::from_millis(300)).await;
    assert!(matches!(still, Err(Error::OutcomeUnknown(_))), "{still:?}");
    // The next lock is not in force while it may have an effect.
    lock.release().await;
    match client.lock("u:1").acquire().await {
        Err(Error::Busy(busy)) => assert_eq!(busy.kind, BusyKind::Draining),
        other => panic!("{other:?}"),
    }
    let next = client.lock("u:1").wait(Wait::UpTo(Duration::from_secs(50))).acquire();
    let resolve = async {
        let resolved = client.resolve_intent(intents[0].operation, "the service was restarted");
        resolved.await.unwrap();
        client.resolve_intent(intents[0].operation, "and again").await.unwrap();
    };
    let (next, ()) = tokio::join!(next, resolve);
    drop(next.unwrap());
    assert!(client.intents().resource("u:1").all().await.unwrap().is_empty());
    assert_eq!(upstream.begun(), 1);
}

#[tokio::test]
async fn operators_stop_and_see_what_others_do() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let lock = client.lock("r").acquire().await.unwrap();
    lock.put("k", "x").await.unwrap();
    assert!(client.ready().await.unwrap().ready);

    let protected = client.protect("r", "to be kept").await.unwrap();
    assert!(protected.protected.is_some());
    let refused = lock.delete_all().await.unwrap_err();
    assert_eq!(refused.code(), Some("resource-protected"));
    lock.delete("k").await.unwrap();
    client.unprotect("r", "kept for long enough").await.unwrap();
    lock.put("k", "y").await.unwrap();
    lock.delete_all().await.unwrap();

    client.freeze("r", "closing").await.unwrap();
    client.unfreeze("r", "closed").await.unwrap();
    client.break_lock("r", "it hangs").await.unwrap();
    let http = gateway.http();
    http.acquire("r", "10m").await;
    assert_eq!(loss(lock.put("k", "late").await), LossReason::Superseded);
    let late = eventually("the rejection is listed", async || {
        let late = client.rejections().resource("r").reason(ErrorCode::FenceTokenStale);
        Some(late.all().await.unwrap()).filter(|late| !late.is_empty())
    });
    assert_eq!(late.await.len(), 1);

    let done: Vec<_> = client.audit().resource("r").all().await.unwrap();
    let words: Vec<_> = done.iter().rev().map(|entry| entry.action.as_str().to_owned()).collect();
    assert_eq!(words, ["grant", "protect", "unprotect", "freeze", "unfreeze", "break", "grant"]);
    let frozen = client.audit().resource("r").action(AuditAction::Freeze).all().await.unwrap();
    assert_eq!((frozen.len(), frozen[0].reason.as_deref()), (1, Some("closing")));
    // Page by page it is the same.
    let (mut cursor, mut count) = (None, 0);
    loop {
        let page = client.audit().page_size(2).page(cursor.as_deref()).await.unwrap();
        count += page.items.len();
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(count, words.len());
    assert!(matches!(client.break_lock("never", "x").await, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn everything_that_can_be_read_is_read() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let lock = client.lock("r").metadata("job", "nightly").acquire().await.unwrap();
    let names = ["a b", "a/é", "a/日本", "a?b#c", "100%25", "z"];
    for (nth, name) in (1..).zip(names) {
        let put = lock.put(name, format!("{nth}")).content_type("text/plain");
        assert_eq!(put.await.unwrap().version, nth);
    }
    let of = |name: &'static str| client.get("r", name);
    for name in names {
        let object = of(name).await.unwrap();
        assert_eq!((object.key.as_str(), object.content_type.as_str()), (name, "text/plain"));
        assert!(of(name).if_changed(&object.etag).await.unwrap().is_none());
        assert_eq!(client.head("r", name).await.unwrap().etag, object.etag);
    }
    assert_eq!(client.list("r").page_size(2).all().await.unwrap().len(), names.len());
    assert_eq!(client.list("r").prefix("a/").all().await.unwrap().len(), 2);
    assert_eq!(client.versions("r").all().await.unwrap().len(), names.len());
    assert_eq!(client.locks().prefix("r").all().await.unwrap().len(), 1);
    assert_eq!(client.resources().all().await.unwrap().len(), 1);
    assert!(of("missing").optional().await.unwrap().is_none());
    assert!(client.head("r", "missing").optional().await.unwrap().is_none());
    assert!(matches!(of("missing").await, Err(Error::NotFound(_))));
    assert!(matches!(client.resource("never").await, Err(Error::NotFound(_))));
    assert!(matches!(client.list("never").all().await, Err(Error::NotFound(_))));
}
