//! Leaving a scope: in which order, and whose failure the caller gets.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Scenario, scenario};
use crate::script::{Script, same, within};
use crate::server::Reply;

pub(super) const ALL: &[Scenario] = &[
    scenario!("leave-releases", [43], "at its end a scope stops renewing and releases", releases)
        .needs(&["run"]),
    scenario!("leave-waits", [43], "it waits for its writes under way first", waits)
        .needs(&["run"]),
    scenario!(
        "release-twice",
        [43],
        "a second release waits for the writes under way as the first does",
        twice
    ),
    scenario!(
        "leave-bounded",
        [43, 44],
        "a release that hangs holds the caller up for 5 s at most",
        bounded
    )
    .needs(&["run"]),
    scenario!(
        "leave-release-fails",
        [44],
        "a release that fails is no failure of the scope",
        release_fails
    )
    .needs(&["run"]),
    scenario!("leave-body-wins", [44], "the failure of the body wins", body_wins).needs(&["run"]),
    scenario!(
        "leave-lost",
        [45],
        "a scope that lost its lock fails, though its body ended well",
        lost
    )
    .needs(&["run"]),
    scenario!(
        "leave-interrupted",
        [45],
        "a body that was ended by the signal is told as lost",
        interrupted
    )
    .needs(&["run"]),
    scenario!("leave-ignore", [45], "who ignores the loss gets what the body gave", ignore)
        .needs(&["run"]),
    scenario!(
        "leave-superseded",
        [46],
        "what was superseded is left at once, without a release",
        superseded
    )
    .needs(&["run"]),
    scenario!(
        "leave-unconfirmed",
        [46],
        "what was not confirmed is released in the background",
        unconfirmed
    )
    .needs(&["run"]),
    scenario!("leave-buried", [18, 43], "200 with `buried` is a release", buried),
];

async fn releases(s: &mut Script) -> Result<()> {
    let (call, held) = s.enter(json!({})).await?;
    s.leave("return").await?;
    let release = s.take("DELETE", &format!("/locks/{}", held.id)).await?;
    ensure!(s.open(call).await?, "the scope was left before the release was answered");
    release.empty(204).await?;
    s.ok(call).await?;
    s.shared.auto.renewals(false);
    s.quiet(60_000).await?;
    s.no_event("lost").await
}

async fn waits(s: &mut Script) -> Result<()> {
    let (call, _) = s.enter(json!({})).await?;
    let write = s.put("a.txt").await?;
    let put = s.take_now("PUT", "/resources/r/objects/a.txt").await?;
    s.leave("return").await?;
    s.quiet(2_000).await?;
    put.written(1).await?;
    let release = s.take("DELETE", "/locks/*").await?;
    release.empty(204).await?;
    s.ok(write).await?;
    s.ok(call).await.map(drop)
}

async fn twice(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let write = s.put("a.txt").await?;
    let put = s.take_now("PUT", "/resources/r/objects/a.txt").await?;
    let first = s.start(json!({"do": "release", "lock": "L"})).await?;
    let second = s.start(json!({"do": "release", "lock": "L"})).await?;
    s.quiet(2_000).await?;
    put.written(1).await?;
    s.ok(write).await?;
    let mut releases = 0;
    while s.open(first).await? || s.open(second).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        same("the method", &exchange.request.method, &"DELETE".to_owned())?;
        releases += 1;
        exchange.empty(204).await?;
    }
    ensure!(releases > 0, "there was no release");
    s.ok(first).await?;
    s.ok(second).await.map(drop)
}

async fn bounded(s: &mut Script) -> Result<()> {
    let (call, _) = s.enter(json!({})).await?;
    s.leave("return").await?;
    let silent = s.take("DELETE", "/locks/*").await?;
    let before = s.now();
    s.ok(call).await?;
    within("the wait", s.now() - before, 1_000, 5_200)?;
    drop(silent);
    s.take_within(30_000, "DELETE", "/locks/*").await?.empty(204).await?;
    s.quiet(60_000).await
}

async fn release_fails(s: &mut Script) -> Result<()> {
    let (call, _) = s.enter(json!({})).await?;
    s.leave("return").await?;
    let mut releases = 0;
    while s.open(call).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        releases += 1;
        exchange.problem("ledger-unavailable").await?;
    }
    ensure!(releases > 0, "there was no release");
    s.ok(call).await.map(drop)
}

async fn body_wins(s: &mut Script) -> Result<()> {
    let (call, _) = s.enter(json!({})).await?;
    s.leave("raise").await?;
    s.take("DELETE", "/locks/*").await?.problem("lock-not-found").await?;
    while s.open(call).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        exchange.problem("internal").await?;
    }
    s.fails(call, "Body").await.map(drop)
}

/// A scope whose lock is superseded, as a write learns.
async fn supersede(s: &mut Script) -> Result<()> {
    let write = s.put("a.txt").await?;
    let put = s.take_now("PUT", "/resources/r/objects/a.txt").await?;
    put.problem("fence-token-stale").await?;
    s.fails_now(write, "LockLost").await.map(drop)
}

async fn lost(s: &mut Script) -> Result<()> {
    let (call, _) = s.enter(json!({})).await?;
    supersede(s).await?;
    // A body that was cancelled is not there any more.
    let _ = s.leave("return").await;
    let error = s.fails(call, "LockLost").await?;
    same("the reason", &error["reason"], &json!("superseded"))
}

async fn interrupted(s: &mut Script) -> Result<()> {
    let (call, _) = s.enter(json!({})).await?;
    s.shared.auto.renewals(false);
    s.take("POST", "/locks/*/renew").await?.problem("lock-broken").await?;
    let error = s.fails(call, "LockLost").await?;
    same("the reason", &error["reason"], &json!("broken"))?;
    within("the time", s.now(), 8_000, 12_000)
}

async fn ignore(s: &mut Script) -> Result<()> {
    let (call, _) = s.enter(json!({"on_lost": "ignore"})).await?;
    supersede(s).await?;
    ensure!(s.open(call).await?, "the body was not let to its end");
    s.leave("return").await?;
    s.ok(call).await.map(drop)
}

async fn superseded(s: &mut Script) -> Result<()> {
    let (call, _) = s.enter(json!({})).await?;
    let stuck = s.put("stuck.txt").await?;
    let silent = s.take_now("PUT", "/resources/r/objects/stuck.txt").await?;
    supersede(s).await?;
    let _ = s.leave("return").await;
    let before = s.now();
    s.fails(call, "LockLost").await?;
    within("the wait", s.now() - before, 0, 100)?;
    let _ = silent.problem("fence-token-stale").await;
    let _ = s.answer(stuck).await;
    s.quiet(60_000).await
}

async fn unconfirmed(s: &mut Script) -> Result<()> {
    let (call, held) = s.enter(json!({})).await?;
    s.shared.auto.renewals(false);
    let mut released = None;
    while released.is_none() {
        let exchange = s.any_within(40_000).await?;
        let Some(exchange) = exchange else { anyhow::bail!("no release came") };
        match exchange.request.method.as_str() {
            "DELETE" => released = Some(exchange),
            _ => exchange.problem("ledger-unavailable").await?,
        }
    }
    let error = s.fails_now(call, "LockLost").await?;
    same("the reason", &error["reason"], &json!("unconfirmed"))?;
    let release = released.ok_or_else(|| anyhow::anyhow!("no release came"))?;
    same("the path", &release.request.path, &format!("/locks/{}", held.id))?;
    release.empty(204).await
}

async fn buried(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.start(json!({"do": "release", "lock": "L"})).await?;
    let nothing = json!({"released": false, "buried": true});
    s.take("DELETE", "/locks/*").await?.reply(Reply::json(200, &nothing)).await?;
    s.ok_now(call).await?;
    s.quiet(60_000).await
}
