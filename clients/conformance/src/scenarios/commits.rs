//! Commits: their bytes, their refusals, and what becomes of those whose answer was lost.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::writes::marks;
use super::{Scenario, scenario};
use crate::script::{Script, same};
use crate::server::{Exchange, Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "commit-body",
        [20, 29],
        "a commit is a form: the list, then the bodies in order",
        body
    ),
    scenario!("commit-conditions", [29], "conditions are in the list", conditions),
    scenario!("commit-same-again", [22, 29], "all attempts have the same bytes", same_again),
    scenario!("commit-told", [29], "a commit tells what it became", told),
    scenario!("commit-refused", [29, 58], "a refusal tells which operation it is about", refused),
    scenario!(
        "commit-checked",
        [29],
        "what cannot be committed is refused before it is sent",
        checked
    ),
    scenario!("commit-unknown", [24, 29], "the outcome of a commit is asked by key", unknown),
];

async fn locked(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.lock_as("L", "7", json!({"resources": ["a", "b"]})).await.map(drop)
}

fn three() -> Value {
    json!([
        {"op": "put", "resource": "a", "object": "1.json", "text": "{\"x\": 1}", "content_type": "application/json"},
        {"op": "delete", "resource": "b", "object": "old"},
        {"op": "put", "resource": "b", "object": "2.txt", "text": "two"},
    ])
}

fn committed() -> Value {
    json!({
        "operation": answers::OPERATION,
        "resources": [{"resource": "a", "version": 4}, {"resource": "b", "version": 9}],
        "results": [
            {"op": "put", "resource": "a", "key": "1.json", "version": 4, "created": true, "size": 8, "etag": answers::tag(4)},
            {"op": "delete", "resource": "b", "key": "old", "version": 9},
            {"op": "put", "resource": "b", "key": "2.txt", "version": 9, "created": false, "size": 3, "etag": answers::tag(9)},
        ],
    })
}

/// A part of a form: its head and its body.
type Part = (String, String);

fn parts(exchange: &Exchange) -> Result<Vec<Part>> {
    let kind = exchange.request.must("content-type")?;
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").context("it is no form")?;
    let boundary = boundary.trim_matches('"');
    let text = exchange.request.text();
    let end = format!("--{boundary}--");
    ensure!(text.trim_end().ends_with(&end), "the form does not end");
    let between = format!("--{boundary}\r\n");
    let whole = text.split(&end).next().unwrap_or_default();
    let parts = whole.split(&between).skip(1).map(|part| {
        let part = part.strip_suffix("\r\n").unwrap_or(part);
        let (head, body) = part.split_once("\r\n\r\n").context("a part has a head")?;
        Ok((head.to_ascii_lowercase(), body.to_owned()))
    });
    parts.collect()
}

/// The list, but for content types: whether they are in it, too, is a matter of bytes.
fn listed(text: &str) -> Result<Value> {
    let mut list: Value = serde_json::from_str(text).context("the list is JSON")?;
    for operation in list["operations"].as_array_mut().into_iter().flatten() {
        operation.as_object_mut().and_then(|operation| operation.remove("content_type"));
    }
    Ok(list)
}

async fn commit(s: &mut Script, operations: Value) -> Result<crate::script::Call> {
    s.start(json!({"do": "commit", "lock": "L", "operations": operations})).await
}

async fn body(s: &mut Script) -> Result<()> {
    locked(s).await?;
    let call = commit(s, three()).await?;
    let sent = s.take_now("POST", "/commit").await?;
    same("the token", sent.request.must("x-fence-token")?, "7")?;
    sent.request.must("x-lock-id")?;
    same("the number", &marks(&sent.request)?.1, &Some("1".to_owned()))?;
    same("the length", sent.request.must("content-length")?, &sent.request.body.len().to_string())?;
    let parts = parts(&sent)?;
    same("the number of parts", &parts.len(), &3)?;
    let names = ["operations", "b0", "b1"];
    for ((head, _), name) in parts.iter().zip(names) {
        ensure!(head.contains(&format!("name=\"{name}\"")), "a part is not {name}: {head}");
        ensure!(!head.contains("filename"), "a part has a file name: {head}");
    }
    let list = json!({"operations": [
        {"op": "put", "resource": "a", "key": "1.json", "body": "b0"},
        {"op": "delete", "resource": "b", "key": "old"},
        {"op": "put", "resource": "b", "key": "2.txt", "body": "b1"},
    ]});
    let (heads, bodies): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    same("the list", &listed(bodies.first().map_or("", String::as_str))?, &list)?;
    same("the bodies", bodies.get(1..).unwrap_or_default(), &["{\"x\": 1}", "two"][..])?;
    ensure!(heads.iter().skip(1).all(|head| head.contains("repr-digest: sha-256=:")), "{heads:?}");
    ensure!(heads.get(1).is_some_and(|head| head.contains("application/json")), "{heads:?}");
    sent.reply(Reply::json(200, &committed())).await?;
    s.ok_now(call).await.map(drop)
}

async fn conditions(s: &mut Script) -> Result<()> {
    locked(s).await?;
    let operations = json!([
        {"op": "put", "resource": "a", "object": "1", "text": "x", "if_match": answers::tag(2)},
        {"op": "put", "resource": "a", "object": "2", "text": "x", "if_absent": true},
    ]);
    let command = json!({"do": "commit", "lock": "L", "operations": operations, "versions": {"b": 2, "a": 5}});
    let call = s.start(command).await?;
    let sent = s.take_now("POST", "/commit").await?;
    let (_, list) = parts(&sent)?.into_iter().next().context("there is a first part")?;
    let list: Value = serde_json::from_str(&list)?;
    same("if_match", &list["operations"][0]["if_match"], &json!(answers::tag(2)))?;
    same("if_none_match", &list["operations"][1]["if_none_match"], &json!("*"))?;
    same("versions", &list["versions"], &json!({"a": 5, "b": 2}))?;
    sent.reply(Reply::json(200, &committed())).await?;
    s.ok_now(call).await.map(drop)
}

async fn same_again(s: &mut Script) -> Result<()> {
    locked(s).await?;
    let call = commit(s, three()).await?;
    let first = s.take_now("POST", "/commit").await?;
    first.cut().await?;
    let second = s.take("POST", "/commit").await?;
    same("the bytes", &second.request.body, &first.request.body)?;
    same("the type", second.request.must("content-type")?, first.request.must("content-type")?)?;
    same("key and number", &marks(&second.request)?, &marks(&first.request)?)?;
    second.reply(Reply::json(200, &committed())).await?;
    s.ok_now(call).await.map(drop)
}

async fn told(s: &mut Script) -> Result<()> {
    locked(s).await?;
    let call = commit(s, three()).await?;
    let sent = s.take_now("POST", "/commit").await?;
    let reply = Reply::json(200, &committed()).header("idempotent-replayed", "true");
    sent.reply(reply).await?;
    let told = s.ok_now(call).await?;
    same("the operation", &told["operation"], &json!(answers::OPERATION))?;
    same("the resources", &told["resources"], &committed()["resources"])?;
    same("the results", &told["results"].as_array().map(Vec::len), &Some(3))?;
    same("the key", &told["key"], &json!(marks(&sent.request)?.0))?;
    same("replayed", &told["replayed"], &json!(true))
}

async fn refused(s: &mut Script) -> Result<()> {
    locked(s).await?;
    let call = commit(s, three()).await?;
    let sent = s.take_now("POST", "/commit").await?;
    sent.problem_with("version-mismatch", json!({"index": 2, "resource": "b", "version": 9}))
        .await?;
    let error = s.fails_now(call, "Changed").await?;
    same("the index", &error["index"], &json!(2))
}

async fn checked(s: &mut Script) -> Result<()> {
    locked(s).await?;
    let before = s.shared.seen().len();
    let put = |object: &str| json!({"op": "put", "resource": "a", "object": object, "text": "x"});
    let many: Vec<_> = (0..1_001).map(|number| put(&number.to_string())).collect();
    let elsewhere = json!({"op": "delete", "resource": "c", "object": "x"});
    let bad = [
        json!([]),
        json!(many),
        json!([put("x"), put("x")]),
        json!([elsewhere]),
        json!([put("a//b")]),
    ];
    for operations in bad {
        let call = commit(s, operations).await?;
        s.fails_now(call, "Misuse").await?;
    }
    same("the requests", &(s.shared.seen().len() - before), &0)
}

async fn unknown(s: &mut Script) -> Result<()> {
    s.client_with(json!({"write_deadline": "3s"})).await?;
    s.lock_as("L", "7", json!({"resources": ["a", "b"]})).await?;
    let call = commit(s, three()).await?;
    let first = s.take_now("POST", "/commit").await?;
    let key = marks(&first.request)?.0;
    first.cut().await?;
    let asked = loop {
        let exchange = s.any_within(5_000).await?.context("it never asked")?;
        if exchange.request.method == "GET" {
            break exchange;
        }
        exchange.problem("ledger-unavailable").await?;
    };
    ensure!(asked.request.is("GET", "/resources/*/operations"), "{}", asked.request.line());
    same("the key that is asked for", &asked.request.queried("idempotency_key"), &Some(key))?;
    let resource = asked.request.path.split('/').nth(2).unwrap_or_default().to_owned();
    let mut operation = answers::applied(&resource, "", 4);
    operation["kind"] = json!("commit");
    operation.as_object_mut().and_then(|operation| operation.remove("key"));
    asked.reply(Reply::json(200, &json!({"items": [operation]}))).await?;
    // It may ask for the rest by the id.
    if let Some(more) = s.any_within(100).await? {
        same(
            "the question",
            &more.request.line(),
            &format!("GET /operations/{}", answers::OPERATION),
        )?;
        let mut whole = answers::applied("a", "", 4);
        whole["kind"] = json!("commit");
        whole["resources"] = committed()["resources"].clone();
        more.reply(Reply::json(200, &whole)).await?;
    }
    let told = s.ok(call).await?;
    same("replayed", &told["replayed"], &json!(true))?;
    same("the operation", &told["operation"], &json!(answers::OPERATION))
}
