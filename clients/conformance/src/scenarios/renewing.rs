//! The guard and its clock: when renewals are sent, and until when the holder may believe.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{Scenario, scenario};
use crate::script::{Script, same, within};

pub(super) const ALL: &[Scenario] = &[
    scenario!("renew-first", [31, 32], "the first renewal comes at a third", first),
    scenario!("renew-again", [31], "a renewal that failed is tried again soon", again),
    scenario!(
        "renew-bounded",
        [31],
        "a renewal without an answer is given up after a quarter",
        bounded
    ),
    scenario!(
        "renew-one-at-a-time",
        [31],
        "there is one renewal of a guard at a time",
        one_at_a_time
    ),
    scenario!("renew-kept", [30, 31], "a lock that is renewed is kept", kept),
    scenario!(
        "renew-late-grant",
        [31],
        "the first renewal of a late grant is not later than a third of what is left",
        late
    ),
    scenario!(
        "deadline-from-sent",
        [30],
        "the deadline counts from when the request was sent",
        from_sent
    ),
    scenario!("deadline-of-renewal", [30], "the same for renewals", of_renewal),
    scenario!(
        "deadline-unconfirmed",
        [21, 33, 35],
        "without a confirmation the guard is lost at its deadline",
        unconfirmed
    ),
    scenario!("deadline-final", [35, 37], "an answer after the deadline changes nothing", is_final),
    scenario!(
        "deadline-after-stop",
        [37],
        "a process that was stopped learns it before it renews",
        after_stop
    ),
    scenario!(
        "hold-uncertain",
        [21, 33],
        "who holds on may write, and is revived by a renewal",
        hold
    ),
    scenario!("renew-stalled", [38], "without a sign of life renewals stop", stalled)
        .needs(&["stall"]),
];

async fn first(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    let held = s.lock().await?;
    let renewal = s.take("POST", &format!("/locks/{}/renew", held.id)).await?;
    within("the first renewal", s.now(), 8_900, 10_950)?;
    renewal.renewed().await?;
    let before = s.now();
    s.take("POST", "/locks/*/renew").await?.renewed().await?;
    within("the second renewal", s.now() - before, 8_900, 10_950)
}

async fn again(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.lock().await?;
    let mut last = None;
    for code in ["ledger-unavailable", "overloaded", "internal", "outcome-unknown"] {
        let renewal = s.take("POST", "/locks/*/renew").await?;
        if let Some(last) = last {
            within("the pause", s.now() - last, 1_750, 2_250)?;
        }
        last = Some(s.now());
        renewal.problem(code).await?;
    }
    s.take("POST", "/locks/*/renew").await?.cut().await?;
    s.take("POST", "/locks/*/renew").await?.renewed().await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn bounded(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.lock().await?;
    let silent = s.take("POST", "/locks/*/renew").await?;
    let before = s.now();
    let second = s.take("POST", "/locks/*/renew").await?;
    within("the pause", s.now() - before, 4_900, 7_300)?;
    ensure!(silent.gone(), "it still waits for the first renewal");
    second.renewed().await
}

async fn one_at_a_time(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.lock().await?;
    let first = s.take("POST", "/locks/*/renew").await?;
    s.quiet(4_000).await?;
    first.renewed().await?;
    s.quiet(4_000).await
}

async fn kept(s: &mut Script) -> Result<()> {
    s.lock().await?;
    s.pass(150_000).await?;
    s.no_event("lost").await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))?;
    let renewals = s.shared.seen().iter().filter(|seen| seen.path.ends_with("/renew")).count();
    ensure!((13..=18).contains(&renewals), "there were {renewals} renewals in 150 s");
    Ok(())
}

async fn late(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.client().await?;
    let call = s.acquire("L", json!({})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    s.pass(9_000).await?;
    asked.grant("7").await?;
    s.held("L", call).await?;
    let before = s.now();
    s.take("POST", "/locks/*/renew").await?;
    within("the first renewal", s.now() - before, 0, 6_550)
}

/// Refuses all renewals until the guard is lost, and says when that was.
pub(super) async fn lost_at(s: &mut Script) -> Result<u64> {
    for _ in 0..100 {
        while let Some(exchange) = s.any_within(100).await? {
            exchange.problem("ledger-unavailable").await?;
        }
        if let Ok(event) = s.event_within(0, "lost").await {
            same("the reason", &event["reason"], &json!("unconfirmed"))?;
            return Ok(event["at"].as_u64().unwrap_or_else(|| s.now()));
        }
        s.pass(250).await?;
    }
    anyhow::bail!("the guard was never lost")
}

async fn from_sent(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.client().await?;
    let call = s.acquire("L", json!({"ttl": "10s"})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    s.pass(3_000).await?;
    asked.grant("7").await?;
    s.held("L", call).await?;
    within("the end", lost_at(s).await?, 9_850, 9_970)
}

async fn of_renewal(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.client().await?;
    s.lock_as("L", "7", json!({"ttl": "10s"})).await?;
    let renewal = s.take("POST", "/locks/*/renew").await?;
    let sent = s.now();
    s.pass(2_000).await?;
    renewal.renewed().await?;
    let end = lost_at(s).await?;
    within("the end after the renewal", end - sent, 9_800, 9_970)
}

async fn unconfirmed(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.lock().await?;
    within("the end", lost_at(s).await?, 29_650, 29_770)?;
    let call = s.put("a.txt").await?;
    let error = s.fails_now(call, "LockLost").await?;
    same("the reason", &error["reason"], &json!("unconfirmed"))?;
    let state = s.state("L").await?;
    same("the state", &state["state"], &json!("lost"))?;
    let puts = s.shared.seen().iter().filter(|seen| seen.method == "PUT").count();
    same("the writes that were sent", &puts, &0)
}

async fn is_final(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.lock().await?;
    while s.now() < 25_200 {
        s.take("POST", "/locks/*/renew").await?.problem("ledger-unavailable").await?;
    }
    let last = s.take("POST", "/locks/*/renew").await?;
    s.pass(29_900 - s.now()).await?;
    let event = s.event_within(0, "lost").await?;
    same("the reason", &event["reason"], &json!("unconfirmed"))?;
    // The client may have hung up.
    let _ = last.renewed().await;
    s.pass(1_000).await?;
    same("the state", &s.state("L").await?["state"], &json!("lost"))?;
    s.no_event("lost").await
}

async fn after_stop(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.lock().await?;
    s.pass(1_000).await?;
    s.leap(3_600_000).await?;
    let event = s.event_within(0, "lost").await?;
    same("the reason", &event["reason"], &json!("unconfirmed"))?;
    let renewals = s.shared.seen().iter().filter(|seen| seen.path.ends_with("/renew")).count();
    same("the renewals", &renewals, &0)
}

async fn hold(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.client().await?;
    s.lock_as("L", "7", json!({"on_uncertain": "hold"})).await?;
    while s.now() < 32_000 {
        let renewal = s.take("POST", "/locks/*/renew").await?;
        renewal.problem("ledger-unavailable").await?;
    }
    same("the state", &s.state("L").await?["state"], &json!("uncertain"))?;
    s.no_event("lost").await?;
    let call = s.put("a.txt").await?;
    s.take_now("PUT", "/resources/r/objects/a.txt").await?.written(1).await?;
    s.ok_now(call).await?;
    s.take("POST", "/locks/*/renew").await?.renewed().await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))?;
    let revived = loop {
        let warning = s.event_within(0, "warning").await.context("no hook heard of it")?;
        if warning["warning"] == "revived" {
            break warning;
        }
    };
    same("the lock", &revived["lock"], &json!("L"))?;
    s.no_event("lost").await
}

async fn stalled(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.lock_as("L", "7", json!({"stall_after": "20s"})).await?;
    s.pass(15_000).await?;
    s.tell(json!({"do": "beat", "lock": "L"})).await?;
    s.pass(15_000).await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))?;
    let event = s.event_within(60_000, "lost").await?;
    same("the reason", &event["reason"], &json!("stalled"))?;
    within("the end", event["at"].as_u64().unwrap_or_default(), 34_500, 66_000)?;
    let before = s.shared.seen().len();
    s.pass(60_000).await?;
    let renewals =
        s.shared.seen().iter().skip(before).filter(|seen| seen.path.ends_with("/renew")).count();
    same("the renewals after it", &renewals, &0)
}
