//! Taking a lock: what is asked, under which id.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Scenario, scenario};
use crate::script::{Script, same, uuid_version};
use crate::server::Exchange;

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "acquire-body",
        [5, 14, 59],
        "an acquire says what was asked, and nothing else",
        body
    ),
    scenario!("acquire-options", [5, 53], "options are passed on in the gateway's words", options),
    scenario!(
        "acquire-id-kept",
        [13, 14, 16],
        "an acquire without an answer is sent again under its id",
        id_kept
    ),
    scenario!("acquire-id-new", [14], "another acquire has another id", id_new),
    scenario!(
        "acquire-unavailable",
        [10, 11],
        "what is unavailable is asked again, under the same id",
        unavailable
    ),
    scenario!(
        "acquire-held",
        [15],
        "without a wait, a held lock is told at once, with its holder",
        held
    ),
    scenario!("acquire-try", [15], "to try gives nothing if the lock is held", tried),
    scenario!(
        "acquire-checked",
        [4, 5, 53],
        "what cannot be asked is refused before it is sent",
        checked
    ),
    scenario!("acquire-deadlock", [19], "a second acquire of what is held fails at once", deadlock)
        .needs(&["run", "deadlock"]),
];

pub(super) fn id_of(exchange: &Exchange) -> Result<String> {
    let body = exchange.request.json()?;
    body["id"].as_str().map(str::to_owned).context("an acquire has an id")
}

fn resources_of(body: &Value) -> Value {
    body.get("resources").cloned().unwrap_or_else(|| json!([body["resource"]]))
}

async fn body(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    let body = asked.request.json()?;
    same("ttl", &body["ttl"], &json!("30000ms"))?;
    same("owner", &body["owner"], &json!("worker-a"))?;
    same("the resources", &resources_of(&body), &json!(["r"]))?;
    same("the version of the id", &uuid_version("the id", &id_of(&asked)?)?, &7)?;
    let known = ["resource", "resources", "ttl", "owner", "id"];
    let fields = body.as_object().context("the body is an object")?;
    let unasked: Vec<_> = fields.keys().filter(|name| !known.contains(&name.as_str())).collect();
    ensure!(unasked.is_empty(), "it says what nobody asked for: {unasked:?}");
    asked.grant("9223372036854775807").await?;
    let held = s.held("L", call).await?;
    same("the token", held.token.as_str(), "9223372036854775807")
}

async fn options(s: &mut Script) -> Result<()> {
    s.client().await?;
    let asked = json!({
        "resources": ["a", "b"], "ttl": "1m", "max_hold": "1h", "metadata": {"job": "nightly"}, "only_if_exists": true,
    });
    let call = s.acquire("L", asked).await?;
    let asked = s.take_now("POST", "/locks").await?;
    let body = asked.request.json()?;
    same("the resources", &body["resources"], &json!(["a", "b"]))?;
    same("ttl", &body["ttl"], &json!("60000ms"))?;
    same("max_hold", &body["max_hold"], &json!("3600000ms"))?;
    same("metadata", &body["metadata"], &json!({"job": "nightly"}))?;
    same("only_if_exists", &body["only_if_exists"], &json!(true))?;
    asked.grant("7").await?;
    s.held("L", call).await.map(drop)
}

async fn id_kept(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({})).await?;
    let first = s.take("POST", "/locks").await?;
    first.cut().await?;
    let second = s.take("POST", "/locks").await?;
    same("the second body", &second.request.text(), &first.request.text())?;
    second.cut_after(second.granted("7", &json!({}))?, 40).await?;
    let third = s.take("POST", "/locks").await?;
    same("the third body", &third.request.text(), &first.request.text())?;
    third.grant("7").await?;
    let held = s.held("L", call).await?;
    same("the id of the guard", &held.id, &id_of(&first)?)
}

async fn id_new(s: &mut Script) -> Result<()> {
    let first = s.lock().await?;
    s.start(json!({"do": "release", "lock": "L"})).await?;
    s.take("DELETE", "/locks/*").await?.empty(204).await?;
    let second = s.lock_as("M", "8", json!({})).await?;
    ensure!(first.id != second.id, "both acquires have the id {}", first.id);
    Ok(())
}

async fn unavailable(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({})).await?;
    let first = s.take("POST", "/locks").await?;
    first.problem("mint-unavailable").await?;
    let second = s.take("POST", "/locks").await?;
    second.problem_with("outcome-unknown", json!({"outcome": "unknown"})).await?;
    let third = s.take("POST", "/locks").await?;
    same("the second id", &id_of(&second)?, &id_of(&first)?)?;
    same("the third id", &id_of(&third)?, &id_of(&first)?)?;
    third.grant("7").await?;
    s.held("L", call).await.map(drop)
}

const HELD: &str = "lock-held";

fn by_b() -> Value {
    json!({"holder": "worker-b", "holder_age_ms": 4000, "retry_after_ms": 1000, "resource": "r"})
}

async fn held(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({})).await?;
    s.take_now("POST", "/locks").await?.problem_with(HELD, by_b()).await?;
    let error = s.fails_now(call, "Busy").await?;
    same("the kind", &error["kind"], &json!("LockHeld"))?;
    same("the holder", &error["holder"], &json!("worker-b"))?;
    same("its age", &error["holder_age_ms"], &json!(4000))?;
    s.quiet(20_000).await
}

async fn tried(s: &mut Script) -> Result<()> {
    s.client().await?;
    let command = json!({"do": "try", "lock": "L", "resources": ["r"], "ttl": "30s"});
    let call = s.start(command).await?;
    let asked = s.take_now("POST", "/locks").await?;
    ensure!(asked.request.json()?.get("wait").is_none(), "to try is not to wait");
    asked.problem_with(HELD, by_b()).await?;
    same("what was had", &s.ok_now(call).await?, &Value::Null)?;
    s.quiet(20_000).await
}

async fn checked(s: &mut Script) -> Result<()> {
    s.client().await?;
    let many: Vec<_> = (0..33).map(|number| format!("r{number}")).collect();
    let bad = [
        json!({"resources": ["a/b"]}),
        json!({"resources": [".."]}),
        json!({"resources": [""]}),
        json!({"resources": many}),
        json!({"resources": []}),
        json!({"ttl": "500ms"}),
        json!({"ttl": "25h"}),
        json!({"ttl": "030s"}),
        json!({"max_hold": "31d"}),
    ];
    for extra in bad {
        let call = s.acquire("L", extra).await?;
        s.fails_now(call, "Misuse").await?;
    }
    same("the requests", &s.shared.seen().len(), &0)
}

async fn deadlock(s: &mut Script) -> Result<()> {
    s.enter(json!({})).await?;
    let before = s.shared.seen().len();
    let call = s.acquire("M", json!({"wait": "forever", "inside": "L"})).await?;
    let answer = s.answer_within(call, 0).await?;
    let class = answer["error"]["class"].as_str().unwrap_or_default();
    ensure!(["WouldDeadlock", "Misuse"].contains(&class), "it should fail at once: {answer}");
    same("the requests", &(s.shared.seen().len() - before), &0)?;
    let call = s.acquire("N", json!({"resources": ["q"], "inside": "L"})).await?;
    s.take_now("POST", "/locks").await?.grant("8").await?;
    s.held("N", call).await.map(drop)
}
