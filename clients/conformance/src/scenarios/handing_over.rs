//! Handing a lock over, fences for locks of another kind, operators' calls, upstreams.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::writes::marks;
use super::{Scenario, scenario};
use crate::script::{Script, same, uuid_version};
use crate::server::{Exchange, Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "fence-set",
        [20, 51],
        "a fence has an id and an order, and its writes have both ids",
        fence
    ),
    scenario!("fence-stale", [51], "an order that does not rise is a lost lock", fence_stale),
    scenario!(
        "fence-again",
        [12, 51],
        "a fence whose answer was lost is set again, under its id",
        fence_again
    ),
    scenario!("transfer", [50], "the successor's lock is told as one line of text", transfer),
    scenario!(
        "transfer-again",
        [12, 50],
        "a transfer whose answer was lost is sent again, under its id",
        transfer_again
    ),
    scenario!("transfer-ends", [50], "the old guard ends without a signal", transfer_ends),
    scenario!("adopt-renews", [50], "who takes over renews at once", adopt),
    scenario!(
        "adopt-late",
        [19, 50],
        "and has the time of the attempt that was answered",
        adopt_late
    ),
    scenario!("adopt-gone", [50], "and learns that there is nothing to take over", adopt_gone),
    scenario!("break", [57], "an operator's break says why", broken),
    scenario!(
        "upstream-once",
        [20, 23],
        "a request to an upstream has token and lock id, and no more",
        upstream
    )
    .needs(&["upstream"]),
    scenario!(
        "upstream-cut",
        [20, 24],
        "without an answer it is unknown, and never sent again",
        upstream_cut
    )
    .needs(&["upstream"]),
    scenario!("upstream-key", [20], "a key of the caller's own is passed on", upstream_key)
        .needs(&["upstream"]),
    scenario!(
        "upstream-resolve",
        [20, 25],
        "its outcome is asked by its id alone",
        upstream_resolve
    )
    .needs(&["upstream"]),
];

fn fenced(token: &str) -> Reply {
    Reply::json(200, &json!({"resource": "r", "token": token, "version": 3}))
        .header("x-fence-token", token)
}

async fn fence(s: &mut Script) -> Result<()> {
    s.client().await?;
    let command =
        json!({"do": "fence", "lock": "F", "resource": "r", "order": "9223372036854775806"});
    let call = s.start(command).await?;
    let set = s.take_now("POST", "/resources/r/fence").await?;
    let body = set.request.json()?;
    let id = body["id"].as_str().context("a fence has an id")?.to_owned();
    same("the version of the id", &uuid_version("the id", &id)?, &7)?;
    same("the order", &body["order"], &json!("9223372036854775806"))?;
    set.reply(fenced("9223372036854775807")).await?;
    same("the token", &s.ok_now(call).await?["token"], &json!("9223372036854775807"))?;
    let call = s.put_with("a.txt", json!({"lock": "F"})).await?;
    let put = s.take_now("PUT", "/resources/r/objects/a.txt").await?;
    same("the token", put.request.must("x-fence-token")?, "9223372036854775807")?;
    same("the lock id", put.request.must("x-lock-id")?, &id)?;
    put.written(1).await?;
    s.ok_now(call).await?;
    s.shared.auto.renewals(false);
    s.quiet(60_000).await
}

async fn fence_stale(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.start(json!({"do": "fence", "lock": "F", "resource": "r", "order": "3"})).await?;
    s.take_now("POST", "/resources/r/fence").await?.problem("fence-order-stale").await?;
    let error = s.fails_now(call, "LockLost").await?;
    same("the reason", &error["reason"], &json!("order_stale"))
}

async fn fence_again(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.start(json!({"do": "fence", "lock": "F", "resource": "r", "order": "3"})).await?;
    let first = s.take("POST", "/resources/r/fence").await?;
    first.cut().await?;
    let second = s.take("POST", "/resources/r/fence").await?;
    same("the body", &second.request.text(), &first.request.text())?;
    second.reply(fenced("12")).await?;
    s.ok_now(call).await.map(drop)
}

/// The next transfer of `L`, and the successor that it asks for.
async fn successor(s: &mut Script) -> Result<(Exchange, Value)> {
    let asked = s.take("POST", "/locks/*/transfer").await?;
    let body = asked.request.json()?;
    same("the owner", &body["owner"], &json!("worker-b"))?;
    let id = body["id"].as_str().context("the successor has an id")?;
    let lock = answers::lock(id, &["r"], "worker-b", "8", Some(30_000));
    asked.remember(&lock);
    Ok((asked, lock))
}

async fn handed(s: &mut Script) -> Result<String> {
    s.lock().await?;
    let call = s.start(json!({"do": "transfer", "lock": "L", "owner": "worker-b"})).await?;
    let (asked, lock) = successor(s).await?;
    asked.reply(Reply::json(201, &lock)).await?;
    let told = s.ok(call).await?;
    told["handoff"].as_str().map(str::to_owned).context("there is a text to hand over")
}

async fn transfer(s: &mut Script) -> Result<()> {
    let text = handed(s).await?;
    let encoded = text.strip_prefix("fence1:").context("the text begins with its form")?;
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let decoded = base64::Engine::decode(&engine, encoded.trim_end_matches('='))
        .context("it is base64url")?;
    let value: Value = serde_json::from_slice(&decoded).context("it is JSON")?;
    same("the token", &value["token"], &json!("8"))?;
    same("the resources", &value["resources"], &json!(["r"]))?;
    ensure!(
        value["id"].as_str().is_some() && !text.contains('\n'),
        "it is not as it should be: {value}"
    );
    Ok(())
}

async fn transfer_again(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.start(json!({"do": "transfer", "lock": "L", "owner": "worker-b"})).await?;
    let (first, _) = successor(s).await?;
    first.cut().await?;
    let (second, lock) = successor(s).await?;
    same("the body", &second.request.text(), &first.request.text())?;
    second.reply(Reply::json(201, &lock)).await?;
    s.ok(call).await.map(drop)
}

async fn transfer_ends(s: &mut Script) -> Result<()> {
    handed(s).await?;
    s.no_event("lost").await?;
    same("the reason", &s.state("L").await?["reason"], &json!("transferred"))?;
    let call = s.put("a.txt").await?;
    s.fails_now(call, "LockLost").await?;
    s.shared.auto.renewals(false);
    s.quiet(60_000).await?;
    s.no_event("lost").await
}

async fn adopt(s: &mut Script) -> Result<()> {
    let text = handed(s).await?;
    s.shared.auto.renewals(false);
    let call = s.start(json!({"do": "adopt", "lock": "M", "handoff": text})).await?;
    s.take_now("POST", "/locks/*/renew").await?.renewed().await?;
    let held = s.held("M", call).await?;
    same("the token", held.token.as_str(), "8")?;
    let call = s.put_with("a.txt", json!({"lock": "M"})).await?;
    let put = s.take_now("PUT", "/resources/r/objects/a.txt").await?;
    same("the lock id", put.request.must("x-lock-id")?, &held.id)?;
    put.written(1).await?;
    s.ok_now(call).await?;
    s.take("POST", "/locks/*/renew").await.map(drop)
}

async fn adopt_late(s: &mut Script) -> Result<()> {
    let text = handed(s).await?;
    s.shared.auto.renewals(false);
    let call = s.start(json!({"do": "adopt", "lock": "M", "handoff": text})).await?;
    // Refused late, again and again, for longer than the lock lasts.
    for _ in 0..2 {
        let refused = s.take("POST", "/locks/*/renew").await?;
        s.pass(6_000).await?;
        refused.problem("ledger-unavailable").await?;
    }
    let answered = s.take("POST", "/locks/*/renew").await?;
    let id = answered.request.path.split('/').nth(2).context("a lock")?.to_owned();
    answered.remember(&answers::lock(&id, &["r"], "worker-b", "8", Some(10_000)));
    // Before that answer: whoever counts from the first attempt may ask once more at once.
    s.shared.auto.renewals(true);
    answered.renewed().await?;
    s.held("M", call).await?;
    s.pass(5_000).await?;
    same("the state", &s.state("M").await?["state"], &json!("held"))
}

async fn adopt_gone(s: &mut Script) -> Result<()> {
    let text = handed(s).await?;
    s.shared.auto.renewals(false);
    let call = s.start(json!({"do": "adopt", "lock": "M", "handoff": text})).await?;
    s.take_now("POST", "/locks/*/renew").await?.problem("lock-superseded").await?;
    let error = s.fails_now(call, "LockLost").await?;
    same("the reason", &error["reason"], &json!("superseded"))
}

async fn broken(s: &mut Script) -> Result<()> {
    s.client().await?;
    let command = json!({"do": "break", "resource": "r", "reason": "it hangs", "after": "10s"});
    let call = s.start(command).await?;
    let first = s.take_now("POST", "/resources/r/break").await?;
    same("the body", &first.request.json()?, &json!({"reason": "it hangs", "after": "10000ms"}))?;
    first.cut().await?;
    let second = s.take("POST", "/resources/r/break").await?;
    let resource = answers::resource("r", "worker-b", "breaking");
    second.reply(Reply::json(200, &resource)).await?;
    s.ok_now(call).await.map(drop)
}

async fn forward(s: &mut Script, extra: Value) -> Result<(crate::script::Call, Exchange)> {
    s.lock().await?;
    let mut command = json!({
        "do": "upstream", "lock": "L", "upstream": "crm", "method": "PATCH", "path": "customers/7", "text": "x",
    });
    if let (Some(command), Some(extra)) = (command.as_object_mut(), extra.as_object()) {
        command.extend(extra.clone());
    }
    let call = s.start(command).await?;
    let sent = s.take_now("PATCH", "/upstreams/crm/customers/7").await?;
    Ok((call, sent))
}

async fn upstream(s: &mut Script) -> Result<()> {
    let (call, sent) = forward(s, json!({})).await?;
    same("the token", sent.request.must("x-fence-token")?, "7")?;
    sent.request.must("x-lock-id")?;
    for name in ["idempotency-key", "x-fence-seq", "x-fence-key-kept"] {
        ensure!(!sent.request.has(name), "it has {name}");
    }
    let reply = Reply::new(409)
        .header("x-fence-verdict", "admitted")
        .header("x-fence-guarantee", "drained");
    let reply = reply.body("the service's own");
    sent.reply(reply.header("x-operation-id", answers::OPERATION)).await?;
    let told = s.ok_now(call).await?;
    same("the status", &told["status"], &json!(409))?;
    same("the text", &told["text"], &json!("the service's own"))?;
    s.quiet(5_000).await
}

async fn upstream_cut(s: &mut Script) -> Result<()> {
    let (call, sent) = forward(s, json!({})).await?;
    sent.cut().await?;
    s.quiet(3_000).await?;
    s.fails(call, "OutcomeUnknown").await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", "/resources/r/objects/a.txt").await?;
    same("the number of the next write", &marks(&put.request)?.1, &Some("1".to_owned()))?;
    put.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn upstream_key(s: &mut Script) -> Result<()> {
    let (call, sent) = forward(s, json!({"key": "order-17"})).await?;
    same("the key", sent.request.must("idempotency-key")?, "order-17")?;
    sent.problem("overloaded").await?;
    s.fails(call, "Unavailable").await?;
    s.quiet(5_000).await
}

async fn upstream_resolve(s: &mut Script) -> Result<()> {
    let (call, sent) = forward(s, json!({})).await?;
    let document = json!({"outcome": "unknown", "operation": answers::OPERATION});
    let reply = sent.problem_reply("upstream-timeout", &document)?;
    sent.reply(reply.header("x-operation-id", answers::OPERATION)).await?;
    let error = s.fails(call, "OutcomeUnknown").await?;
    let call = s.start(json!({"do": "resolve", "handle": error["handle"], "within": "5s"})).await?;
    let path = format!("/operations/{}", answers::OPERATION);
    let record = json!({
        "operation": answers::OPERATION, "outcome": "applied", "kind": "forward", "resource": "r",
        "forward": {"upstream": "crm", "state": "answered", "opened_at": answers::MOMENT, "status": 200},
    });
    s.take("GET", &path).await?.reply(Reply::json(200, &record)).await?;
    same("the outcome", &s.ok(call).await?["outcome"], &json!("applied"))
}
