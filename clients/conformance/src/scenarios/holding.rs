//! Leading, looking who leads, and shards.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::acquire::id_of;
use super::{Scenario, scenario};
use crate::script::{Call, Held, Script, same, within};
use crate::server::{Exchange, Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!("elect-waits", [15, 52], "a candidate waits for ever, and leads when granted", waits)
        .needs(&["elect"]),
    scenario!(
        "elect-waited-long",
        [19, 52],
        "after a wait it leads once its time has begun with a renewal",
        waited_long
    )
    .needs(&["elect"]),
    scenario!(
        "elect-rejoins",
        [52],
        "a leader that lost stops its work, and stands in line again",
        rejoins
    )
    .needs(&["elect"]),
    scenario!("elect-stops-first", [52], "but not before its work has ended", stops_first)
        .needs(&["elect", "stop"]),
    scenario!("elect-resigns", [52], "work that returns resigns", resigns).needs(&["elect"]),
    scenario!("elect-fails", [52], "work that fails resigns, and is told", fails).needs(&["elect"]),
    scenario!("observe", [52], "who leads is told on each change", observe).needs(&["observe"]),
    scenario!("shards", [54], "shards are taken without waiting, each once", shards)
        .needs(&["shards"]),
];

/// An election that leads; its call and the lock's id.
async fn leading(s: &mut Script) -> Result<(Call, String)> {
    s.client().await?;
    let call = s.start(json!({"do": "elect", "election": "E", "name": "scheduler"})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    let id = id_of(&asked)?;
    let body = asked.request.json()?;
    same("the wait", &body["wait"], &json!("25000ms"))?;
    asked.grant("7").await?;
    s.event_within(100, "leading").await?;
    Ok((call, id))
}

async fn leave(s: &mut Script, how: &str) -> Result<()> {
    s.tell(json!({"do": "leave", "election": "E", "how": how})).await.map(drop)
}

async fn waits(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.start(json!({"do": "elect", "election": "E", "name": "scheduler"})).await?;
    for _ in 0..3 {
        let asked = s.take_now("POST", "/locks").await?;
        s.pass(25_000).await?;
        s.no_event("leading").await?;
        asked.problem("lock-wait-elapsed").await?;
    }
    s.take_now("POST", "/locks").await?.grant("7").await?;
    s.event_within(100, "leading").await.map(drop)
}

async fn waited_long(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.client().await?;
    s.start(json!({"do": "elect", "election": "E", "name": "scheduler"})).await?;
    let asked = s.take_now("POST", "/locks").await?;
    s.pass(24_000).await?;
    asked.grant("7").await?;
    let renewal = s.take_within(100, "POST", "/locks/*/renew").await?;
    s.no_event("leading").await?;
    renewal.renewed().await?;
    s.event_within(100, "leading").await.map(drop)
}

async fn rejoins(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    let (call, id) = leading(s).await?;
    s.take("POST", "/locks/*/renew").await?.problem("lock-superseded").await?;
    s.event_within(100, "stopping").await?;
    let again = s.take_within(13_000, "POST", "/locks").await?;
    ensure!(id_of(&again)? != id, "it stands in line with the id that has ended");
    again.grant("9").await?;
    s.event_within(100, "leading").await?;
    ensure!(s.open(call).await?, "the election is over");
    Ok(())
}

async fn stops_first(s: &mut Script) -> Result<()> {
    s.shared.auto.renewals(false);
    s.client().await?;
    let command = json!({"do": "elect", "election": "E", "name": "scheduler", "stop_grace": "10s"});
    s.start(command).await?;
    s.take_now("POST", "/locks").await?.grant("7").await?;
    s.event_within(100, "leading").await?;
    s.take("POST", "/locks/*/renew").await?.problem("lock-superseded").await?;
    s.event_within(100, "stopping").await?;
    s.quiet(6_000).await?;
    let before = s.now();
    leave(s, "return").await?;
    s.take_within(1_200, "POST", "/locks").await?;
    within("the pause", s.now() - before, 0, 1_100)
}

async fn resigns(s: &mut Script) -> Result<()> {
    let (call, id) = leading(s).await?;
    leave(s, "return").await?;
    s.take("DELETE", &format!("/locks/{id}")).await?.empty(204).await?;
    let rejoined = s.any_within(2_000).await?;
    match rejoined {
        // An election that goes on by itself stands in line again.
        Some(asked) => ensure!(asked.request.is("POST", "/locks"), "{}", asked.request.line()),
        None => drop(s.ok(call).await?),
    }
    Ok(())
}

async fn fails(s: &mut Script) -> Result<()> {
    let (call, id) = leading(s).await?;
    leave(s, "raise").await?;
    s.take("DELETE", &format!("/locks/{id}")).await?.empty(204).await?;
    s.fails(call, "Body").await?;
    s.quiet(10_000).await
}

async fn observe(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.start(json!({"do": "observe", "stream": "O", "name": "scheduler"})).await?;
    let tell = async |s: &mut Script, owner: &str| -> Result<()> {
        let asked = s.take("GET", "/resources/scheduler").await?;
        let mut resource = answers::resource("scheduler", owner, "leased");
        // As a gateway says it that cannot tell of changes.
        resource.as_object_mut().and_then(|resource| resource.remove("state_tag"));
        asked.reply(Reply::json(200, &resource)).await?;
        s.settle().await
    };
    tell(s, "worker-b").await?;
    same("the leader", &s.event_within(0, "leader").await?["owner"], &json!("worker-b"))?;
    tell(s, "worker-b").await?;
    s.no_event("leader").await?;
    s.take("GET", "/resources/scheduler").await?.problem("ledger-unavailable").await?;
    tell(s, "worker-c").await?;
    same("the leader", &s.event_within(0, "leader").await?["owner"], &json!("worker-c"))
}

fn named(asked: &Exchange) -> Result<String> {
    let body = asked.request.json()?;
    ensure!(body.get("wait").is_none(), "it waits for a shard");
    let name = body["resource"].as_str().or(body["resources"][0].as_str());
    name.map(str::to_owned).context("a shard has a name")
}

async fn shards(s: &mut Script) -> Result<()> {
    s.client().await?;
    let call = s.start(json!({"do": "shards", "stream": "S", "name": "export", "n": 10})).await?;
    let mut names = Vec::new();
    let mut held: Vec<Held> = Vec::new();
    while s.open(call).await? && names.len() < 30 {
        let Some(asked) = s.any_within(2_000).await? else { continue };
        if asked.request.method == "DELETE" {
            asked.empty(204).await?;
            continue;
        }
        let name = named(&asked)?;
        names.push(name.clone());
        if names.len() % 2 == 0 {
            asked.problem("lock-held").await?;
            continue;
        }
        asked.grant(&names.len().to_string()).await?;
        let event = s.event_within(100, "shard").await?;
        held.push(Held { name, id: event["id"].to_string(), token: event["token"].to_string() });
        let release = json!({"do": "release", "lock": event["lock"]});
        s.start(release).await?;
    }
    let mut once = names.clone();
    once.sort();
    once.dedup();
    let want: Vec<_> = (0..10).map(|number| format!("export@{number:02}.10")).collect();
    same("the shards", &once, &want)?;
    same("the number of those that were had", &held.len(), &5)?;
    ensure!(names != want, "they are asked for in order, by every worker the same");
    Ok(())
}
