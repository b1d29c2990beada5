//! Giving up an acquire: whatever may be left of its id is released.

use anyhow::{Result, ensure};
use serde_json::json;

use super::acquire::id_of;
use super::{Scenario, scenario};
use crate::script::{Call, Script, within};
use crate::server::{Exchange, Reply};

pub(super) const ALL: &[Scenario] = &[
    scenario!("give-up-cancelled", [18], "a cancelled acquire releases its id", cancelled),
    scenario!(
        "give-up-deadline",
        [10, 18],
        "an acquire that was never answered releases its id",
        deadline
    ),
    scenario!(
        "give-up-once",
        [18],
        "one attempt without an answer is released, not repeated",
        once
    ),
    scenario!("give-up-repeated", [18], "the release goes on until a 2xx answers it", repeated),
    scenario!("give-up-buried", [18], "200 with `buried` counts as released", buried),
    scenario!(
        "give-up-refused",
        [18],
        "a refusal of the only attempt leaves nothing to release",
        refused
    ),
    scenario!("give-up-returns", [18], "the caller waits for the release 5 s at most", returns),
];

/// A waiting acquire that is cancelled; what it releases.
async fn cancel(s: &mut Script) -> Result<(Call, Exchange)> {
    s.client().await?;
    let call = s.acquire("L", json!({"wait": "forever"})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    let id = id_of(&asked)?;
    s.pass(2_000).await?;
    s.cancel(call).await?;
    let release = s.take_within(100, "DELETE", &format!("/locks/{id}")).await?;
    Ok((call, release))
}

async fn cancelled(s: &mut Script) -> Result<()> {
    let (call, release) = cancel(s).await?;
    release.empty(204).await?;
    s.fails(call, "Cancelled").await?;
    s.quiet(60_000).await
}

async fn deadline(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({})).await?;
    let mut attempts = 0;
    let release = loop {
        let Some(exchange) = s.any_within(40_000).await? else {
            anyhow::bail!("it gave up and released nothing");
        };
        if exchange.request.method == "DELETE" {
            break exchange;
        }
        attempts += 1;
        exchange.cut().await?;
    };
    within("the time", s.now(), 27_000, 31_000)?;
    ensure!(attempts > 10, "there were only {attempts} attempts");
    release.empty(204).await?;
    s.fails(call, "Unavailable").await.map(drop)
}

async fn once(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"attempts": 1})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    let id = id_of(&asked)?;
    asked.cut().await?;
    s.take("DELETE", &format!("/locks/{id}")).await?.empty(204).await?;
    s.fails(call, "Unavailable").await.map(drop)
}

async fn repeated(s: &mut Script) -> Result<()> {
    let (_, release) = cancel(s).await?;
    let path = release.request.path.clone();
    release.cut().await?;
    s.take("DELETE", &path).await?.problem("overloaded").await?;
    s.take("DELETE", &path).await?.problem("internal").await?;
    s.take("DELETE", &path).await?.reply(Reply::page(404)).await?;
    s.take("DELETE", &path).await?.reply(Reply::new(204).foreign()).await?;
    s.take("DELETE", &path).await?.empty(204).await?;
    s.quiet(60_000).await
}

async fn buried(s: &mut Script) -> Result<()> {
    let (_, release) = cancel(s).await?;
    let nothing = json!({"released": false, "buried": true});
    release.reply(Reply::json(200, &nothing)).await?;
    s.quiet(60_000).await
}

async fn refused(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"only_if_exists": true})).await?;
    s.take_now("POST", "/locks").await?.problem("resource-not-found").await?;
    s.fails_now(call, "NotFound").await?;
    s.quiet(60_000).await
}

async fn returns(s: &mut Script) -> Result<()> {
    s.client_with(json!({"deadline": "3s"})).await?;
    let call = s.acquire("L", json!({})).await?;
    s.take_now("POST", "/locks").await?;
    let release = s.take_within(20_000, "DELETE", "/locks/*").await?;
    let before = s.now();
    s.answer(call).await?;
    within("the wait for the release", s.now() - before, 0, 5_200)?;
    drop(release);
    s.take_within(30_000, "DELETE", "/locks/*").await?.empty(204).await
}
