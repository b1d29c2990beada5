//! Streams about a lock: they bring news sooner, and their silence means nothing.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::losing::{asked_when, told_of_break};
use super::{Scenario, scenario};
use crate::script::{Script, same, within};
use crate::server::{Exchange, Reply};

pub(super) const ALL: &[Scenario] = &[
    scenario!("watch-opened", [39], "a stream is opened once a lock was held for 5 s", opened)
        .needs(&["watch"]),
    scenario!("watch-lost", [33, 39], "the stream tells that the lock is lost", lost)
        .needs(&["watch"]),
    scenario!("watch-warns", [36], "warnings of the stream are no signal", warns).needs(&["watch"]),
    scenario!(
        "watch-breaking",
        [34],
        "a break that is due ends the guard on its own clock",
        breaking
    )
    .needs(&["watch"]),
    scenario!(
        "watch-silent",
        [39],
        "a stream that breaks is opened again, and means nothing",
        silent
    )
    .needs(&["watch"]),
    scenario!("watch-refused", [39], "a refused stream is left alone for a minute", refused)
        .needs(&["watch"]),
    scenario!("watch-off", [39], "no stream is opened if the caller wants none", off)
        .needs(&["watch"]),
    scenario!("watch-few", [39], "there are 16 streams at most", few).needs(&["watch"]),
];

fn stream() -> Reply {
    Reply::new(200).header("content-type", "text/event-stream").claiming(1 << 40)
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// A lock that is watched.
async fn watched(s: &mut Script) -> Result<Exchange> {
    s.shared.auto.watches(false);
    let held = s.lock().await?;
    let watch = s.take("GET", &format!("/locks/{}/events", held.id)).await?;
    watch.begin(stream()).await?;
    Ok(watch)
}

async fn opened(s: &mut Script) -> Result<()> {
    let watch = watched(s).await?;
    within("the time", s.now(), 4_900, 8_000)?;
    let accepts = watch.request.header("accept").unwrap_or_default();
    ensure!(accepts.contains("text/event-stream"), "it accepts {accepts:?}");
    s.quiet(60_000).await
}

async fn lost(s: &mut Script) -> Result<()> {
    let watch = watched(s).await?;
    let data = json!({"state": "superseded", "expires_in_ms": 0, "superseded_by": "grant"});
    watch.bytes(event("lost", &data)).await?;
    let lost = s.event_within(100, "lost").await?;
    same("the reason", &lost["reason"], &json!("superseded"))?;
    let call = s.put("a.txt").await?;
    s.fails_now(call, "LockLost").await.map(drop)
}

async fn warns(s: &mut Script) -> Result<()> {
    let watch = watched(s).await?;
    let data = json!({"state": "leased", "expires_in_ms": 10_000});
    watch.bytes(event("expiring", &data)).await?;
    s.settle().await?;
    s.no_event("lost").await?;
    watch
        .bytes(event("frozen", &json!({"state": "leased", "expires_in_ms": 10_000, "reason": "x"})))
        .await?;
    watch.bytes(event("dancing", &data)).await?;
    s.settle().await?;
    s.no_event("lost").await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn breaking(s: &mut Script) -> Result<()> {
    let watch = watched(s).await?;
    let due = std::time::SystemTime::now() + std::time::Duration::from_secs(8);
    let due = humantime::format_rfc3339_millis(due).to_string();
    let data = json!({"state": "breaking", "expires_in_ms": 8_000, "due": due, "reason": "hangs"});
    let before = s.now();
    watch.bytes(event("breaking", &data)).await?;
    let id = watch.request.path.split('/').nth(2).unwrap_or_default().to_owned();
    let end = asked_when(s, &id).await?.unwrap_or(before + 8_000);
    told_of_break(s).await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))?;
    let lost = s.event_within(12_000, "lost").await?;
    same("the reason", &lost["reason"], &json!("broken"))?;
    let call = s.put("a.txt").await?;
    let error = s.fails_now(call, "LockLost").await?;
    ensure!(error["text"].as_str().is_some_and(|text| text.contains("hangs")), "{error}");
    within("the end", lost["at"].as_u64().unwrap_or_default(), end - 1_500, end + 500)
}

async fn silent(s: &mut Script) -> Result<()> {
    let watch = watched(s).await?;
    watch.cut().await?;
    let again = s.take("GET", "/locks/*/events").await?;
    again.begin(stream()).await?;
    s.pass(120_000).await?;
    s.no_event("lost").await?;
    same("the state", &s.state("L").await?["state"], &json!("held"))
}

async fn refused(s: &mut Script) -> Result<()> {
    s.shared.auto.watches(false);
    s.lock().await?;
    s.take("GET", "/locks/*/events").await?.problem("overloaded").await?;
    s.quiet(55_000).await?;
    s.no_event("warning").await?;
    s.take_within(60_000, "GET", "/locks/*/events").await?.begin(stream()).await
}

async fn off(s: &mut Script) -> Result<()> {
    s.shared.auto.watches(false);
    s.client().await?;
    s.lock_as("L", "7", json!({"watch": false})).await?;
    s.quiet(60_000).await
}

async fn few(s: &mut Script) -> Result<()> {
    s.client().await?;
    for number in 0..20 {
        let resource = format!("r{number}");
        s.lock_as(&resource, &(number + 1).to_string(), json!({"resources": [resource]})).await?;
    }
    s.pass(30_000).await?;
    let seen = s.shared.seen();
    let mut watches: Vec<_> = seen.iter().filter(|seen| seen.path.ends_with("/events")).collect();
    watches.dedup_by_key(|seen| seen.path.clone());
    ensure!(!watches.is_empty() && watches.len() <= 16, "there are {} streams", watches.len());
    Ok(())
}
