//! The attempts of a write: what they have in common, and when there is another.

use anyhow::Result;
use serde_json::json;

use super::writes::{PATH, marks, taken};
use super::{Scenario, scenario};
use crate::script::{Script, same, uuid_version, within};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "write-same-again",
        [8, 22],
        "all attempts have the same key, number and bytes",
        same_again
    ),
    scenario!(
        "write-replayed",
        [13, 24],
        "a lost answer is asked for again, and said to be replayed",
        replayed
    ),
    scenario!(
        "write-retry-after",
        [10],
        "the gateway's time to try again is waited for",
        retry_after
    ),
    scenario!("write-retry-after-header", [10], "so is that of the header", retry_after_header),
    scenario!("write-backoff", [10], "pauses grow, to 2 s at most", backoff),
    scenario!("write-once", [10], "one attempt is one attempt", once),
    scenario!(
        "write-unavailable",
        [10, 58],
        "what was never applied is unavailable at the deadline",
        unavailable
    ),
    scenario!("write-at-once", [11], "what no repetition helps is told at once", at_once),
    scenario!(
        "write-ride-out",
        [11],
        "frozen resources are waited out if the caller wants it",
        ride_out
    ),
    scenario!("write-in-progress", [11], "a key in progress is asked for again", in_progress),
];

async fn same_again(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let first = taken(s).await?;
    first.problem("overloaded").await?;
    let second = taken(s).await?;
    second.cut().await?;
    let third = taken(s).await?;
    third.problem("ledger-unavailable").await?;
    let fourth = taken(s).await?;
    let id = first.request.must("x-request-id")?.to_owned();
    same("the version of the request id", &uuid_version("the request id", &id)?, &7)?;
    for (number, attempt) in [(2, &second), (3, &third), (4, &fourth)] {
        same("key and number", &marks(&attempt.request)?, &marks(&first.request)?)?;
        same("the body", &attempt.request.text(), "hello")?;
        same("the request id", attempt.request.must("x-request-id")?, &format!("{id}.{number}"))?;
    }
    fourth.written(1).await?;
    same("the attempts", &s.ok_now(call).await?["attempts"], &json!(4))
}

async fn replayed(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let first = taken(s).await?;
    first.cut_after(first.written_reply(1)?, 25).await?;
    let second = taken(s).await?;
    let reply = second.written_reply(1)?.header("idempotent-replayed", "true");
    second.reply(reply).await?;
    let told = s.ok_now(call).await?;
    same("replayed", &told["replayed"], &json!(true))?;
    same("the version", &told["version"], &json!(1))
}

async fn retry_after(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let first = taken(s).await?;
    let reply = first.problem_reply("overloaded", &json!({"retry_after_ms": 4_000}))?;
    first.reply(reply.header("retry-after", "1")).await?;
    s.quiet(3_900).await?;
    s.take_within(2_200, "PUT", PATH).await?.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn retry_after_header(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let first = taken(s).await?;
    first.reply(first.problem_reply("overloaded", &json!({}))?.header("retry-after", "4")).await?;
    s.quiet(3_900).await?;
    s.take_within(2_200, "PUT", PATH).await?.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn backoff(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let mut last = s.now();
    for attempt in 0..12_u32 {
        let most = (50 * 2_u64.pow(attempt.saturating_sub(1))).min(2_000);
        let put = s.take_within(2_100, "PUT", PATH).await?;
        if attempt > 0 {
            within("the pause", s.now() - last, 0, most + 30)?;
        }
        last = s.now();
        put.problem("overloaded").await?;
    }
    within("all pauses", s.now(), 1_000, 16_000)?;
    taken(s).await?.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn once(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put_with("a.txt", json!({"attempts": 1})).await?;
    taken(s).await?.problem("overloaded").await?;
    let error = s.fails_now(call, "Unavailable").await?;
    same("the code", &error["code"], &json!("overloaded"))?;
    s.quiet(8_000).await
}

async fn unavailable(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let refused = s.refuse_until(call, "overloaded").await?;
    within("the time", s.now(), 57_000, 61_000)?;
    let error = s.fails(call, "Unavailable").await?;
    same("the attempts", &error["attempts"].as_u64(), &Some(refused))?;
    let asked = s.shared.seen().iter().filter(|seen| seen.path.contains("operations")).count();
    same("the questions", &asked, &0)
}

async fn at_once(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let codes = [
        ("resource-frozen", "Busy"),
        ("resource-draining", "Busy"),
        ("payload-too-large", "Misuse"),
        ("fence-token-unknown", "Misuse"),
        ("resource-protected", "Misuse"),
        ("too-many-objects", "Misuse"),
        ("internal", "GatewayFault"),
    ];
    for (code, class) in codes {
        let call = s.put("a.txt").await?;
        s.take_now("PUT", PATH).await?.problem(code).await?;
        let error = s.fails_now(call, class).await?;
        same("the code", &error["code"], &json!(code))?;
    }
    let call = s.put_with("a.txt", json!({"key": "message-17"})).await?;
    s.take_now("PUT", PATH).await?.problem("idempotency-key-reused").await?;
    s.fails_now(call, "Misuse").await?;
    s.quiet(5_000).await
}

async fn ride_out(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put_with("a.txt", json!({"ride_out": true})).await?;
    let first = taken(s).await?;
    first.problem("resource-frozen").await?;
    taken(s).await?.problem("resource-draining").await?;
    let third = taken(s).await?;
    same("key and number", &marks(&third.request)?, &marks(&first.request)?)?;
    third.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn in_progress(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put_with("a.txt", json!({"key": "message-17"})).await?;
    taken(s).await?.problem("idempotency-in-progress").await?;
    taken(s).await?.written(1).await?;
    s.ok_now(call).await.map(drop)
}
