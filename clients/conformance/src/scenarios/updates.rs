//! Read, change, write: each round under the condition that nothing has changed.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::writes::marks;
use super::{Scenario, scenario};
use crate::script::{Call, Script, same};
use crate::server::answers;

pub(super) const ALL: &[Scenario] = &[
    scenario!("update-present", [41], "what was read is the condition of what is written", present),
    scenario!(
        "update-absent",
        [41],
        "of what is not there, the condition is that it is not there",
        absent
    ),
    scenario!(
        "update-again",
        [41],
        "after a mismatch it begins again with the read, under a new key",
        again
    ),
    scenario!("update-often", [41], "but not for ever", often),
    scenario!("update-keep", [41], "if nothing shall change, nothing is written", keep),
    scenario!("update-delete", [41], "a delete has the condition, too", delete),
    scenario!("update-failed", [41], "anything else is passed on", failed),
];

const PATH: &str = "/resources/r/objects/a.txt";

async fn update(s: &mut Script, how: Value) -> Result<Call> {
    s.lock().await?;
    let mut command = json!({"do": "update", "lock": "L", "object": "a.txt"});
    if let (Some(command), Some(how)) = (command.as_object_mut(), how.as_object()) {
        command.extend(how.clone());
    }
    s.start(command).await
}

async fn present(s: &mut Script) -> Result<()> {
    let call = update(s, json!({"append": "!"})).await?;
    s.take_now("GET", PATH).await?.object("hello", 4).await?;
    let put = s.take("PUT", PATH).await?;
    same("the body", &put.request.text(), "hello!")?;
    same("the condition", put.request.must("if-match")?, &answers::tag(4))?;
    put.written(5).await?;
    same("the rounds", &s.ok_now(call).await?["rounds"], &json!(1))
}

async fn absent(s: &mut Script) -> Result<()> {
    let call = update(s, json!({"append": "!"})).await?;
    s.take_now("GET", PATH).await?.problem("object-not-found").await?;
    let put = s.take("PUT", PATH).await?;
    same("the body", &put.request.text(), "!")?;
    same("the condition", put.request.must("if-none-match")?, "*")?;
    put.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn again(s: &mut Script) -> Result<()> {
    let call = update(s, json!({"append": "!"})).await?;
    s.take_now("GET", PATH).await?.object("one", 1).await?;
    let first = s.take("PUT", PATH).await?;
    first.problem("version-mismatch").await?;
    s.take("GET", PATH).await?.object("two", 2).await?;
    let second = s.take("PUT", PATH).await?;
    same("the body", &second.request.text(), "two!")?;
    same("the condition", second.request.must("if-match")?, &answers::tag(2))?;
    ensure!(marks(&second.request)?.0 != marks(&first.request)?.0, "both rounds have one key");
    second.written(3).await?;
    same("the rounds", &s.ok_now(call).await?["rounds"], &json!(2))
}

async fn often(s: &mut Script) -> Result<()> {
    let call = update(s, json!({"append": "!"})).await?;
    for round in 1..=16 {
        s.take("GET", PATH).await?.object("one", round).await?;
        s.take("PUT", PATH).await?.problem("version-mismatch").await?;
    }
    s.fails(call, "Changed").await?;
    s.quiet(5_000).await
}

async fn keep(s: &mut Script) -> Result<()> {
    let call = update(s, json!({"say": "keep"})).await?;
    s.take_now("GET", PATH).await?.object("one", 1).await?;
    same("whether it was kept", &s.ok(call).await?["kept"], &json!(true))?;
    s.quiet(5_000).await
}

async fn delete(s: &mut Script) -> Result<()> {
    let call = update(s, json!({"say": "delete"})).await?;
    s.take_now("GET", PATH).await?.object("one", 1).await?;
    let delete = s.take("DELETE", PATH).await?;
    same("the condition", delete.request.must("if-match")?, &answers::tag(1))?;
    delete.empty(204).await?;
    s.ok(call).await.map(drop)
}

async fn failed(s: &mut Script) -> Result<()> {
    let call = update(s, json!({"append": "!"})).await?;
    s.take_now("GET", PATH).await?.object("one", 1).await?;
    s.take("PUT", PATH).await?.problem("fence-token-stale").await?;
    s.fails(call, "LockLost").await?;
    s.quiet(5_000).await
}
