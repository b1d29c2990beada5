//! Outcomes that are not known: when it is asked what became of a write, and what the answer means.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::writes::{marks, taken};
use super::{Scenario, scenario};
use crate::script::{Script, same, within};
use crate::server::{Exchange, Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "unknown-asks-by-key",
        [24],
        "at the deadline it is asked by key; `applied` is success",
        by_key
    ),
    scenario!("unknown-asks-by-id", [24], "if an operation was seen, it is asked by its id", by_id),
    scenario!("unknown-empty", [24], "an empty list decides nothing", empty),
    scenario!("unknown-not-found", [24], "404 decides nothing", not_found),
    scenario!(
        "unknown-not-applied",
        [24],
        "`not_applied` of an operation decides nothing",
        not_applied
    ),
    scenario!(
        "unknown-question-foreign",
        [8, 24],
        "a proxy's answer to the question decides nothing",
        foreign
    ),
];

/// The lock `L`, with short patience.
async fn lock(s: &mut Script) -> Result<()> {
    s.client_with(json!({"write_deadline": "5s"})).await?;
    s.lock_as("L", "7", json!({})).await.map(drop)
}

/// Refuses a put until the client asks, and gives the question.
async fn question(s: &mut Script) -> Result<Exchange> {
    loop {
        let exchange = s.any_within(10_000).await?.context("it never asked what became of it")?;
        if exchange.request.method == "GET" {
            return Ok(exchange);
        }
        exchange.problem("resource-frozen").await?;
    }
}

/// A put whose first attempt is open, and the question about it.
pub(super) async fn asked(s: &mut Script) -> Result<(crate::script::Call, String, Exchange)> {
    lock(s).await?;
    let call = s.put("a.txt").await?;
    let first = taken(s).await?;
    let key = marks(&first.request)?.0;
    first.cut().await?;
    let asked = question(s).await?;
    ensure!(asked.request.is("GET", "/resources/r/operations"), "{}", asked.request.line());
    same(
        "the key that is asked for",
        &asked.request.queried("idempotency_key"),
        &Some(key.clone()),
    )?;
    Ok((call, key, asked))
}

pub(super) fn list(items: &[Value]) -> Reply {
    Reply::json(200, &json!({ "items": items }))
}

async fn by_key(s: &mut Script) -> Result<()> {
    let (call, key, asked) = asked(s).await?;
    within("the time", s.now(), 3_000, 6_000)?;
    asked.reply(list(&[answers::applied("r", "a.txt", 3)])).await?;
    let told = s.ok_now(call).await?;
    same("replayed", &told["replayed"], &json!(true))?;
    same("the version", &told["version"], &json!(3))?;
    same("the operation", &told["operation"], &json!(answers::OPERATION))?;
    same("the key", &told["key"], &json!(key))
}

async fn by_id(s: &mut Script) -> Result<()> {
    lock(s).await?;
    let call = s.put("a.txt").await?;
    let first = taken(s).await?;
    let document = json!({"outcome": "unknown", "operation": answers::OPERATION});
    let reply = first.problem_reply("outcome-unknown", &document)?;
    first.reply(reply.header("x-operation-id", answers::OPERATION)).await?;
    let asked = question(s).await?;
    same(
        "the question",
        &asked.request.line(),
        &format!("GET /operations/{}", answers::OPERATION),
    )?;
    asked.reply(Reply::json(200, &answers::applied("r", "a.txt", 3))).await?;
    let told = s.ok_now(call).await?;
    same("replayed", &told["replayed"], &json!(true))?;
    same("the version", &told["version"], &json!(3))
}

async fn empty(s: &mut Script) -> Result<()> {
    super::resolving::unknown(s).await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn not_found(s: &mut Script) -> Result<()> {
    lock(s).await?;
    let call = s.put("a.txt").await?;
    let first = taken(s).await?;
    let document = json!({"outcome": "unknown", "operation": answers::OPERATION});
    first.problem_with("outcome-unknown", document).await?;
    question(s).await?.problem("operation-not-found").await?;
    let mut more = 0;
    while s.open(call).await? {
        // It may ask by key, too.
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        more += 1;
        ensure!(more < 20 && exchange.request.method == "GET", "{}", exchange.request.line());
        exchange.problem("operation-not-found").await?;
    }
    let error = s.fails(call, "OutcomeUnknown").await?;
    same("the operation", &error["operation"], &json!(answers::OPERATION))
}

fn never() -> Reply {
    Reply::json(200, &json!({"operation": answers::OPERATION, "outcome": "not_applied"}))
}

async fn not_applied(s: &mut Script) -> Result<()> {
    lock(s).await?;
    for attempts in [json!({"attempts": 1}), json!({})] {
        let call = s.put_with("a.txt", attempts).await?;
        let document = json!({"outcome": "unknown", "operation": answers::OPERATION});
        taken(s).await?.problem_with("outcome-unknown", document).await?;
        question(s).await?.reply(never()).await?;
        while s.open(call).await? {
            let Some(exchange) = s.any_within(1_000).await? else { continue };
            exchange.reply(list(&[])).await?;
        }
        s.fails(call, "OutcomeUnknown").await?;
    }
    Ok(())
}

async fn foreign(s: &mut Script) -> Result<()> {
    let (call, _, asked) = asked(s).await?;
    asked.reply(list(&[answers::applied("r", "a.txt", 3)]).foreign()).await?;
    while s.open(call).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        exchange.reply(Reply::page(404)).await?;
    }
    s.fails(call, "OutcomeUnknown").await.map(drop)
}
