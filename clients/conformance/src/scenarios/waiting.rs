//! Waiting in line, and grants that come late, unheard of, or not yet.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::acquire::id_of;
use super::renewing::lost_at;
use super::{Scenario, scenario};
use crate::script::{Call, Script, same, within};
use crate::server::{Exchange, Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "acquire-wait",
        [15, 18],
        "a bounded wait is split, under one id, and ends as elapsed",
        waited
    ),
    scenario!("acquire-wait-forever", [15], "who waits for ever asks again until granted", forever),
    scenario!(
        "acquire-wait-cut",
        [16],
        "a cut while waiting is asked again at once, under the same id",
        wait_cut
    ),
    scenario!("acquire-queue-full", [15], "a full line ends a bounded wait", queue_full),
    scenario!(
        "acquire-queue-full-forever",
        [15],
        "a full line is tried again after 1 s to 5 s",
        queue_full_forever
    ),
    scenario!(
        "acquire-given-back",
        [17],
        "an id that ended unheard of is replaced by a new one",
        given_back
    ),
    scenario!(
        "acquire-late-grant",
        [19, 30],
        "a grant that is late is renewed before it is given out",
        late_grant
    ),
    scenario!(
        "acquire-late-grant-gone",
        [17, 19],
        "a late grant that is gone is replaced",
        late_grant_gone
    ),
    scenario!(
        "acquire-waited-long",
        [19, 30],
        "after a wait the ttl begins with a renewal, before the guard is given out",
        waited_long
    ),
    scenario!(
        "acquire-waited-idle",
        [19, 38],
        "signs of life are not missed before the guard is given out",
        waited_idle
    ),
    scenario!(
        "acquire-rest",
        [18, 19],
        "a lock of which too little is left is given back, and another one taken",
        rest
    ),
    scenario!(
        "acquire-too-slow",
        [18, 19],
        "who cannot confirm a lock in time gives up after the third",
        too_slow
    ),
    scenario!(
        "acquire-infinite",
        [19],
        "an infinite lock is renewed once before it is given out",
        infinite
    ),
    scenario!(
        "acquire-draining",
        [18, 19],
        "without a wait, a draining lock is told and given back",
        draining
    ),
    scenario!(
        "acquire-draining-wait",
        [19],
        "with a wait, a draining lock is waited for",
        draining_wait
    ),
];

/// Lets a waiting call wait, and ends its wait.
async fn elapse(s: &mut Script, least: i64, most: i64, within_ms: u64) -> Result<String> {
    let asked = s.take_within(within_ms, "POST", "/locks").await?;
    let body = asked.request.json()?;
    let wait = answers::milliseconds(body["wait"].as_str().context("it waits")?)?;
    ensure!((least..=most).contains(&wait), "it waits for {wait} ms, not {least} to {most}");
    s.pass(u64::try_from(wait)?).await?;
    asked.problem_with("lock-wait-elapsed", json!({"position": 2})).await?;
    id_of(&asked)
}

/// Grants a lock of 5 s when its time has passed.
async fn granted_late(s: &mut Script) -> Result<(Call, Exchange)> {
    s.client().await?;
    s.shared.auto.renewals(false);
    let call = s.acquire("L", json!({"ttl": "5s"})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    s.pass(6_000).await?;
    asked.grant("7").await?;
    let renewal = s.take_within(100, "POST", "/locks/*/renew").await?;
    ensure!(s.open(call).await?, "the guard was given out before it was known to be good");
    Ok((call, renewal))
}

async fn waited(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"wait": "60s"})).await?;
    let first = elapse(s, 25_000, 25_000, 0).await?;
    let second = elapse(s, 25_000, 25_000, 0).await?;
    let third = elapse(s, 9_000, 10_000, 0).await?;
    same("the ids", &[&second, &third], &[&first, &first])?;
    let given_up = s.take("DELETE", &format!("/locks/{first}")).await?;
    given_up.empty(204).await?;
    let error = s.fails(call, "Busy").await?;
    same("the kind", &error["kind"], &json!("WaitElapsed"))
}

async fn forever(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"wait": "forever"})).await?;
    let first = elapse(s, 25_000, 25_000, 0).await?;
    for _ in 0..4 {
        same("the id", &elapse(s, 25_000, 25_000, 0).await?, &first)?;
    }
    let last = s.take_now("POST", "/locks").await?;
    last.grant("7").await?;
    same("the id of the guard", &s.held("L", call).await?.id, &first)
}

async fn wait_cut(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"wait": "60s"})).await?;
    let first = s.take_now("POST", "/locks").await?;
    s.pass(3_000).await?;
    first.cut().await?;
    let second = s.take_within(100, "POST", "/locks").await?;
    same("the id", &id_of(&second)?, &id_of(&first)?)?;
    second.grant("7").await?;
    s.held("L", call).await.map(drop)
}

async fn queue_full(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"wait": "60s"})).await?;
    s.take_now("POST", "/locks").await?.problem("queue-full").await?;
    let error = s.fails(call, "Busy").await?;
    same("the kind", &error["kind"], &json!("QueueFull"))?;
    within("the time", s.now(), 0, 100)
}

async fn queue_full_forever(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"wait": "forever"})).await?;
    for _ in 0..3 {
        let before = s.now();
        s.take("POST", "/locks").await?.problem("queue-full").await?;
        if before > 0 {
            within("the pause", s.now() - before, 900, 5_100)?;
        }
        s.quiet(900).await?;
    }
    s.take("POST", "/locks").await?.grant("7").await?;
    s.held("L", call).await.map(drop)
}

async fn given_back(s: &mut Script) -> Result<()> {
    s.client().await?;
    let codes =
        ["lock-released", "lock-superseded", "lock-broken", "lock-void", "lock-hold-exceeded"];
    for (number, code) in codes.into_iter().enumerate() {
        let name = format!("L{number}");
        let call = s.acquire(&name, json!({"resources": [format!("r{number}")]})).await?;
        let first = s.take("POST", "/locks").await?;
        first.cut().await?;
        let second = s.take("POST", "/locks").await?;
        second.problem(code).await?;
        let third = s.take("POST", "/locks").await?;
        ensure!(id_of(&third)? != id_of(&first)?, "after {code} it goes on with the old id");
        third.grant("8").await?;
        same("the id of the guard", &s.held(&name, call).await?.id, &id_of(&third)?)?;
    }
    Ok(())
}

async fn late_grant(s: &mut Script) -> Result<()> {
    let (call, renewal) = granted_late(s).await?;
    renewal.renewed().await?;
    s.held("L", call).await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn late_grant_gone(s: &mut Script) -> Result<()> {
    let (call, renewal) = granted_late(s).await?;
    let id = renewal.request.path.split('/').nth(2).unwrap_or_default().to_owned();
    renewal.problem("lock-superseded").await?;
    let mut again = s.any_within(2_000).await?.context("it does not go on")?;
    // It may bury the old id, although it need not.
    while again.request.is("DELETE", &format!("/locks/{id}")) {
        again.empty(204).await?;
        again = s.any_within(2_000).await?.context("it does not go on")?;
    }
    ensure!(again.request.is("POST", "/locks"), "{} came", again.request.line());
    ensure!(id_of(&again)? != id, "it goes on with an id that has ended");
    again.grant("9").await?;
    same("the token", s.held("L", call).await?.token.as_str(), "9")
}

/// Grants a lock of 10 s after a wait of 8 s; its holder has so long to say that it is alive.
async fn granted_after_wait(s: &mut Script, stall_after: &str) -> Result<(Call, String, Exchange)> {
    s.client().await?;
    s.shared.auto.renewals(false);
    let wish = json!({"ttl": "10s", "wait": "60s", "stall_after": stall_after});
    let call = s.acquire("L", wish).await?;
    let asked = s.take_now("POST", "/locks").await?;
    s.pass(8_000).await?;
    asked.grant("7").await?;
    let renewal = s.take_within(100, "POST", "/locks/*/renew").await?;
    ensure!(s.open(call).await?, "the guard was given out with what the wait has left");
    Ok((call, id_of(&asked)?, renewal))
}

async fn waited_idle(s: &mut Script) -> Result<()> {
    let (call, _, renewal) = granted_after_wait(s, "1500ms").await?;
    s.pass(2_000).await?;
    renewal.renewed().await?;
    s.held("L", call).await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn waited_long(s: &mut Script) -> Result<()> {
    let (call, _, renewal) = granted_after_wait(s, "1h").await?;
    let sent = s.now();
    s.pass(200).await?;
    renewal.renewed().await?;
    s.held("L", call).await?;
    within("its time", lost_at(s).await? - sent, 9_800, 9_970)
}

async fn rest(s: &mut Script) -> Result<()> {
    let (call, id, renewal) = granted_after_wait(s, "1h").await?;
    s.pass(1_000).await?;
    let mut lock = s.shared.auto.lock(&id);
    lock["expires_in_ms"] = json!(1_500);
    renewal.reply(Reply::json(200, &lock)).await?;
    s.take_within(100, "DELETE", &format!("/locks/{id}")).await?.empty(204).await?;
    let again = s.take("POST", "/locks").await?;
    ensure!(id_of(&again)? != id, "it goes on with an id that was given back");
    again.grant("9").await?;
    same("the token", s.held("L", call).await?.token.as_str(), "9")
}

async fn too_slow(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.shared.auto.renewals(false);
    let call = s.acquire("L", json!({"ttl": "1s", "wait": "forever"})).await?;
    for _ in 0..3 {
        let asked = s.take("POST", "/locks").await?;
        s.pass(400).await?;
        asked.grant("7").await?;
        let back = format!("/locks/{}", id_of(&asked)?);
        // Open, so that they stay without an answer.
        let mut renewals = Vec::new();
        loop {
            let next = s.any_within(2_000).await?.context("it waits for what nobody answers")?;
            if next.request.is("DELETE", &back) {
                next.empty(204).await?;
                break;
            }
            ensure!(next.request.is("POST", &format!("{back}/renew")), "{}", next.request.line());
            renewals.push(next);
            ensure!(renewals.len() <= 8, "it renews a lock that has run out");
        }
    }
    s.fails(call, "Unavailable").await.map(drop)
}

async fn infinite(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.shared.auto.renewals(false);
    let call = s.acquire("L", json!({"ttl": "infinite"})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    same("ttl", &asked.request.json()?["ttl"], &json!("infinite"))?;
    asked.grant("7").await?;
    let renewal = s.take_within(100, "POST", "/locks/*/renew").await?;
    ensure!(s.open(call).await?, "the guard was given out before it was confirmed");
    let endless = json!({"expires_in_ms": null, "confirm_within_ms": null});
    let mut lock = s.shared.auto.lock(&id_of(&asked)?);
    if let (Some(lock), Some(endless)) = (lock.as_object_mut(), endless.as_object()) {
        lock.extend(endless.clone());
    }
    renewal.reply(Reply::json(200, &lock)).await?;
    s.held("L", call).await?;
    s.shared.auto.renewals(true);
    s.pass(600_000).await?;
    s.no_event("lost").await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn draining(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    asked.problem("resource-draining").await?;
    let back = s.take("DELETE", &format!("/locks/{}", id_of(&asked)?)).await?;
    back.empty(204).await?;
    let error = s.fails(call, "Busy").await?;
    same("the kind", &error["kind"], &json!("ResourceDraining"))
}

async fn draining_wait(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.acquire("L", json!({"wait": "60s"})).await?;
    let first = s.take_now("POST", "/locks").await?;
    first.problem("resource-draining").await?;
    let second = s.take("POST", "/locks").await?;
    same("the id", &id_of(&second)?, &id_of(&first)?)?;
    let mut lock = answers::asked_for(&second.request, "7")?;
    lock["state"] = json!("draining");
    if let Some(lock) = lock.as_object_mut() {
        lock.remove("token");
    }
    second.reply(Reply::json(201, &lock)).await?;
    let third = s.take("POST", "/locks").await?;
    same("the id", &id_of(&third)?, &id_of(&first)?)?;
    third.grant("7").await?;
    s.held("L", call).await.map(drop)
}
