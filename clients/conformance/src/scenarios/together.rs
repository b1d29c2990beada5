//! Many guards of one client: their renewals go together.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Scenario, scenario};
use crate::script::{Held, Script, same};
use crate::server::{Exchange, Reply};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "renew-together",
        [32],
        "a renewal takes along what was not confirmed for a twelfth",
        together
    ),
    scenario!("renew-fresh-alone", [32], "what was confirmed just now is not taken along", fresh),
    scenario!("renew-together-lost", [32, 33], "each guard gets its own outcome", own_outcome),
    scenario!(
        "renew-together-failed",
        [31, 32],
        "a failed call is a failed attempt of each",
        failed
    ),
    scenario!("renew-many", [32], "a call takes 1,000 at most", many),
];

async fn two(s: &mut Script, apart: u64) -> Result<(Held, Held)> {
    s.shared.auto.renewals(false);
    let first = s.lock().await?;
    s.pass(apart).await?;
    let second = s.lock_as("M", "8", json!({"resources": ["q"]})).await?;
    Ok((first, second))
}

fn ids(exchange: &Exchange) -> Result<Vec<String>> {
    let body = exchange.request.json()?;
    let ids = body["ids"].as_array().cloned().unwrap_or_default();
    let mut ids: Vec<_> = ids.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    ids.sort();
    Ok(ids)
}

async fn together(s: &mut Script) -> Result<()> {
    let (first, second) = two(s, 4_000).await?;
    let renewal = s.take("POST", "/locks/renew").await?;
    let mut both = vec![first.id, second.id];
    both.sort();
    same("the ids", &ids(&renewal)?, &both)?;
    renewal.renewed().await?;
    s.quiet(8_000).await?;
    let next = s.take("POST", "/locks/renew").await?;
    same("the ids of the next", &ids(&next)?, &both)
}

async fn fresh(s: &mut Script) -> Result<()> {
    let (first, _) = two(s, 8_650).await?;
    s.take("POST", &format!("/locks/{}/renew", first.id)).await.map(drop)
}

async fn own_outcome(s: &mut Script) -> Result<()> {
    let (first, second) = two(s, 4_000).await?;
    let renewal = s.take("POST", "/locks/renew").await?;
    let kept = s.shared.auto.lock(&first.id);
    let items = json!([
        {"id": first.id, "lock": kept}, {"id": second.id, "code": "lock-superseded"},
    ]);
    renewal.reply(Reply::json(200, &json!({ "items": items }))).await?;
    let event = s.event_within(0, "lost").await?;
    same("the lock", &event["lock"], &json!("M"))?;
    same("the reason", &event["reason"], &json!("superseded"))?;
    same("the other", &s.state("L").await?["state"], &json!("held"))?;
    s.no_event("lost").await?;
    s.take("POST", &format!("/locks/{}/renew", first.id)).await.map(drop)
}

async fn failed(s: &mut Script) -> Result<()> {
    let (first, second) = two(s, 4_000).await?;
    s.take("POST", "/locks/renew").await?.problem("ledger-unavailable").await?;
    s.no_event("lost").await?;
    let again = s.take_within(3_000, "POST", "/locks/renew").await?;
    let mut both = vec![first.id, second.id];
    both.sort();
    same("the ids", &ids(&again)?, &both)?;
    again.renewed().await?;
    s.quiet(5_000).await
}

async fn many(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.client().await?;
    for number in 0..1_010_u32 {
        let name = format!("L{number}");
        let call = s.acquire(&name, json!({"resources": [format!("r{number}")]})).await?;
        s.take_now("POST", "/locks").await?.grant(&(number + 1).to_string()).await?;
        s.held(&name, call).await?;
    }
    let mut all = 0;
    while all < 1_010 {
        let renewal = s.take("POST", "/locks/renew").await?;
        let count = ids(&renewal)?.len();
        ensure!(count <= 1_000, "it renews {count} at once");
        all += count;
        renewal.renewed().await?;
    }
    s.no_event("lost").await
}
