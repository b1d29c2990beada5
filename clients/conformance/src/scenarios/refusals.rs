//! Refusals: each code has one class, also those that only newer gateways have.

use anyhow::{Context as _, Result, ensure};
use fencegate_wire::ErrorCode;
use serde_json::json;

use super::{Scenario, scenario};
use crate::script::{Script, same};
use crate::server::{Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!("class-of-codes", [58], "each code has its class", codes),
    scenario!(
        "class-of-newer-codes",
        [7, 58],
        "codes of newer gateways are classed by their status",
        newer
    ),
    scenario!(
        "class-of-unknown-outcome",
        [58],
        "`outcome: unknown` counts more than the code",
        unknown_outcome
    ),
    scenario!("class-of-foreign", [58], "what is no gateway's answer is told so", foreign),
    scenario!("error-carries", [58], "an error carries what the gateway said", carries),
];

macro_rules! classes {
    ($($(#[$doc:meta])+ $code:ident, $text:literal, $status:literal, $retryable:literal, $class:ident, $calls:ident, $title:literal;)+) => {
        /// All codes, and the class of each by its name.
        pub const CLASSES: &[(ErrorCode, &str)] = &[$((ErrorCode::$code, stringify!($class))),+];
    };
}

fencegate_wire::each_code!(classes);

/// What a put that may be sent once is told of this code. Questions about it find nothing.
async fn told_of(s: &mut Script, document: &serde_json::Value) -> Result<serde_json::Value> {
    let name = document["code"].as_str().context("a code")?.to_owned();
    s.lock_as("L", "7", json!({"resources": [format!("for-{name}")]})).await?;
    let call = s.put_with("a.txt", json!({"attempts": 1})).await?;
    let put = s.take("PUT", "/resources/*/objects/a.txt").await?;
    put.reply(put.document(document)).await?;
    while s.open(call).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        ensure!(exchange.request.method != "POST", "{} came after {name}", exchange.request.line());
        exchange.reply(Reply::json(200, &json!({"items": []}))).await?;
    }
    // A lock that may be left is given back.
    while let Some(exchange) = s.any_within(0).await? {
        exchange.empty(204).await?;
    }
    let answer = s.answer(call).await?;
    answer.get("error").cloned().with_context(|| format!("{name} is no error: {answer}"))
}

async fn codes(s: &mut Script) -> Result<()> {
    s.client().await?;
    for (code, class) in CLASSES {
        let document = answers::problem(code.as_str(), code.status(), code.retryable(), &json!({}));
        let error = told_of(s, &document).await?;
        // The client's own key, in progress or used, is an attempt of its own.
        let own =
            matches!(code, ErrorCode::IdempotencyInProgress | ErrorCode::IdempotencyKeyReused);
        let class = if own { "OutcomeUnknown" } else { class };
        same(code.as_str(), &error["class"], &json!(class))?;
    }
    Ok(())
}

async fn newer(s: &mut Script) -> Result<()> {
    s.client().await?;
    let cases = [
        ("newer-a", 401, false, "Denied"),
        ("newer-b", 403, false, "Denied"),
        ("newer-c", 404, false, "NotFound"),
        ("newer-d", 409, true, "Busy"),
        ("newer-e", 423, true, "Busy"),
        ("newer-f", 429, true, "Busy"),
        ("fence-newer", 412, false, "LockLost"),
        ("newer-g", 412, false, "Changed"),
        ("newer-h", 409, false, "Misuse"),
        ("newer-i", 418, false, "Misuse"),
        ("newer-j", 503, true, "Unavailable"),
        ("newer-k", 500, false, "GatewayFault"),
    ];
    for (code, status, retryable, class) in cases {
        let error = told_of(s, &answers::problem(code, status, retryable, &json!({}))).await?;
        same(code, &error["class"], &json!(class))?;
        same("the code", &error["code"], &json!(code))?;
    }
    Ok(())
}

async fn unknown_outcome(s: &mut Script) -> Result<()> {
    s.client().await?;
    let unknown = json!({"outcome": "unknown"});
    for (code, status) in [("request-timeout", 408), ("request-malformed", 400), ("newer", 507)] {
        let error = told_of(s, &answers::problem(code, status, false, &unknown)).await?;
        same(code, &error["class"], &json!("OutcomeUnknown"))?;
    }
    Ok(())
}

async fn foreign(s: &mut Script) -> Result<()> {
    s.client_with(json!({"deadline": "2s"})).await?;
    let cases = [
        (Reply::page(403), "Denied"),
        (Reply::page(407), "Denied"),
        (Reply::page(404), "GatewayFault"),
        (Reply::page(200), "GatewayFault"),
        (Reply::page(302).header("location", "http://127.0.0.1:1/"), "GatewayFault"),
        (Reply::page(503), "Unavailable"),
    ];
    for (reply, class) in cases {
        let call = s.start(json!({"do": "get", "resource": "r", "object": "a.txt"})).await?;
        while s.open(call).await? {
            let Some(exchange) = s.any_within(1_000).await? else { continue };
            exchange.reply(reply.clone()).await?;
        }
        s.fails(call, class).await.with_context(|| format!("a page with {}", reply.status()))?;
    }
    Ok(())
}

async fn carries(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put_with("a.txt", json!({"attempts": 1})).await?;
    let put = s.take("PUT", "/resources/r/objects/a.txt").await?;
    let extra = json!({"detail": "far too large", "resource": "r"});
    put.problem_with("payload-too-large", extra).await?;
    let error = s.fails_now(call, "Misuse").await?;
    same("the code", &error["code"], &json!("payload-too-large"))?;
    same("the status", &error["status"], &json!(413))?;
    let detail = error["detail"].as_str().unwrap_or_default();
    ensure!(detail.contains("far too large"), "the detail is {detail:?}");
    same("the request id", &error["request_id"], &json!(put.request.must("x-request-id")?))?;
    same("the attempts", &error["attempts"], &json!(1))
}
