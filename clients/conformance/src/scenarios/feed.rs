//! The feed of committed writes: each event once, across breaks of all kinds.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Scenario, scenario};
use crate::script::{Call, Script, same, within};
use crate::server::{Exchange, Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!("feed-stream", [48], "events are read from the stream", stream).needs(&["events"]),
    scenario!("feed-pieces", [48], "however the bytes of the stream are cut", pieces)
        .needs(&["events"]),
    scenario!(
        "feed-reconnects",
        [48],
        "a stream that ends is gone on with, from the last cursor",
        reconnects
    )
    .needs(&["events"]),
    scenario!("feed-each-once", [48], "each event is told once", each_once).needs(&["events"]),
    scenario!("feed-dead", [48], "a stream that says nothing for a minute is dead", dead)
        .needs(&["events"]),
    scenario!("feed-comments", [48], "comments keep a stream alive", comments).needs(&["events"]),
    scenario!("feed-void", [48, 58], "a void cursor is told, with where to begin", void)
        .needs(&["events"]),
    scenario!("feed-void-continue", [48], "or gone on behind, with a mark", void_continue)
        .needs(&["events"]),
    scenario!("feed-refused", [10, 48], "an unavailable feed is asked again", refused)
        .needs(&["events"]),
];

/// A stream that begins as the gateway's do: with the place at which it begins.
fn opened(after: &str) -> Reply {
    let stream = Reply::new(200).header("content-type", "text/event-stream").claiming(1 << 40);
    stream.body(format!("id: {after}\n\n"))
}

fn data(number: u32) -> Value {
    json!({
        "event": format!("g0-{number}"), "resource": "r", "version": number, "operation": answers::OPERATION,
        "kind": "put", "key": "a.txt", "size": 5, "owner": "worker-a", "committed_at": answers::MOMENT,
    })
}

fn event(number: u32) -> String {
    format!("id: g0-{number}\nevent: write\ndata: {}\n\n", data(number))
}

async fn follow(s: &mut Script, extra: Value) -> Result<Call> {
    s.client().await?;
    let mut command = json!({"do": "events", "stream": "E", "after": "g0-0"});
    if let (Some(command), Some(extra)) = (command.as_object_mut(), extra.as_object()) {
        command.extend(extra.clone());
    }
    s.start(command).await
}

/// The next request for the feed, and behind which event it asks to go on.
async fn asked(s: &mut Script) -> Result<(Exchange, String)> {
    let asked = s.take("GET", "/events").await?;
    let after =
        asked.request.header("last-event-id").filter(|id| !id.is_empty()).map(str::to_owned);
    let after = after.or_else(|| asked.request.queried("after")).context("it has no cursor")?;
    Ok((asked, after))
}

async fn next(s: &mut Script, number: u32) -> Result<()> {
    let write = s.event_within(0, "write").await.with_context(|| format!("event {number}"))?;
    same("the cursor", &write["cursor"], &json!(format!("g0-{number}")))?;
    same("the version", &write["version"], &json!(number))
}

async fn stream(s: &mut Script) -> Result<()> {
    let call = follow(s, json!({})).await?;
    let (feed, after) = asked(s).await?;
    same("the cursor", after.as_str(), "g0-0")?;
    let accepts = feed.request.header("accept").unwrap_or_default();
    ensure!(accepts.contains("text/event-stream"), "it accepts {accepts:?}");
    feed.begin(opened(&after)).await?;
    feed.bytes(event(1) + &event(2)).await?;
    next(s, 1).await?;
    next(s, 2).await?;
    s.cancel(call).await?;
    s.pass(100).await?;
    ensure!(feed.gone(), "it still reads the feed");
    Ok(())
}

async fn pieces(s: &mut Script) -> Result<()> {
    follow(s, json!({})).await?;
    let (feed, _) = asked(s).await?;
    feed.begin(opened("").body("\u{feff}")).await?;
    let mut first = data(1);
    first["owner"] = json!("gr\u{fc}n \u{1f512}");
    let text = format!(": hello\r\nretry: 5\r\nid: g0-1\r\nevent: write\r\ndata: {first}\r\n\r\n");
    for byte in text.into_bytes() {
        feed.bytes(vec![byte]).await?;
        s.settle().await?;
    }
    next(s, 1).await?;
    let text = data(2).to_string();
    let (left, right) = text.split_once(',').context("it has two halves")?;
    feed.bytes(format!("id:g0-2\revent:write\rdata:{left},\rdata:{right}\r\r")).await?;
    feed.bytes(": \n").await?;
    next(s, 2).await?;
    feed.bytes("event: other\ndata: {}\n\n").await?;
    feed.bytes(event(3)).await?;
    next(s, 3).await
}

async fn reconnects(s: &mut Script) -> Result<()> {
    follow(s, json!({})).await?;
    let (feed, after) = asked(s).await?;
    feed.begin(opened(&after)).await?;
    feed.bytes(event(1) + &event(2) + "id: g0-3\nevent: write\ndata: {\"half").await?;
    next(s, 1).await?;
    next(s, 2).await?;
    feed.cut().await?;
    let (feed, after) = asked(s).await?;
    same("the cursor", after.as_str(), "g0-2")?;
    feed.begin(opened(&after)).await?;
    feed.bytes(event(3)).await?;
    next(s, 3).await
}

async fn each_once(s: &mut Script) -> Result<()> {
    follow(s, json!({})).await?;
    let (feed, after) = asked(s).await?;
    feed.begin(opened(&after)).await?;
    feed.bytes(event(1) + &event(2)).await?;
    next(s, 1).await?;
    next(s, 2).await?;
    feed.cut().await?;
    let (feed, after) = asked(s).await?;
    feed.begin(opened(&after)).await?;
    feed.bytes(event(2) + &event(3)).await?;
    next(s, 3).await?;
    s.no_event("write").await
}

async fn dead(s: &mut Script) -> Result<()> {
    follow(s, json!({})).await?;
    let (feed, after) = asked(s).await?;
    feed.begin(opened(&after)).await?;
    feed.bytes(event(1)).await?;
    next(s, 1).await?;
    let before = s.now();
    let again = s.take_within(70_000, "GET", "/events").await?;
    within("the silence", s.now() - before, 59_000, 65_000)?;
    ensure!(feed.gone(), "it still reads the dead stream");
    again.begin(opened("g0-1")).await?;
    again.bytes(event(2)).await?;
    next(s, 2).await
}

async fn comments(s: &mut Script) -> Result<()> {
    follow(s, json!({})).await?;
    let (feed, after) = asked(s).await?;
    feed.begin(opened(&after)).await?;
    for _ in 0..6 {
        s.quiet(40_000).await?;
        feed.bytes(": \n\n").await?;
    }
    feed.bytes(event(1)).await?;
    next(s, 1).await
}

async fn void(s: &mut Script) -> Result<()> {
    let call = follow(s, json!({})).await?;
    let (feed, _) = asked(s).await?;
    feed.problem_with("events-cursor-void", json!({"begin_after": "g1-40"})).await?;
    let error = s.fails(call, "CursorVoid").await?;
    same("where to begin", &error["begin_after"], &json!("g1-40"))?;
    s.quiet(5_000).await
}

async fn void_continue(s: &mut Script) -> Result<()> {
    follow(s, json!({"on_void": "continue"})).await?;
    let (feed, _) = asked(s).await?;
    feed.problem_with("events-cursor-void", json!({"begin_after": "g1-40"})).await?;
    s.settle().await?;
    let (feed, after) = asked(s).await?;
    same("the cursor", after.as_str(), "g1-40")?;
    feed.begin(opened(&after)).await?;
    s.event_within(0, "void").await?;
    feed.bytes(event(1)).await?;
    s.settle().await?;
    s.event_within(0, "write").await.map(drop)
}

async fn refused(s: &mut Script) -> Result<()> {
    follow(s, json!({})).await?;
    asked(s).await?.0.problem("ledger-unavailable").await?;
    asked(s).await?.0.cut().await?;
    asked(s).await?.0.reply(Reply::page(502)).await?;
    let (feed, after) = asked(s).await?;
    same("the cursor", after.as_str(), "g0-0")?;
    feed.begin(opened(&after)).await?;
    feed.bytes(event(1)).await?;
    next(s, 1).await
}
