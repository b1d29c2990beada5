//! Between client and gateway: ids of requests, times, bytes that come as they like.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{Scenario, scenario};
use crate::script::{Call, Script, same, uuid_version, within};
use crate::server::{Exchange, Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!("request-ids", [8], "each attempt has the id of its call", request_ids),
    scenario!("user-agent", [8], "the client says what it is", user_agent),
    scenario!("prefix", [1, 4], "a path in front of the gateway is kept", prefix),
    scenario!("headers", [1], "the caller's headers are sent", headers),
    scenario!(
        "credential",
        [1],
        "the credential is asked for, and once more after a 401",
        credential
    ),
    scenario!("head-time", [9], "a head is waited for 15 s", head_time),
    scenario!(
        "head-time-of-gateway",
        [9],
        "and as long as the gateway says, once that is known to be longer",
        head_time_longer
    ),
    scenario!("head-time-wait", [9, 15], "a waiting call adds its wait", head_time_wait),
    scenario!("trickle", [9], "an answer may come byte by byte", trickle),
    scenario!("chunked", [9], "or in chunks", chunked),
    scenario!("interim", [9], "interim answers are passed over", interim),
    scenario!("answered-twice", [8], "an answer that comes twice answers one request", twice),
    scenario!("garbage", [13], "what is no HTTP is no answer", garbage),
];

pub(super) const PATH: &str = "/resources/r/objects/a.txt";

pub(super) async fn get(s: &mut Script) -> Result<Call> {
    s.start(json!({"do": "get", "resource": "r", "object": "a.txt"})).await
}

pub(super) async fn asked(s: &mut Script) -> Result<Exchange> {
    s.take("GET", PATH).await
}

/// A get that is answered; which gateway got it.
pub(super) async fn gets(s: &mut Script) -> Result<usize> {
    let call = get(s).await?;
    let exchange = asked(s).await?;
    exchange.object("hello", 3).await?;
    s.ok_now(call).await?;
    Ok(exchange.request.gateway)
}

async fn request_ids(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = get(s).await?;
    let first = asked(s).await?;
    let id = first.request.must("x-request-id")?.to_owned();
    same("the version of the id", &uuid_version("the id", &id)?, &7)?;
    first.problem("overloaded").await?;
    for number in 2..5 {
        let next = asked(s).await?;
        same("the id", next.request.must("x-request-id")?, &format!("{id}.{number}"))?;
        next.problem("overloaded").await?;
    }
    asked(s).await?.object("hello", 3).await?;
    s.ok_now(call).await?;
    let call = get(s).await?;
    let other = asked(s).await?;
    ensure!(!other.request.must("x-request-id")?.starts_with(&id), "two calls have one id");
    other.object("hello", 3).await?;
    s.ok_now(call).await.map(drop)
}

async fn user_agent(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = get(s).await?;
    let first = asked(s).await?;
    let agent = first.request.must("user-agent")?;
    let rest = agent.strip_prefix("fencegate-").with_context(|| format!("it is {agent}"))?;
    ensure!(rest.contains('/') && rest.ends_with(')') && rest.contains(" ("), "it is {agent}");
    first.object("hello", 3).await?;
    s.ok_now(call).await.map(drop)
}

async fn prefix(s: &mut Script) -> Result<()> {
    let urls: Vec<_> = s.urls().iter().map(|url| format!("{url}/in/front/")).collect();
    s.client_at(&urls, json!({})).await?;
    let call = get(s).await?;
    s.take_now("GET", "/in/front/resources/r/objects/a.txt").await?.object("hello", 3).await?;
    s.ok_now(call).await.map(drop)
}

async fn headers(s: &mut Script) -> Result<()> {
    s.client_with(json!({"headers": {"x-team": "billing"}})).await?;
    let call = get(s).await?;
    let first = asked(s).await?;
    same("the header", first.request.must("x-team")?, "billing")?;
    first.object("hello", 3).await?;
    s.ok_now(call).await.map(drop)
}

async fn denied(s: &mut Script) -> Result<String> {
    let exchange = asked(s).await?;
    let document = answers::problem("unauthenticated", 401, false, &json!({}));
    exchange.reply(exchange.document(&document)).await?;
    exchange.request.must("authorization").map(str::to_owned)
}

async fn credential(s: &mut Script) -> Result<()> {
    s.client_with(json!({"auth": ["one", "two", "three"]})).await?;
    let call = get(s).await?;
    same("the first", denied(s).await?.as_str(), "Bearer one")?;
    let exchange = asked(s).await?;
    same("the second", exchange.request.must("authorization")?, "Bearer two")?;
    let id = exchange.request.must("x-request-id")?;
    ensure!(id.ends_with(".again"), "the id of the second try is {id}");
    exchange.object("hello", 3).await?;
    s.ok_now(call).await?;
    let call = get(s).await?;
    denied(s).await?;
    denied(s).await?;
    s.fails_now(call, "Denied").await.map(drop)
}

async fn head_time(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = get(s).await?;
    let slow = asked(s).await?;
    s.pass(14_000).await?;
    slow.object("hello", 3).await?;
    s.ok_now(call).await?;
    let call = get(s).await?;
    let silent = asked(s).await?;
    let before = s.now();
    let again = s.take_within(20_000, "GET", PATH).await?;
    within("the time", s.now() - before, 14_900, 17_200)?;
    ensure!(silent.gone(), "it still waits for the first answer");
    again.object("hello", 3).await?;
    s.ok_now(call).await.map(drop)
}

async fn head_time_longer(s: &mut Script) -> Result<()> {
    s.shared.auto.status("answer_within_ms", json!(24_000));
    s.client_with(json!({"deadline": "120s"})).await?;
    // It may learn of that by waiting in vain once.
    let call = get(s).await?;
    let silent = asked(s).await?;
    let second = s.any_within(22_000).await?;
    let slow = match second {
        Some(second) => {
            drop(silent);
            s.quiet(22_000).await?;
            second
        }
        None => silent,
    };
    slow.object("hello", 3).await?;
    s.ok_now(call).await.map(drop)
}

async fn head_time_wait(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"wait": "60s", "ttl": "2m"})).await?;
    let slow = s.take_now("POST", "/locks").await?;
    s.quiet(35_000).await?;
    slow.grant("7").await?;
    s.held("L", call).await.map(drop)
}

async fn trickle(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", PATH).await?;
    let rest = put.trickle(put.written_reply(1)?).await?;
    // So that the first byte comes alone, however busy the machine is.
    s.pass(10).await?;
    put.rest(rest).await?;
    s.ok(call).await?;
    same("the puts", &s.shared.seen().iter().filter(|seen| seen.method == "PUT").count(), &1)
}

async fn chunked(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", PATH).await?;
    put.reply(put.written_reply(1)?.chunked(3)).await?;
    same("the version", &s.ok_now(call).await?["version"], &json!(1))?;
    let call = s.start(json!({"do": "list", "resource": "r"})).await?;
    let empty = Reply::json(200, &json!({"items": []}));
    s.take_now("GET", "/resources/r/objects").await?.reply(empty.chunked(2)).await?;
    same("the objects", &s.ok_now(call).await?["objects"], &json!([]))
}

async fn interim(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", PATH).await?;
    put.interim(103).await?;
    s.pass(6_000).await?;
    put.interim(102).await?;
    s.pass(6_000).await?;
    put.written(1).await?;
    s.ok_now(call).await?;
    s.quiet(2_000).await
}

async fn twice(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", PATH).await?;
    put.reply_twice(put.written_reply(1)?).await?;
    same("the version", &s.ok_now(call).await?["version"], &json!(1))?;
    let call = s.put("a.txt").await?;
    let second = s.take("PUT", PATH).await.context("it took the old answer for a new one")?;
    let (before, key) =
        (put.request.must("idempotency-key")?, second.request.must("idempotency-key")?);
    ensure!(before != key, "two writes have one key");
    second.written(2).await?;
    same("the version", &s.ok_now(call).await?["version"], &json!(2))
}

async fn garbage(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let first = s.take_now("PUT", PATH).await?;
    first.bytes("\u{0}\u{1}\u{2} 200 OK nonsense\r\n\r\n").await?;
    first.cut().await?;
    let second = s.take("PUT", PATH).await?;
    second.problem("resource-frozen").await?;
    s.take("PUT", PATH).await?.written(1).await?;
    s.ok_now(call).await?;
    let call = get(s).await?;
    let first = asked(s).await?;
    first.bytes("HTTP/9.9 900 ?\r\n\r\n").await?;
    // It has hung up by itself, perhaps.
    let _ = first.cut().await;
    asked(s).await?.object("hello", 3).await?;
    s.ok_now(call).await.map(drop)
}
