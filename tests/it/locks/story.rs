//! The timeline of every article about locks, over real HTTP: a holder stalls, loses its lock, and
//! its late write bounces; and every other way in which a token can be wrong.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::lock::Supersession;
use fence_core::wire::Lock;
use fence_tests::client::{Client, resource_path};
use fence_tests::gateway::Gateway;
use serde_json::json;

use crate::setup::{SetUp, assert_hides, look, on_both, take_over, until_state};

on_both!(
    a_stalled_holder_cannot_overwrite_its_successor,
    a_successor_that_has_only_read_is_already_safe,
    an_expired_lock_that_nobody_took_over_still_writes_and_revives,
    a_released_token_admits_no_more_writes,
    a_broken_lock_admits_no_more_writes,
    a_break_after_a_while_lets_the_holder_finish,
    the_id_of_another_lock_is_refused,
    a_token_that_was_never_granted_is_refused_and_changes_nothing,
    refusals_and_views_disclose_no_token_and_no_id,
);

async fn a_stalled_holder_cannot_overwrite_its_successor(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let a = client.acquire("job:1", "1s").await;
    client.put("job:1", "report", "by A").under(&a).send().await.expect(201);
    let b = take_over(&client, "job:1").await;
    assert!(b.token > a.token, "{} does not rise above {}", b.token, a.token);
    assert_eq!(b.versions, [1]);
    client.put("job:1", "report", "by B").under(&b).send().await.expect(200);

    let late = client.put("job:1", "report", "by A, late").under(&a).send().await;
    let late = late.refused(412, "fence-token-stale");
    assert_eq!(late.must_have("x-fence-verdict"), "refused");
    let problem = late.problem();
    assert_eq!(problem.superseded_by, Some(Supersession::Grant.into()));
    assert_eq!(problem.superseded_at, Some(b.acquired_at));
    assert_eq!(problem.presented_token, Some(a.token.to_string()));
    assert_eq!(problem.resource.as_deref(), Some("job:1"));
    assert!(!problem.retryable);
    client.delete("job:1", "report").under(&a).send().await.refused(412, "fence-token-stale");
    client.delete_resource("job:1").under(&a).send().await.refused(412, "fence-token-stale");
    client.renew(&a, None).send().await.refused(409, "lock-superseded");

    assert_eq!(client.read("job:1", "report").send().await.expect(200).text(), "by B");
    assert_eq!(client.version("job:1").await, 2);
    client.put("job:1", "report", "by B again").under(&b).send().await.expect(200);
    assert_eq!(client.lock_of(&a).send().await.expect(200).json()["ended"], "superseded");
}

async fn a_successor_that_has_only_read_is_already_safe(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let a = client.acquire("job:1", "1s").await;
    client.put("job:1", "count", "1").under(&a).send().await.expect(201);
    let b = take_over(&client, "job:1").await;
    let read = client.read("job:1", "count").send().await.expect(200);
    assert_eq!(read.text(), "1");

    client.put("job:1", "count", "late").under(&a).send().await.refused(412, "fence-token-stale");
    let seen = read.must_have("x-resource-version");
    let next = client.put("job:1", "count", "2").under(&b).header("x-if-resource-version", seen);
    assert_eq!(next.send().await.expect(200).written().version, 2);
}

async fn an_expired_lock_that_nobody_took_over_still_writes_and_revives(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "1s").await;
    until_state(&client, "job:1", "expired").await;
    client.put("job:1", "k", "after the deadline").under(&lock).send().await.expect(201);

    let renewed: Lock = client.renew(&lock, Some("10m")).send().await.expect(200).parse();
    assert!(renewed.lapsed_ms.is_some_and(|ms| ms >= 0), "{renewed:?}");
    assert_eq!((renewed.id, renewed.token), (lock.id, lock.token));
    assert_eq!((renewed.ttl_ms, renewed.state.as_str()), (Some(600_000), "leased"));
    let body = json!({ "resource": "job:1" });
    client.lock(&body).send().await.refused(409, "lock-held");
    client.put("job:1", "k", "revived").under(&lock).send().await.expect(200);
    let again: Lock = client.renew(&lock, None).send().await.expect(200).parse();
    assert_eq!((again.lapsed_ms, again.ttl_ms), (None, Some(600_000)));
}

async fn a_released_token_admits_no_more_writes(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "kept").under(&lock).send().await.expect(201);
    client.release(&lock).send().await.expect(204);

    let refused = client.put("job:1", "k", "late").under(&lock).send().await;
    refused.refused(412, "fence-token-released");
    client.delete("job:1", "k").under(&lock).send().await.refused(412, "fence-token-released");
    client.renew(&lock, None).send().await.refused(409, "lock-released");
    assert_eq!(client.read("job:1", "k").send().await.expect(200).text(), "kept");
    assert_eq!(look(&client, "job:1").await.state.as_str(), "released");

    // Once there is a successor the token is stale like any other.
    client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "late").under(&lock).send().await.refused(412, "fence-token-stale");
}

async fn a_broken_lock_admits_no_more_writes(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let never = client.break_lock("job:1", &json!({ "reason": "nothing there" })).send().await;
    never.refused(404, "resource-not-found");
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "kept").under(&lock).send().await.expect(201);
    let body = json!({ "reason": "stuck since Monday" });
    let view = client.break_lock("job:1", &body).send().await.expect(200);
    assert_eq!(view.json()["state"], "broken");
    let again = client.break_lock("job:1", &body).send().await.expect(200);
    assert_eq!(again.json()["state"], "broken");

    client.put("job:1", "k", "late").under(&lock).send().await.refused(412, "fence-token-broken");
    client.renew(&lock, None).send().await.refused(409, "lock-broken");
    assert_eq!(client.read("job:1", "k").send().await.expect(200).text(), "kept");
    assert_eq!(client.lock_of(&lock).send().await.expect(200).json()["ended"], "broken");
    let next = client.acquire("job:1", "10m").await;
    assert!(next.token > lock.token);
    // A break is aimed at the holder of its time, not at the next one.
    client.put("job:1", "k", "next").under(&next).send().await.expect(200);
}

async fn a_break_after_a_while_lets_the_holder_finish(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let soon = |after: &str| client.break_lock("job:1", &json!({ "after": after, "reason": "x" }));
    let view = soon("1h").send().await.expect(200).json();
    assert_eq!(view["state"], "breaking");
    // The ttl ends sooner than the hour that the operator would wait, and nothing extends it.
    assert!(view["expires_in_ms"].as_i64().unwrap() <= 600_000, "{view}");
    client.put("job:1", "k", "finishing").under(&lock).send().await.expect(201);
    client.renew(&lock, Some("1h")).send().await.refused(409, "lock-breaking");
    let same = json!({ "resource": "job:1", "owner": "test", "id": lock.id.to_string() });
    client.lock(&same).send().await.refused(409, "lock-breaking");

    // It shortens, and never extends.
    soon("1s").send().await.expect(200);
    soon("1h").send().await.expect(200);
    until_state(&client, "job:1", "broken").await;
    client.put("job:1", "k", "late").under(&lock).send().await.refused(412, "fence-token-broken");
    client.renew(&lock, None).send().await.refused(409, "lock-broken");
    let next = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "next").under(&next).send().await.expect(200);
}

async fn the_id_of_another_lock_is_refused(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let mine = client.acquire("job:1", "10m").await;
    let other = client.acquire("job:2", "10m").await;
    let put = client.put("job:1", "k", "x").token(mine.token);
    let crossed = put.clone().header("x-lock-id", other.id.to_string());
    crossed.send().await.refused(403, "lock-id-mismatch");
    let crossed = client.put("job:1", "k", "x").token(mine.token);
    let random = crossed.header("x-lock-id", crate::setup::random_id().to_string());
    random.send().await.refused(403, "lock-id-mismatch");
    assert_eq!(client.version("job:1").await, 0);
    // It may be left out, and is compared without regard to case.
    put.clone().send().await.expect(201);
    let upper = mine.id.to_string().to_uppercase();
    put.header("x-lock-id", upper).send().await.expect(200);
}

async fn a_token_that_was_never_granted_is_refused_and_changes_nothing(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let first = client.acquire("job:1", "10m").await;
    let between = client.acquire("job:2", "10m").await;
    client.release(&first).send().await.expect(204);
    let lock = client.acquire("job:1", "10m").await;
    assert!(first.token < between.token && between.token < lock.token);
    client.put("job:1", "k", "kept").under(&lock).send().await.expect(201);
    let before = look(&client, "job:1").await;

    for never in [between.token.get(), lock.token.get() + 1, i64::MAX] {
        for call in [
            client.put("job:1", "k", "x"),
            client.delete("job:1", "k"),
            client.delete_resource("job:1"),
        ] {
            let refused = call.token(never).send().await.refused(403, "fence-token-unknown");
            assert_eq!(refused.problem().presented_token, Some(never.to_string()));
            assert_eq!(refused.problem().superseded_at, None);
        }
    }
    let nowhere = client.put("job:never", "k", "x").token(lock.token).send().await;
    nowhere.refused(403, "fence-token-unknown");
    client.get(resource_path("job:never")).send().await.refused(404, "resource-not-found");

    let after = look(&client, "job:1").await;
    assert_eq!((after.version, after.objects), (before.version, before.objects));
    assert_eq!(client.read("job:1", "k").send().await.expect(200).text(), "kept");
    // No huge token has poisoned the fence.
    client.put("job:1", "k", "still mine").under(&lock).send().await.expect(200);
    client.release(&lock).send().await.expect(204);
    assert!(client.acquire("job:1", "10m").await.token > lock.token);
}

/// A gateway with high tokens, a lock that was superseded and the live one on the same resource.
async fn succession(setup: SetUp) -> (Gateway, Client, Lock, Lock) {
    let gateway = setup.start_with_high_tokens(|settings| settings).await;
    let client = gateway.client();
    let stale = client.acquire("job:1", "10m").await;
    client.release(&stale).send().await.expect(204);
    let live = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "kept").under(&live).send().await.expect(201);
    (gateway, client, stale, live)
}

async fn refusals_and_views_disclose_no_token_and_no_id(setup: SetUp) {
    let (_gateway, client, stale, live) = succession(setup).await;
    let put = || client.put("job:1", "k", "x");
    let unknown = live.token.get() + 5;
    let named = json!({ "resource": "job:1", "id": crate::setup::random_id().to_string() });
    for (call, code) in [
        (put(), "fence-token-missing"),
        (put().token("0"), "fence-token-malformed"),
        (put().under(&stale), "fence-token-stale"),
        (put().token(unknown), "fence-token-unknown"),
        (client.delete("job:1", "k").under(&stale), "fence-token-stale"),
        (client.delete_resource("job:1").under(&stale), "fence-token-stale"),
        (client.lock(&json!({ "resource": "job:1" })), "lock-held"),
        (client.lock(&named), "lock-held"),
        (client.renew(&stale, None), "lock-released"),
    ] {
        let refused = call.send().await;
        assert_eq!(refused.code(), code, "{}", refused.text());
        assert_hides(&refused, &live);
    }
    let reason = json!({ "reason": "maintenance", "after": "1h" });
    let object = client.read("job:1", "k").send().await.expect(200);
    let broken = client.break_lock("job:1", &reason).send().await.expect(200);
    for answer in [object, broken] {
        assert_hides(&answer, &live);
    }
    for path in [
        "/locks",
        "/resources",
        "/resources/job:1",
        "/resources/job:1/objects",
        "/resources/job:1/objects/k",
        "/rejections",
        "/metrics",
        "/readyz",
    ] {
        let view = client.get(path).send().await.expect(200);
        assert_hides(&view, &live);
        if path != "/rejections" {
            assert_hides(&view, &stale);
        }
    }
}
