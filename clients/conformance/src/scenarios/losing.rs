//! How a guard ends: by answers, and only by those that say so.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Scenario, scenario};
use crate::script::{Script, same, within};
use crate::server::{Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "lost-by-renewal",
        [33, 58],
        "a renewal that is refused for good ends the guard",
        by_renewal
    ),
    scenario!("lost-by-write", [21, 33, 58], "a write under a dead token ends the guard", by_write),
    scenario!("lost-once", [35], "the signal is given once", once),
    scenario!(
        "lost-not-by-others",
        [33],
        "no other failure of a renewal ends the guard",
        not_by_others
    ),
    scenario!("lost-not-by-proxies", [8, 33], "what a proxy says ends no guard", not_by_proxies),
    scenario!(
        "breaking-by-renewal",
        [34, 36],
        "a lock that is being broken is held until its end",
        breaking
    ),
    scenario!(
        "broken-says-why",
        [33, 58],
        "the text of a loss has the operator's reason, however the loss is heard of",
        says_why
    ),
    scenario!("released-guard", [21], "nothing is written on a guard that was released", released),
    scenario!("superseded-told", [58], "who is superseded learns by what and when", told),
];

const RENEWED: [(&str, &str); 6] = [
    ("lock-superseded", "superseded"),
    ("lock-released", "released_elsewhere"),
    ("lock-broken", "broken"),
    ("lock-void", "void"),
    ("lock-hold-exceeded", "hold_exceeded"),
    ("lock-not-found", "gone"),
];

async fn by_renewal(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.shared.auto.renewals(false);
    for (code, reason) in RENEWED {
        s.lock_as(code, "7", json!({"resources": [code]})).await?;
        s.take("POST", "/locks/*/renew").await?.problem(code).await?;
        let event = s.event_within(0, "lost").await?;
        same("the lock", &event["lock"], &json!(code))?;
        same("the reason", &event["reason"], &json!(reason))?;
        let state = s.state(code).await?;
        same("the state", &state["state"], &json!("lost"))?;
        same("its reason", &state["reason"], &json!(reason))?;
        if ["hold_exceeded", "gone"].contains(&reason) {
            // The token may be good yet.
            s.take_now("DELETE", "/locks/*").await?.empty(204).await?;
        }
    }
    s.quiet(40_000).await
}

const WRITTEN: [(&str, &str); 4] = [
    ("fence-token-stale", "superseded"),
    ("fence-token-released", "released_elsewhere"),
    ("fence-token-broken", "broken"),
    ("fence-token-void", "void"),
];

async fn by_write(s: &mut Script) -> Result<()> {
    s.client().await?;
    for (code, reason) in WRITTEN {
        s.lock_as("L", "7", json!({"resources": [code]})).await?;
        let call = s.put("a.txt").await?;
        s.take_now("PUT", "/resources/*/objects/a.txt").await?.problem(code).await?;
        let error = s.fails_now(call, "LockLost").await?;
        same("the reason", &error["reason"], &json!(reason))?;
        same("the code", &error["code"], &json!(code))?;
        let event = s.event_within(0, "lost").await?;
        same("the reason of the signal", &event["reason"], &json!(reason))?;
        let call = s.put("b.txt").await?;
        let error = s.fails_now(call, "LockLost").await?;
        same("the reason", &error["reason"], &json!(reason))?;
    }
    let puts = s.shared.seen().iter().filter(|seen| seen.method == "PUT").count();
    same("the writes that were sent", &puts, &WRITTEN.len())
}

const WORDS: &str = "worker hangs";

/// The next write says that the lock was broken, and why.
async fn told_why(s: &mut Script, lock: &str) -> Result<()> {
    let event = s.event_within(12_000, "lost").await?;
    same("the lock", &event["lock"], &json!(lock))?;
    same("the reason", &event["reason"], &json!("broken"))?;
    let call = s.start(json!({"do": "put", "lock": lock, "object": "a.txt", "text": "x"})).await?;
    let error = s.fails_now(call, "LockLost").await?;
    let text = error["text"].as_str().unwrap_or_default();
    ensure!(text.contains(WORDS), "it says {text:?}");
    Ok(())
}

async fn says_why(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    // A renewal alone, and one of two locks.
    s.lock().await?;
    s.take("POST", "/locks/*/renew")
        .await?
        .problem_with("lock-broken", json!({"reason": WORDS}))
        .await?;
    told_why(s, "L").await?;
    let one = s.lock_as("M", "8", json!({"resources": ["q"]})).await?;
    let two = s.lock_as("N", "9", json!({"resources": ["p"]})).await?;
    let renewal = s.take("POST", "/locks/renew").await?;
    let items = json!([
        {"id": one.id, "code": "lock-broken", "reason": WORDS},
        {"id": two.id, "lock": s.shared.auto.lock(&two.id)},
    ]);
    renewal.reply(Reply::json(200, &json!({ "items": items }))).await?;
    told_why(s, "M").await?;
    // A break that comes due.
    let renewal = s.take("POST", "/locks/*/renew").await?;
    renewal.problem_with("lock-breaking", json!({"reason": WORDS})).await?;
    asked_when(s, &two.id).await?;
    told_why(s, "N").await
}

async fn once(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let one = s.put("a.txt").await?;
    let two = s.put("b.txt").await?;
    let first = s.take_now("PUT", "/resources/r/objects/*").await?;
    let second = s.take_now("PUT", "/resources/r/objects/*").await?;
    first.problem("fence-token-stale").await?;
    second.problem("fence-token-broken").await?;
    s.fails_now(one, "LockLost").await?;
    s.fails_now(two, "LockLost").await?;
    s.event_within(0, "lost").await?;
    s.pass(60_000).await?;
    s.no_event("lost").await
}

async fn not_by_others(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.lock().await?;
    let codes =
        ["internal", "request-timeout", "lock-id-conflict", "refence-required", "route-not-found"];
    for code in codes {
        s.take("POST", "/locks/*/renew").await?.problem(code).await?;
        s.no_event("lost").await?;
    }
    let newer = answers::problem("lock-tired", 409, false, &json!({}));
    let renewal = s.take("POST", "/locks/*/renew").await?;
    renewal.reply(renewal.document(&newer)).await?;
    s.no_event("lost").await?;
    s.take("POST", "/locks/*/renew").await?.renewed().await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn not_by_proxies(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.lock().await?;
    for status in [404, 502] {
        s.take("POST", "/locks/*/renew").await?.reply(Reply::page(status)).await?;
        s.no_event("lost").await?;
    }
    let stray = s.take("POST", "/locks/*/renew").await?;
    let refused = stray.problem_reply("lock-not-found", &json!({}))?;
    stray.reply(refused.as_answer_to("of-somebody-else")).await?;
    s.no_event("lost").await?;
    let stray = s.take("POST", "/locks/*/renew").await?;
    let lock = s.shared.auto.lock(stray.request.path.split('/').nth(2).unwrap_or_default());
    stray.reply(Reply::json(200, &lock).foreign()).await?;
    // A success of somebody else confirms nothing: the next try comes soon.
    s.take_within(3_000, "POST", "/locks/*/renew").await?.renewed().await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn breaking(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    let held = s.lock().await?;
    let renewal = s.take("POST", "/locks/*/renew").await?;
    renewal.problem_with("lock-breaking", json!({"reason": "hangs"})).await?;
    let end = asked_when(s, &held.id).await?.unwrap_or(29_700);
    told_of_break(s).await?;
    s.no_event("lost").await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))?;
    let call = s.put("a.txt").await?;
    s.take_now("PUT", "/resources/r/objects/a.txt").await?.written(1).await?;
    s.ok_now(call).await?;
    s.quiet(end - s.now() - 1_000).await?;
    let event = s.event_within(3_000, "lost").await?;
    same("the reason", &event["reason"], &json!("broken"))?;
    within("the end", event["at"].as_u64().unwrap_or_default(), end - 600, end + 100)
}

/// A client may ask when the break is due: in 8 s. Gives the time.
pub(super) async fn asked_when(s: &mut Script, id: &str) -> Result<Option<u64>> {
    let Some(asked) = s.any_within(1_500).await? else { return Ok(None) };
    ensure!(asked.request.is("GET", "/locks/*"), "{} came", asked.request.line());
    let mut lock = s.shared.auto.lock(id);
    lock["state"] = json!("breaking");
    lock["expires_in_ms"] = json!(8_000);
    let end = s.now() + 8_000;
    asked.reply(Reply::json(200, &lock)).await?;
    s.settle().await?;
    Ok(Some(end))
}

/// The hook was told that the lock is being broken.
pub(super) async fn told_of_break(s: &mut Script) -> Result<()> {
    loop {
        let warning = s.event_within(0, "warning").await?;
        if warning["warning"] == "breaking" {
            return Ok(());
        }
    }
}

async fn released(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.start(json!({"do": "release", "lock": "L"})).await?;
    s.take_now("DELETE", "/locks/*").await?.empty(204).await?;
    s.ok_now(call).await?;
    same("the state", &s.state("L").await?["state"], &json!("released"))?;
    let call = s.put("a.txt").await?;
    s.fails_now(call, "LockLost").await?;
    s.no_event("lost").await?;
    s.quiet(60_000).await
}

async fn told(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let extra =
        json!({"superseded_by": "grant", "superseded_at": answers::MOMENT, "resource": "r"});
    s.take_now("PUT", "/resources/r/objects/a.txt")
        .await?
        .problem_with("fence-token-stale", extra)
        .await?;
    let error = s.fails_now(call, "LockLost").await?;
    same("superseded_by", &error["superseded_by"], &json!("grant"))?;
    ensure!(error["request_id"].as_str().is_some(), "the error has no request id: {error}");
    same("the status", &error["status"], &Value::from(412))
}
