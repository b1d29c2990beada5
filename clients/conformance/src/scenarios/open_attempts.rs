//! What closes an attempt whose outcome is unknown, and what does not.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::writes::{marks, taken};
use super::{Scenario, scenario};
use crate::script::{Call, Script, same};
use crate::server::{Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!("open-then-applied", [13, 24], "a 2xx closes it: applied, once", applied),
    scenario!("open-then-lost", [24], "a dead token closes it: not applied", lost),
    scenario!(
        "open-then-number",
        [24],
        "a number that does not rise closes it: not applied",
        number
    ),
    scenario!("open-then-tag", [24], "a tag that does not match closes it: not applied", tag),
    scenario!("open-then-absent", [24], "other conditions close it on a numbered guard", absent),
    scenario!(
        "open-then-absent-unnumbered",
        [24],
        "other conditions close nothing without numbers",
        unnumbered
    ),
    scenario!(
        "open-then-key-reused",
        [24],
        "other bytes under the key close it: not applied",
        key_reused
    ),
    scenario!("open-then-others", [24], "no other refusal closes it", others),
    scenario!(
        "open-then-others-end",
        [24],
        "and at the deadline the outcome is unknown",
        others_end
    ),
    scenario!("open-then-no-connection", [24], "no connection closes nothing", no_connection),
];

/// A put with an open attempt, and its key and number.
async fn opened(s: &mut Script, extra: Value) -> Result<(Call, (String, Option<String>))> {
    let call = s.put_with("a.txt", extra).await?;
    let first = taken(s).await?;
    first.cut().await?;
    Ok((call, marks(&first.request)?))
}

async fn applied(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let (call, marked) = opened(s, json!({})).await?;
    let second = taken(s).await?;
    same("key and number", &marks(&second.request)?, &marked)?;
    second.written(1).await?;
    s.ok_now(call).await?;
    s.quiet(5_000).await
}

async fn lost(s: &mut Script) -> Result<()> {
    s.client().await?;
    for code in
        ["fence-token-stale", "fence-token-released", "fence-token-broken", "fence-token-void"]
    {
        s.lock_as("L", "7", json!({"resources": [code]})).await?;
        let call = s.put("a.txt").await?;
        s.take("PUT", "/resources/*/objects/a.txt").await?.cut().await?;
        s.take("PUT", "/resources/*/objects/a.txt").await?.problem(code).await?;
        s.fails_now(call, "LockLost").await?;
    }
    Ok(())
}

async fn number(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let (call, _) = opened(s, json!({})).await?;
    taken(s).await?.problem("sequence-out-of-order").await?;
    s.fails_now(call, "Changed").await?;
    s.quiet(5_000).await
}

async fn tag(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.lock_as("L", "7", json!({"numbers": false})).await?;
    let (call, _) = opened(s, json!({"if_match": answers::tag(1)})).await?;
    taken(s).await?.problem("version-mismatch").await?;
    s.fails_now(call, "Changed").await?;
    s.quiet(5_000).await
}

async fn absent(s: &mut Script) -> Result<()> {
    s.lock().await?;
    for extra in [json!({"if_absent": true}), json!({"expect_version": 3})] {
        let (call, _) = opened(s, extra).await?;
        taken(s).await?.problem("version-mismatch").await?;
        s.fails_now(call, "Changed").await?;
    }
    s.quiet(5_000).await
}

async fn unnumbered(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.lock_as("L", "7", json!({"numbers": false})).await?;
    for extra in
        [json!({"if_absent": true}), json!({"expect_version": 3}), json!({"if_match": "*"})]
    {
        let (call, marked) = opened(s, extra).await?;
        same("the number", &marked.1, &None)?;
        taken(s).await?.problem("version-mismatch").await?;
        let third = taken(s).await.context("it believed a refusal that proves nothing")?;
        same("the key", &marks(&third.request)?, &marked)?;
        third.written(1).await?;
        s.ok_now(call).await?;
    }
    Ok(())
}

async fn key_reused(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let (call, _) = opened(s, json!({"key": "message-17"})).await?;
    taken(s).await?.problem("idempotency-key-reused").await?;
    s.fails_now(call, "Misuse").await?;
    s.quiet(5_000).await
}

/// Refusals that are about the attempt that gets them, and say nothing of an earlier one.
const ABOUT_THEMSELVES: [&str; 15] = [
    "resource-frozen",
    "resource-draining",
    "overloaded",
    "queue-full",
    "ledger-unavailable",
    "internal",
    "digest-mismatch",
    "payload-too-large",
    "request-malformed",
    "host-not-served",
    "headers-too-large",
    "request-timeout",
    "fence-token-unknown",
    "shutting-down",
    "idempotency-in-progress",
];

async fn others(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let (call, marked) = opened(s, json!({})).await?;
    for code in ABOUT_THEMSELVES {
        let put = taken(s).await.with_context(|| format!("before {code}"))?;
        same("key and number", &marks(&put.request)?, &marked)?;
        put.problem(code).await?;
    }
    for (status, code) in
        [(401, "unauthenticated"), (403, "permission-denied"), (429, "rate-limited")]
    {
        let put = taken(s).await.with_context(|| format!("before {code}"))?;
        let document = answers::problem(code, status, false, &json!({}));
        put.reply(put.document(&document)).await?;
    }
    taken(s).await?.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn others_end(s: &mut Script) -> Result<()> {
    s.client_with(json!({"write_deadline": "10s"})).await?;
    s.lock_as("L", "7", json!({})).await?;
    let (call, (key, _)) = opened(s, json!({})).await?;
    let mut asked = false;
    while s.open(call).await? {
        let Some(exchange) = s.any_within(2_000).await? else { continue };
        if exchange.request.method == "GET" {
            asked = true;
            exchange.reply(Reply::json(200, &json!({"items": []}))).await?;
        } else {
            ensure!(!asked, "it sent the write again after its deadline");
            exchange.problem("resource-frozen").await?;
        }
    }
    ensure!(asked, "it never asked what became of the write");
    let error = s.fails(call, "OutcomeUnknown").await?;
    same("the key", &error["key"], &json!(key))?;
    ensure!(error["handle"].as_str().is_some(), "there is nothing to resolve with: {error}");
    Ok(())
}

async fn no_connection(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let (call, marked) = opened(s, json!({})).await?;
    s.gateways.first_mut().context("a gateway")?.down().await;
    s.pass(5_000).await?;
    s.gateways.first_mut().context("a gateway")?.up().await?;
    let put = taken(s).await?;
    same("key and number", &marks(&put.request)?, &marked)?;
    put.written(1).await?;
    s.ok_now(call).await.map(drop)
}
