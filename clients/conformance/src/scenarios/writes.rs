//! Writes: what is sent with them, and what the caller is told.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Scenario, scenario};
use crate::script::{Script, same, uuid_version};
use crate::server::{Exchange, Reply, Request, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "write-headers",
        [20, 22, 23, 27],
        "a write has token, lock id, key and number",
        headers
    ),
    scenario!("write-told", [28], "a write tells what it became", told),
    scenario!(
        "write-own-key",
        [20, 22],
        "a key of the caller's own is sent, without a time of its own",
        own_key
    ),
    scenario!("write-keys-differ", [22], "each write has a key of its own", keys_differ),
    scenario!("write-changed", [58], "a changed object is told with what is there", changed),
    scenario!("write-conditions", [4], "conditions are sent as the gateway reads them", conditions),
    scenario!("write-delete", [20, 22], "deletes are writes", delete),
    scenario!("write-names", [4], "names are encoded byte by byte", names),
    scenario!(
        "write-names-refused",
        [4],
        "bad names are refused before they are sent",
        names_refused
    ),
    scenario!("write-which", [53], "with several resources a write names its own", which),
    scenario!("write-newer-answer", [7], "what is new in an answer is passed over", newer),
    scenario!(
        "write-unreadable-answer",
        [7, 24],
        "a write whose good answer has another body took effect",
        unreadable
    ),
];

pub(super) const PATH: &str = "/resources/r/objects/a.txt";

/// The next put of `a.txt`.
pub(super) async fn taken(s: &mut Script) -> Result<Exchange> {
    s.take("PUT", PATH).await
}

/// Key and number of a write.
pub(super) fn marks(request: &Request) -> Result<(String, Option<String>)> {
    let key = request.must("idempotency-key")?.to_owned();
    Ok((key, request.header("x-fence-seq").map(str::to_owned)))
}

async fn headers(s: &mut Script) -> Result<()> {
    let held = s.lock().await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", PATH).await?;
    let sent = &put.request;
    same("the token", sent.must("x-fence-token")?, &held.token)?;
    same("the lock id", sent.must("x-lock-id")?, &held.id)?;
    same("the version of the key", &uuid_version("the key", sent.must("idempotency-key")?)?, &7)?;
    same("how long the key is kept", sent.must("x-fence-key-kept")?, "1h")?;
    same("the number", sent.must("x-fence-seq")?, "1")?;
    same("the length", sent.must("content-length")?, "5")?;
    let digest = hex::decode(sent.sha256()).context("hexadecimal")?;
    let digest = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, digest);
    same("the digest", sent.must("repr-digest")?, &format!("sha-256=:{digest}:"))?;
    same("the body", &sent.text(), "hello")?;
    put.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn told(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", PATH).await?;
    let (key, number) = marks(&put.request)?;
    put.written(3).await?;
    let told = s.ok_now(call).await?;
    let want = json!({
        "resource": "r", "object": "a.txt", "version": 3, "etag": answers::tag(3), "size": 5,
        "sha256": put.request.sha256(), "operation": answers::OPERATION, "created": true, "replayed": false,
        "key": key, "attempts": 1,
    });
    for (name, want) in want.as_object().context("an object")? {
        same(name, &told[name], want)?;
    }
    let number = number.and_then(|number| number.parse::<u64>().ok());
    same("the number", &told["number"].as_u64(), &number)?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", PATH).await?;
    put.reply(put.written_reply(4)?.with_status(200)).await?;
    same("created", &s.ok_now(call).await?["created"], &json!(false))
}

async fn own_key(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put_with("a.txt", json!({"key": "message-17"})).await?;
    let put = s.take_now("PUT", PATH).await?;
    same("the key", put.request.must("idempotency-key")?, "message-17")?;
    ensure!(!put.request.has("x-fence-key-kept"), "it says how long the caller's key is kept");
    put.cut().await?;
    let put = taken(s).await?;
    same("the key", put.request.must("idempotency-key")?, "message-17")?;
    put.written(1).await?;
    same("the key that is told", &s.ok_now(call).await?["key"], &json!("message-17"))
}

async fn keys_differ(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let mut keys = std::collections::HashSet::new();
    for version in 1..4 {
        let call = s.put("a.txt").await?;
        let put = s.take_now("PUT", PATH).await?;
        keys.insert(marks(&put.request)?.0);
        put.written(version).await?;
        s.ok_now(call).await?;
    }
    same("the different keys", &keys.len(), &3)
}

async fn changed(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put_with("a.txt", json!({"if_match": answers::tag(1)})).await?;
    let put = s.take_now("PUT", PATH).await?;
    put.problem_with("version-mismatch", json!({"version": 9, "etag": answers::tag(8)})).await?;
    let error = s.fails_now(call, "Changed").await?;
    same("the version", &error["version"], &json!(9))?;
    same("the tag", &error["etag"], &json!(answers::tag(8)))?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn conditions(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let asked = [
        (json!({"if_match": answers::tag(1)}), "if-match", answers::tag(1)),
        (json!({"if_absent": true}), "if-none-match", "*".to_owned()),
        (json!({"expect_version": 17}), "x-if-resource-version", "17".to_owned()),
        (json!({"content_type": "text/csv"}), "content-type", "text/csv".to_owned()),
    ];
    for (extra, name, want) in asked {
        let call = s.put_with("a.txt", extra).await?;
        let put = s.take_now("PUT", PATH).await?;
        same(name, put.request.must(name)?, &want)?;
        put.written(1).await?;
        s.ok_now(call).await?;
    }
    Ok(())
}

async fn delete(s: &mut Script) -> Result<()> {
    let held = s.lock().await?;
    let command =
        json!({"do": "delete", "lock": "L", "object": "a.txt", "if_match": answers::tag(1)});
    let call = s.start(command).await?;
    let first = s.take_now("DELETE", PATH).await?;
    same("the condition", first.request.must("if-match")?, &answers::tag(1))?;
    first.cut().await?;
    let second = s.take("DELETE", PATH).await?;
    same("key and number", &marks(&second.request)?, &marks(&first.request)?)?;
    same("the lock id", second.request.must("x-lock-id")?, &held.id)?;
    second.reply(Reply::new(204).header("x-operation-id", answers::OPERATION)).await?;
    s.ok_now(call).await?;
    let call = s.start(json!({"do": "delete_all", "lock": "L"})).await?;
    let all = s.take_now("DELETE", "/resources/r").await?;
    same("the number", &marks(&all.request)?.1, &Some("2".to_owned()))?;
    all.reply(Reply::new(204).header("x-operation-id", answers::OPERATION)).await?;
    s.ok_now(call).await.map(drop)
}

async fn names(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.lock_as("L", "7", json!({"resources": ["job#1,a=b@c:d+e~f"]})).await?;
    let call = s.put("r\u{e9}sum\u{e9}/a b%20?.txt").await?;
    let put = s.any_within(0).await?.context("no request came")?;
    let want =
        "/resources/job%231%2Ca%3Db%40c%3Ad%2Be~f/objects/r%C3%A9sum%C3%A9/a%20b%2520%3F.txt";
    same("the path", &put.request.path, want)?;
    put.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn names_refused(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let before = s.shared.seen().len();
    for object in ["", "/a", "a/", "a//b", ".", "a/../b", "e\u{301}", "a\u{7}b", "a\u{200b}b"] {
        let call = s.put(object).await?;
        s.fails_now(call, "Misuse").await.with_context(|| format!("{object:?}"))?;
    }
    same("the requests", &(s.shared.seen().len() - before), &0)
}

async fn which(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.lock_as("L", "7", json!({"resources": ["a", "b"]})).await?;
    let call = s.put("a.txt").await?;
    s.fails_now(call, "Misuse").await?;
    let call = s.put_with("a.txt", json!({"resource": "c"})).await?;
    s.fails_now(call, "Misuse").await?;
    let call = s.put_with("a.txt", json!({"resource": "b"})).await?;
    let put = s.take_now("PUT", "/resources/b/objects/a.txt").await?;
    put.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn newer(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({})).await?;
    let extra = json!({"state": "dancing", "mood": {"good": [1, 2]}});
    s.take_now("POST", "/locks").await?.grant_with("7", &extra).await?;
    s.held("L", call).await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", PATH).await?;
    let mut written = answers::written(&put.request, 1)?;
    written["sha256"] = Value::Null;
    written["colour"] = json!("green");
    put.reply(Reply::json(201, &written).header("etag", answers::tag(1))).await?;
    let told = s.ok_now(call).await?;
    same("the digest", &told["sha256"], &Value::Null)
}

async fn unreadable(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", PATH).await?;
    let reply = Reply::json(200, &json!({"done": [{"version": 1}]}));
    let reply = reply.header("x-operation-id", answers::OPERATION);
    put.reply(reply.header("x-resource-version", "17")).await?;
    let told = s.ok_now(call).await?;
    same("the version", &told["version"], &json!(17))?;
    same("the operation", &told["operation"], &json!(answers::OPERATION))
}
