//! What becomes of unknown outcomes: resolved, abandoned, too old to be sent again.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::unknown::{asked, list};
use super::writes::{marks, taken};
use super::{Scenario, scenario};
use crate::script::{Call, Script, same, within};
use crate::server::{Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!("resolve-applied", [25], "to resolve goes on with the same write", resolve),
    scenario!("resolve-lost", [25], "to resolve tells what will never be", resolve_lost),
    scenario!(
        "abandon-not-applied",
        [25],
        "after the release, nothing under the key is final",
        abandon_none
    ),
    scenario!("abandon-applied", [25], "after the release, what is there is told", abandon_applied),
    scenario!(
        "abandon-order",
        [25],
        "nothing is asked before the release is answered",
        abandon_order
    ),
    scenario!(
        "key-half-time",
        [20, 25],
        "after half of the key's time nothing is sent again",
        half_time
    ),
    scenario!(
        "key-half-time-short",
        [20],
        "the gateway's time counts if it is shorter",
        half_time_short
    ),
];

/// What an unknown outcome says of sending the write again, if the library says it.
fn resends(error: &Value, want: bool) -> Result<()> {
    match error.get("resend") {
        Some(have) => same("whether it may be sent again", have, &json!(want)),
        None => Ok(()),
    }
}

/// A put of unknown outcome: its key, and the handle to it.
pub(super) async fn unknown(s: &mut Script) -> Result<(String, String)> {
    let (call, key, asked) = asked(s).await?;
    asked.reply(list(&[])).await?;
    let error = s.fails(call, "OutcomeUnknown").await?;
    same("the key", &error["key"], &json!(key))?;
    resends(&error, true)?;
    let handle = error["handle"].as_str().context("there is a handle")?.to_owned();
    Ok((key, handle))
}

/// Answers all further questions in this way, until the call has ended.
async fn answered(s: &mut Script, call: Call, found: &[Value]) -> Result<()> {
    while s.open(call).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        ensure!(exchange.request.method == "GET", "{} came", exchange.request.line());
        exchange.reply(list(found)).await?;
    }
    Ok(())
}

async fn abandon(s: &mut Script, found: &[Value], outcome: &str) -> Result<Value> {
    let (key, handle) = unknown(s).await?;
    let call = s.start(json!({"do": "abandon", "lock": "L", "handle": handle})).await?;
    s.take("DELETE", "/locks/*").await?.empty(204).await?;
    let asked = s.take("GET", "/resources/r/operations").await?;
    same("the key that is asked for", &asked.request.queried("idempotency_key"), &Some(key))?;
    asked.reply(list(found)).await?;
    answered(s, call, found).await?;
    let told = s.ok(call).await?;
    same("the outcome", &told["outcome"], &json!(outcome))?;
    Ok(told)
}

async fn resolve(s: &mut Script) -> Result<()> {
    let (key, handle) = unknown(s).await?;
    let call = s.start(json!({"do": "resolve", "handle": handle, "within": "20s"})).await?;
    let again = loop {
        let exchange = s.any_within(10_000).await?.context("it does not go on")?;
        if exchange.request.method == "PUT" {
            break exchange;
        }
        exchange.reply(list(&[])).await?;
    };
    same("key and number", &marks(&again.request)?, &(key, Some("1".to_owned())))?;
    same("the body", &again.request.text(), "hello")?;
    again.written(1).await?;
    let told = s.ok(call).await?;
    same("the outcome", &told["outcome"], &json!("applied"))?;
    same("the version", &told["version"], &json!(1))
}

async fn resolve_lost(s: &mut Script) -> Result<()> {
    let (_, handle) = unknown(s).await?;
    let call = s.start(json!({"do": "resolve", "handle": handle, "within": "20s"})).await?;
    loop {
        let exchange = s.any_within(10_000).await?.context("it does not go on")?;
        if exchange.request.method == "PUT" {
            exchange.problem("fence-token-stale").await?;
            break;
        }
        exchange.reply(list(&[])).await?;
    }
    let answer = s.answer(call).await?;
    let ended = answer["ok"]["outcome"] == "not_applied" || answer["error"]["class"] == "LockLost";
    ensure!(ended, "it will never be applied: {answer}");
    Ok(())
}

async fn abandon_none(s: &mut Script) -> Result<()> {
    abandon(s, &[], "not_applied").await?;
    let call = s.put("b.txt").await?;
    s.fails_now(call, "LockLost").await.map(drop)
}

async fn abandon_applied(s: &mut Script) -> Result<()> {
    let told = abandon(s, &[answers::applied("r", "a.txt", 3)], "applied").await?;
    same("the version", &told["version"], &json!(3))
}

async fn abandon_order(s: &mut Script) -> Result<()> {
    let (_, handle) = unknown(s).await?;
    let call = s.start(json!({"do": "abandon", "lock": "L", "handle": handle})).await?;
    s.take("DELETE", "/locks/*").await?.cut().await?;
    s.take("DELETE", "/locks/*").await?.problem("ledger-unavailable").await?;
    s.take("DELETE", "/locks/*").await?.problem("outcome-unknown").await?;
    let release = s.take("DELETE", "/locks/*").await?;
    s.quiet(1_000).await?;
    release.reply(Reply::json(200, &json!({"released": false, "buried": true}))).await?;
    s.take("GET", "/resources/r/operations").await?.reply(list(&[])).await?;
    answered(s, call, &[]).await?;
    same("the outcome", &s.ok(call).await?["outcome"], &json!("not_applied"))
}

async fn half_time(s: &mut Script) -> Result<()> {
    let (_, handle) = unknown(s).await?;
    s.pass(31 * 60_000).await?;
    let call = s.start(json!({"do": "resolve", "handle": handle, "within": "20s"})).await?;
    while s.open(call).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        let line = exchange.request.line();
        ensure!(
            exchange.request.method == "GET",
            "{line} came half an hour after the first sending"
        );
        exchange.reply(list(&[])).await?;
    }
    let error = s.fails(call, "OutcomeUnknown").await?;
    resends(&error, false)
}

async fn half_time_short(s: &mut Script) -> Result<()> {
    s.shared.auto.status("keys_kept_ms", json!(80_000));
    s.client_with(json!({"write_deadline": "120s"})).await?;
    s.lock_as("L", "7", json!({})).await?;
    let call = s.put("a.txt").await?;
    taken(s).await?.cut().await?;
    let mut last = 0;
    while s.open(call).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        if exchange.request.method == "GET" {
            exchange.reply(list(&[])).await?;
        } else {
            last = s.now();
            exchange.problem("resource-frozen").await?;
        }
    }
    within("the last sending", last, 30_000, 40_100)?;
    let error = s.fails(call, "OutcomeUnknown").await?;
    resends(&error, false)
}
