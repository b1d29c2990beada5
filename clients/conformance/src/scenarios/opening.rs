//! What leaves an attempt open, so that nobody knows what became of it.

use anyhow::{Context as _, Result};
use serde_json::json;

use super::writes::{PATH, taken};
use super::{Scenario, scenario};
use crate::script::Script;
use crate::server::{Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "open-by-unknown",
        [13],
        "`outcome: unknown` leaves an attempt open, whatever its code",
        by_unknown
    ),
    scenario!(
        "open-by-foreign",
        [8, 24],
        "an answer of somebody else leaves an attempt open",
        by_foreign
    ),
    scenario!("open-by-half-answer", [13, 24], "half an answer leaves an attempt open", by_half),
    scenario!(
        "open-by-in-progress",
        [24],
        "the client's own key in progress is an open attempt",
        by_in_progress
    ),
    scenario!(
        "open-by-own-key-used",
        [24],
        "the client's own key used for other bytes is an open attempt",
        by_own_key_used
    ),
    scenario!("not-open-unsent", [13], "what could not connect was not sent", unsent),
];

async fn by_unknown(s: &mut Script) -> Result<()> {
    s.lock().await?;
    for code in [
        "outcome-unknown",
        "ledger-unavailable",
        "version-mismatch",
        "internal",
        "request-malformed",
    ] {
        let call = s.put("a.txt").await?;
        let first = taken(s).await?;
        first
            .problem_with(code, json!({"outcome": "unknown", "operation": answers::OPERATION}))
            .await?;
        taken(s).await.with_context(|| format!("after {code}"))?.problem("resource-frozen").await?;
        let third = taken(s).await.with_context(|| format!("after {code} and a refusal"))?;
        third.written(1).await?;
        s.ok_now(call).await?;
    }
    Ok(())
}

async fn by_foreign(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let first = taken(s).await?;
    let refused = first.problem_reply("fence-token-stale", &json!({}))?;
    first.reply(refused.foreign()).await?;
    let second = taken(s).await.context("it believed a refusal of somebody else")?;
    second.reply(second.written_reply(1)?.as_answer_to("of-another-request")).await?;
    let third = taken(s).await.context("it believed a success of somebody else")?;
    third.reply(Reply::page(413)).await?;
    taken(s).await?.reply(Reply::page(200)).await?;
    taken(s).await?.reply(Reply::page(407)).await?;
    taken(s).await?.problem("resource-frozen").await?;
    taken(s).await?.written(1).await?;
    s.ok_now(call).await?;
    s.no_event("lost").await
}

async fn by_half(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let first = taken(s).await?;
    first.cut_in_body(first.written_reply(1)?, 10).await?;
    let second = taken(s).await?;
    second.cut_in_body(second.problem_reply("resource-frozen", &json!({}))?, 10).await?;
    let third = taken(s).await?;
    third.cut_in_body(third.written_reply(1)?.chunked(7), 20).await?;
    taken(s).await?.problem("resource-frozen").await?;
    let last = taken(s).await?;
    last.reply(last.written_reply(1)?.header("idempotent-replayed", "true")).await?;
    s.ok_now(call).await.map(drop)
}

async fn by_in_progress(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    taken(s).await?.problem("idempotency-in-progress").await?;
    taken(s).await?.problem("resource-frozen").await?;
    let third = taken(s).await.context("it took a refusal for the whole truth")?;
    third.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn by_own_key_used(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    taken(s).await?.problem("idempotency-key-reused").await?;
    let second = taken(s).await.context("it took its own key for somebody else's")?;
    second.reply(second.written_reply(1)?.header("idempotent-replayed", "true")).await?;
    s.ok_now(call).await.map(drop)
}

async fn unsent(s: &mut Script) -> Result<()> {
    s.client_with(json!({"write_deadline": "10s"})).await?;
    let call = s.acquire("L", json!({"watch": false})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    // Nothing is sent on a connection that has ended, if the client knows that it has.
    asked.reply(asked.granted("7", &json!({}))?.last()).await?;
    s.held("L", call).await?;
    s.gateways.first_mut().context("a gateway")?.down().await;
    let call = s.put("a.txt").await?;
    s.pass(4_000).await?;
    s.gateways.first_mut().context("a gateway")?.up().await?;
    let put = s.take("PUT", PATH).await?;
    put.reply(put.problem_reply("resource-frozen", &json!({}))?.last()).await?;
    s.fails(call, "Busy").await?;
    s.gateways.first_mut().context("a gateway")?.down().await;
    let call = s.put("a.txt").await?;
    s.fails(call, "Unavailable").await.map(drop)
}
