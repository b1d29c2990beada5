//! What S3 tools write with under a lock: the key of a guard is that of its grant, whatever comes later.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Scenario, scenario};
use crate::script::{Held, Script, same};
use crate::server::{Exchange, Reply};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "s3-key-kept",
        [14, 31],
        "the S3 key of a guard is that of its grant, whatever renewals answer",
        kept
    )
    .needs(&["s3"]),
    scenario!(
        "s3-key-of-each-lock",
        [14],
        "a later lock on the same resource has a key of its own, and the earlier guard keeps its own",
        of_each_lock
    )
    .needs(&["s3"]),
];

/// What a gateway says of the S3 key with this name.
fn access(name: &str) -> Value {
    json!({
        "endpoint": "http://127.0.0.1:9000", "region": "us-east-1", "access_key_id": format!("FG1{name}"),
        "secret_access_key": format!("secret of {name}"),
    })
}

/// Takes a lock, with an answer that has this S3 key.
async fn lock(s: &mut Script, name: &str, token: &str, s3: &Value) -> Result<Held> {
    let call = s.acquire(name, json!({})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    asked.grant_with(token, &json!({"s3": s3})).await?;
    s.held(name, call).await
}

/// That a guard tells this S3 key.
async fn tells(s: &mut Script, name: &str, s3: &Value) -> Result<()> {
    let state = s.state(name).await?;
    same("the S3 key", state.get("s3").unwrap_or(&Value::Null), s3)
}

/// Confirms a renewal of one lock, with this S3 key in the answer.
async fn renewed_with(s: &Script, renewal: &Exchange, s3: &Value) -> Result<()> {
    let id = renewal.request.path.split('/').nth(2).context("a renewal names its lock")?;
    let mut lock = s.shared.auto.lock(id);
    lock["s3"] = s3.clone();
    renewal.reply(Reply::json(200, &lock)).await
}

async fn kept(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.client().await?;
    lock(s, "L", "7", &access("A")).await?;
    tells(s, "L", &access("A")).await?;
    for other in [access("B"), Value::Null] {
        let renewal = s.take("POST", "/locks/*/renew").await?;
        renewed_with(s, &renewal, &other).await?;
        tells(s, "L", &access("A")).await?;
    }
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn of_each_lock(s: &mut Script) -> Result<()> {
    s.client().await?;
    // The answer that arrives counts, and says the same as the one that was lost.
    let call = s.acquire("L", json!({})).await?;
    let lost = s.take("POST", "/locks").await?;
    lost.cut_after(lost.granted("7", &json!({"s3": access("A")}))?, 40).await?;
    s.take("POST", "/locks").await?.grant_with("7", &json!({"s3": access("A")})).await?;
    s.held("L", call).await?;
    tells(s, "L", &access("A")).await?;
    let call = s.start(json!({"do": "release", "lock": "L"})).await?;
    s.take("DELETE", "/locks/*").await?.empty(204).await?;
    s.ok(call).await?;
    lock(s, "M", "8", &access("B")).await?;
    tells(s, "M", &access("B")).await?;
    tells(s, "L", &access("A")).await?;
    // Where no resource lies in a bucket, there is no key.
    s.lock_as("N", "9", json!({"resources": ["q"]})).await?;
    tells(s, "N", &Value::Null).await
}
