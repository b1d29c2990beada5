//! Several gateways, and what stands before them.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::transport::{PATH, asked, get, gets};
use super::{Scenario, scenario};
use crate::script::{Script, same};
use crate::server::{Exchange, Reply};

pub(super) const ALL: &[Scenario] = &[
    scenario!("redirect", [4], "no redirect is followed", redirect).gateways(2),
    scenario!("no-proxy", [4], "no proxy of the environment stands before loopback", no_proxy)
        .environment(&[
            ("http_proxy", "http://127.0.0.1:9"),
            ("HTTP_PROXY", "http://127.0.0.1:9"),
            ("ALL_PROXY", "http://127.0.0.1:9"),
        ]),
    scenario!("next-gateway", [3], "a gateway that is down is passed over", next_gateway)
        .gateways(2),
    scenario!("next-gateway-told", [3], "so is one that says so, and no other", next_told)
        .gateways(2),
    scenario!("first-gateway-again", [3], "after 30 s the first is asked again", first_again)
        .gateways(2),
    scenario!(
        "next-gateway-waiting",
        [3, 16],
        "a waiting call goes on at the next, under its id",
        next_waiting
    )
    .gateways(2),
    scenario!(
        "next-gateway-write",
        [3, 22],
        "a write goes on at the next, under its key",
        next_write
    )
    .gateways(2),
];

/// A get that is refused in this way; which gateway gets it next.
async fn after(s: &mut Script, refused: impl Fn(&Exchange) -> Result<Reply>) -> Result<bool> {
    let call = get(s).await?;
    let first = asked(s).await?;
    first.reply(refused(&first)?).await?;
    let second = asked(s).await?;
    second.object("hello", 3).await?;
    s.ok_now(call).await?;
    Ok(first.request.gateway != second.request.gateway)
}

async fn redirect(s: &mut Script) -> Result<()> {
    let urls = s.urls();
    let other = urls.get(1).context("a second gateway")?.clone();
    s.client_at(urls.get(..1).unwrap_or_default(), json!({})).await?;
    for status in [301, 302, 303, 307, 308] {
        let call = get(s).await?;
        let moved = Reply::new(status).header("location", format!("{other}{PATH}"));
        asked(s).await?.reply(moved.foreign()).await?;
        s.fails_now(call, "GatewayFault").await?;
    }
    let strayed = s.shared.seen().iter().filter(|seen| seen.gateway == 1).count();
    same("the requests to where it was sent", &strayed, &0)
}

async fn no_proxy(s: &mut Script) -> Result<()> {
    s.client().await?;
    gets(s).await.map(drop)
}

async fn next_gateway(s: &mut Script) -> Result<()> {
    s.gateways.first_mut().context("a gateway")?.down().await;
    s.client().await?;
    same("the gateway", &gets(s).await?, &1)?;
    s.gateways.first_mut().context("a gateway")?.up().await?;
    s.pass(5_000).await?;
    same("the gateway", &gets(s).await?, &1)
}

async fn next_told(s: &mut Script) -> Result<()> {
    s.client().await?;
    let code = |code: &'static str| move |asked: &Exchange| asked.problem_reply(code, &Value::Null);
    let went = [
        after(s, code("shutting-down")).await?,
        after(s, code("overloaded")).await?,
        after(s, |_| Ok(Reply::page(502))).await?,
    ];
    same("whether it went to the next", &went, &[true, true, true])?;
    let stayed =
        [after(s, code("ledger-unavailable")).await?, after(s, code("resource-busy")).await?];
    same("whether it went to the next", &stayed, &[false, false])
}

async fn first_again(s: &mut Script) -> Result<()> {
    s.client().await?;
    same("the gateway", &gets(s).await?, &0)?;
    let code = |asked: &Exchange| asked.problem_reply("shutting-down", &Value::Null);
    ensure!(after(s, code).await?, "it stayed with a gateway that shuts down");
    s.pass(20_000).await?;
    same("the gateway", &gets(s).await?, &1)?;
    s.pass(12_000).await?;
    same("the gateway", &gets(s).await?, &0)
}

async fn next_waiting(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"wait": "60s"})).await?;
    let first = s.take_now("POST", "/locks").await?;
    s.pass(3_000).await?;
    first.problem("shutting-down").await?;
    let second = s.take("POST", "/locks").await?;
    same("the gateway", &second.request.gateway, &1)?;
    same("the id", &second.request.json()?["id"], &first.request.json()?["id"])?;
    second.grant("7").await?;
    s.held("L", call).await.map(drop)
}

async fn next_write(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    let first = s.take_now("PUT", PATH).await?;
    first.reply(Reply::page(502)).await?;
    let second = s.take("PUT", PATH).await?;
    same("the gateway", &second.request.gateway, &1)?;
    same(
        "the key",
        second.request.must("idempotency-key")?,
        first.request.must("idempotency-key")?,
    )?;
    same("the number", second.request.must("x-fence-seq")?, first.request.must("x-fence-seq")?)?;
    second.written(1).await?;
    s.ok_now(call).await.map(drop)
}
