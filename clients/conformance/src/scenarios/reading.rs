//! Reading: whole objects, streams that break and go on, lists page by page.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Scenario, scenario};
use crate::script::{Call, Script, same};
use crate::server::Reply;
use crate::server::answers::{self, object};

pub(super) const ALL: &[Scenario] = &[
    scenario!("read-get", [4, 47], "an object is read without a token", get),
    scenario!("read-absent", [47, 58], "what is not there is told", absent),
    scenario!("read-again", [10, 11], "a read that failed is tried again", again),
    scenario!("read-short", [47], "fewer bytes than were promised are not the object", short),
    scenario!("read-resumed", [47], "a stream that breaks goes on where it was", resumed),
    scenario!("read-resumed-changed", [47], "unless the object has changed meanwhile", changed),
    scenario!("read-resumed-often", [47], "but only five times", often),
    scenario!("read-digest", [47], "a digest in the answer is checked", digest),
    scenario!("read-list", [47], "a list is read page by page", list),
    scenario!(
        "read-list-empty",
        [47],
        "an empty page is not the last if there is a cursor",
        empty_page
    ),
    scenario!("read-download", [47], "a file is there whole, or not at all", download)
        .needs(&["download"]),
];

const PATH: &str = "/resources/r/objects/a.txt";

async fn read(s: &mut Script, what: &str) -> Result<Call> {
    s.start(json!({"do": what, "resource": "r", "object": "a.txt"})).await
}

async fn get(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = read(s, "get").await?;
    let asked = s.take_now("GET", PATH).await?;
    ensure!(!asked.request.has("x-fence-token"), "a read has no token");
    asked.object("hello", 3).await?;
    let told = s.ok_now(call).await?;
    same("the text", &told["text"], &json!("hello"))?;
    same("the tag", &told["etag"], &json!(answers::tag(3)))
}

async fn absent(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = read(s, "get").await?;
    s.take_now("GET", PATH).await?.problem("object-not-found").await?;
    s.fails_now(call, "NotFound").await.map(drop)
}

async fn again(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = read(s, "get").await?;
    s.take("GET", PATH).await?.cut().await?;
    s.take("GET", PATH).await?.problem("ledger-unavailable").await?;
    s.take("GET", PATH).await?.reply(Reply::page(502)).await?;
    s.take("GET", PATH)
        .await?
        .problem_with("outcome-unknown", json!({"outcome": "unknown"}))
        .await?;
    s.take("GET", PATH).await?.object("hello", 3).await?;
    same("the text", &s.ok_now(call).await?["text"], &json!("hello"))
}

async fn short(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = read(s, "get").await?;
    let first = s.take("GET", PATH).await?;
    first.begin(object("hel", 3).claiming(5)).await?;
    first.cut().await?;
    let second = s.take("GET", PATH).await?;
    let rest = second.request.header("range").map(str::to_owned);
    match rest.as_deref() {
        None => second.object("hello", 3).await?,
        Some(range) => {
            same("the range", range, "bytes=3-")?;
            second.reply(part("lo", 3, 3, 5)).await?;
        }
    }
    same("the text", &s.ok(call).await?["text"], &json!("hello"))
}

/// The answer to a request for a range.
fn part(text: &str, version: i64, from: usize, size: usize) -> Reply {
    let last = from + text.len() - 1;
    let reply = object(text, version).with_status(206);
    reply.header("content-range", format!("bytes {from}-{last}/{size}"))
}

fn told(text: &str) -> Value {
    json!({"size": text.len(), "sha256": hex::encode(Sha256::digest(text))})
}

async fn resumed(s: &mut Script) -> Result<()> {
    s.client().await?;
    let text = "0123456789";
    let call = read(s, "open").await?;
    s.take("GET", PATH).await?.cut_in_body(object(text, 3), 4).await?;
    let second = s.take("GET", PATH).await?;
    same("the range", second.request.must("range")?, "bytes=4-")?;
    same("the condition", second.request.must("if-range")?, &answers::tag(3))?;
    second.cut_in_body(part("456789", 3, 4, 10), 3).await?;
    let third = s.take("GET", PATH).await?;
    same("the range", third.request.must("range")?, "bytes=7-")?;
    third.reply(part("789", 3, 7, 10)).await?;
    let have = s.ok(call).await?;
    same("what was read", &json!({"size": have["size"], "sha256": have["sha256"]}), &told(text))
}

async fn changed(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = read(s, "open").await?;
    s.take("GET", PATH).await?.cut_in_body(object("0123456789", 3), 4).await?;
    s.take("GET", PATH).await?.reply(object("abcdefghij", 4)).await?;
    s.fails(call, "Changed").await.map(drop)
}

async fn often(s: &mut Script) -> Result<()> {
    s.client().await?;
    let text = "0123456789";
    let call = read(s, "open").await?;
    s.take("GET", PATH).await?.cut_in_body(object(text, 3), 1).await?;
    for from in 1..=5 {
        let next = s.take("GET", PATH).await?;
        same("the range", next.request.must("range")?, &format!("bytes={from}-"))?;
        let rest = text.get(from..).unwrap_or_default();
        next.cut_in_body(part(rest, 3, from, 10), 1).await?;
    }
    let answer = s.answer(call).await?;
    ensure!(answer.get("error").is_some(), "it has read what was never sent: {answer}");
    s.quiet(5_000).await
}

async fn digest(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = read(s, "get").await?;
    let wrong =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, Sha256::digest("other"));
    let digest = format!("sha-256=:{wrong}:");
    let mut asked = 0;
    while s.open(call).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        asked += 1;
        ensure!(asked < 200, "it asks for ever");
        exchange.reply(object("hello", 3).header("repr-digest", digest.clone())).await?;
    }
    let answer = s.answer(call).await?;
    ensure!(
        answer.get("error").is_some(),
        "it gave out bytes that are not those of the digest: {answer}"
    );
    Ok(())
}

fn entry(key: &str) -> Value {
    json!({
        "key": key, "version": 1, "etag": answers::tag(1), "size": 1, "sha256": null, "content_type": "text/plain",
        "written_at": answers::MOMENT,
    })
}

async fn list(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.start(json!({"do": "list", "resource": "r", "prefix": "a/"})).await?;
    let first = s.take_now("GET", "/resources/r/objects").await?;
    same("the prefix", &first.request.queried("prefix"), &Some("a/".to_owned()))?;
    ensure!(first.request.queried("cursor").is_none(), "the first page has no cursor");
    let page = json!({"items": [entry("a/1"), entry("a/../x")], "next_cursor": "here+and/there=="});
    first.reply(Reply::json(200, &page)).await?;
    let second = s.take("GET", "/resources/r/objects").await?;
    same("the cursor", &second.request.queried("cursor"), &Some("here+and/there==".to_owned()))?;
    same("the prefix", &second.request.queried("prefix"), &Some("a/".to_owned()))?;
    second.reply(Reply::json(200, &json!({"items": [entry("a/2")]}))).await?;
    same("the objects", &s.ok_now(call).await?["objects"], &json!(["a/1", "a/../x", "a/2"]))
}

async fn empty_page(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.start(json!({"do": "list", "resource": "r"})).await?;
    let first = s.take_now("GET", "/resources/r/objects").await?;
    first.reply(Reply::json(200, &json!({"items": [], "next_cursor": "x"}))).await?;
    let second = s.take("GET", "/resources/r/objects").await?;
    second.problem("ledger-unavailable").await?;
    let third = s.take("GET", "/resources/r/objects").await?;
    same("the cursor", &third.request.queried("cursor"), &Some("x".to_owned()))?;
    third.reply(Reply::json(200, &json!({"items": [entry("2")]}))).await?;
    same("the objects", &s.ok_now(call).await?["objects"], &json!(["2"]))
}

async fn download(s: &mut Script) -> Result<()> {
    s.client().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("a.txt");
    std::fs::write(&file, "before")?;
    let to = file.to_str().context("the path is text")?.to_owned();
    let call =
        s.start(json!({"do": "download", "resource": "r", "object": "a.txt", "to": to})).await?;
    let first = s.take("GET", PATH).await?;
    first.begin(object("0123", 3).claiming(10)).await?;
    s.settle().await?;
    same("the file meanwhile", &std::fs::read_to_string(&file)?, "before")?;
    first.cut().await?;
    s.take("GET", PATH).await?.reply(part("456789", 3, 4, 10)).await?;
    s.ok(call).await?;
    same("the file", &std::fs::read_to_string(&file)?, "0123456789")?;
    let left = std::fs::read_dir(folder.path())?.count();
    same("the files in its folder", &left, &1)
}
