//! Uploads: renewed before, refused in the middle, read once.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::writes::{PATH, marks, taken};
use super::{Scenario, scenario};
use crate::script::{Script, same};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "upload-renews-first",
        [27],
        "before a large upload an old confirmation is renewed",
        renews_first
    ),
    scenario!("upload-fresh", [27], "a fresh confirmation is good enough", fresh),
    scenario!(
        "upload-lost-before",
        [27, 33],
        "a holder that is superseded uploads nothing",
        lost_before
    ),
    scenario!(
        "upload-refused-early",
        [13],
        "a refusal in the middle of an upload is heard",
        refused_early
    ),
    scenario!("upload-cut", [13, 22], "an upload that was cut is sent again, the same", cut),
    scenario!("upload-slow", [9], "while a body is sent, no answer is due", slow),
    scenario!("upload-read-once", [26], "what can be read once is sent once", read_once),
    scenario!(
        "upload-read-once-refused",
        [26],
        "and never a second time, whatever the caller said",
        read_twice
    ),
];

const LARGE: u32 = 3 * 1024 * 1024;

async fn renews_first(s: &mut Script) -> Result<()> {
    s.lock().await?;
    s.shared.auto.renewals(false);
    s.pass(6_000).await?;
    let call = s.put_with("a.txt", json!({"size": LARGE})).await?;
    s.take_now("POST", "/locks/*/renew").await?.renewed().await?;
    s.take_now("PUT", PATH).await?.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn fresh(s: &mut Script) -> Result<()> {
    s.lock().await?;
    s.shared.auto.renewals(false);
    s.pass(3_000).await?;
    let call = s.put_with("a.txt", json!({"size": LARGE})).await?;
    let put = s.take_now("PUT", PATH).await?;
    same("the length", put.request.must("content-length")?, &LARGE.to_string())?;
    put.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn lost_before(s: &mut Script) -> Result<()> {
    s.lock().await?;
    s.shared.auto.renewals(false);
    s.pass(6_000).await?;
    let call = s.put_with("a.txt", json!({"size": LARGE})).await?;
    s.take_now("POST", "/locks/*/renew").await?.problem("lock-superseded").await?;
    let error = s.fails_now(call, "LockLost").await?;
    same("the reason", &error["reason"], &json!("superseded"))?;
    s.quiet(5_000).await
}

async fn refused_early(s: &mut Script) -> Result<()> {
    s.lock().await?;
    s.gateways.first().context("a gateway")?.heads_only(true);
    let call = s.put_with("a.txt", json!({"size": 16 * LARGE})).await?;
    let put = taken(s).await?;
    put.problem("fence-token-stale").await?;
    let error = s.fails(call, "LockLost").await?;
    same("the reason", &error["reason"], &json!("superseded"))
}

async fn cut(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let gateway = s.gateways.first().context("a gateway")?;
    gateway.heads_only(true);
    let call = s.put_with("a.txt", json!({"size": LARGE})).await?;
    let first = taken(s).await?;
    s.gateways.first().context("a gateway")?.heads_only(false);
    first.reset().await?;
    let second = taken(s).await?;
    same("key and number", &marks(&second.request)?, &marks(&first.request)?)?;
    same("the length", &second.request.body.len(), &(LARGE as usize))?;
    second.problem("resource-frozen").await?;
    let third = taken(s).await?;
    third.written(1).await?;
    s.ok_now(call).await.map(drop)
}

async fn slow(s: &mut Script) -> Result<()> {
    s.lock().await?;
    s.gateways.first().context("a gateway")?.heads_only(true);
    let call = s.put_with("a.txt", json!({"size": 16 * LARGE})).await?;
    let mut put = taken(s).await?;
    for _ in 0..4 {
        s.pass(8_000).await?;
        ensure!(!put.gone() && s.open(call).await?, "it gave up while it was still sending");
        put.read_some(8 * LARGE as usize / 3).await?;
    }
    put.read_body().await?;
    same("the length", &put.request.body.len(), &(16 * LARGE as usize))?;
    put.written(1).await?;
    s.ok(call).await.map(drop)
}

async fn read_once(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put_with("a.txt", json!({"stream": "hello", "attempts": 1})).await?;
    let put = taken(s).await?;
    same("the body", &put.request.text(), "hello")?;
    put.problem("overloaded").await?;
    s.fails_now(call, "Unavailable").await?;
    s.quiet(8_000).await
}

async fn read_twice(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put_with("a.txt", json!({"stream": "hello"})).await?;
    // It is refused, or sent once as if the caller had asked for that.
    if s.open(call).await? {
        taken(s).await?.problem("overloaded").await?;
        s.fails_now(call, "Unavailable").await?;
    } else {
        s.fails_now(call, "Misuse").await?;
    }
    s.quiet(8_000).await
}
