//! Job runs: slots, names, what is caught up, what is late, overdue or stuck.

use std::time::Duration;

use fencegate_client::jobs::{JobName, Slot, State, is_too_late, to_catch_up};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Case, case, replay, same};

case!(SlotCase {
    kind: String,
    #[serde(default)]
    refused: bool,
    every: Option<String>,
    now: Option<Timestamp>,
    slot: Option<String>,
    name: Option<String>,
    shard: Option<Shard>,
    resource: Option<String>,
    given: Option<String>,
    last_slot: Option<String>,
    last_is_done: Option<bool>,
    first: Option<String>,
    last: Option<String>,
    count: Option<usize>,
    overdue_after: Option<String>,
    late: Option<bool>,
    last_success: Option<String>,
    overdue: Option<bool>,
    running_ms: Option<u64>,
    max_runtime_ms: Option<u64>,
    recent: Option<Vec<Value>>,
    stuck: Option<bool>,
});

#[derive(Deserialize)]
struct Shard {
    index: u32,
    count: u32,
}

fn duration(text: &Option<String>) -> Option<Duration> {
    text.as_deref().map(|text| humantime::parse_duration(text).expect("a duration"))
}

fn kept(text: &Option<String>) -> Option<Slot> {
    text.as_deref().map(|text| Slot::of_record(text).expect("a slot"))
}

fn add(to: &mut Value, members: &Value) {
    let (to, members) =
        (to.as_object_mut().expect("an object"), members.as_object().expect("an object"));
    to.extend(members.clone());
}

/// The state of a job with these members.
fn state(members: Value) -> State {
    let mut state = json!({"v": 1, "job": "j", "failures_in_row": 0, "recent": []});
    add(&mut state, &members);
    serde_json::from_value(state).expect("a state")
}

/// A run, as the state keeps it.
fn summary(slot: &str, more: &Value) -> Value {
    let mut run = json!({
        "run": "0190a1b2-0000-7000-8000-000000000000", "slot": slot, "attempt": 1, "status": "succeeded",
        "started_at": "2026-11-22T00:00:00Z",
    });
    add(&mut run, more);
    run
}

fn ms(text: &Option<String>) -> Option<u64> {
    duration(text).map(|duration| u64::try_from(duration.as_millis()).expect("not that long"))
}

#[test]
fn slots() {
    replay("slots", |case: &SlotCase, _| match case.kind.as_str() {
        _ if case.refused && (case.slot.is_some() || case.resource.is_some()) => {
            Err("what is refused has no outcome".to_owned())
        }
        "slot" => {
            let made = Slot::at(case.now.unwrap(), duration(&case.every).unwrap());
            same("slot", case.slot.clone(), made.ok().map(String::from))
        }
        "name" => {
            let name = JobName::new(case.name.as_deref().unwrap());
            let name = match &case.shard {
                Some(shard) => name.and_then(|name| name.part(shard.index, shard.count)),
                None => name,
            };
            same("resource", case.resource.clone(), name.ok().map(|name| name.resource()))
        }
        "text" => {
            let read = case.given.as_deref().unwrap().parse::<Slot>();
            same("slot", case.slot.clone(), read.ok().map(String::from))
        }
        "catch_up" => {
            let (every, now) = (duration(&case.every).unwrap(), kept(&case.slot).unwrap());
            let last = kept(&case.last_slot);
            let slots =
                to_catch_up(every, &now, last.as_ref(), case.last_is_done.unwrap()).unwrap();
            let ends = (slots.first().cloned(), slots.last().cloned(), slots.len());
            same("slots", (kept(&case.first), kept(&case.last), case.count.unwrap()), ends)
        }
        "late" => {
            let (every, after) = (duration(&case.every), duration(&case.overdue_after));
            let late = is_too_late(&kept(&case.slot).unwrap(), case.now.unwrap(), every, after);
            same("late", case.late.unwrap(), late)
        }
        "overdue" => {
            let expect =
                json!({"every_ms": ms(&case.every), "overdue_after_ms": ms(&case.overdue_after)});
            let last = case.last_success.as_deref().map(|slot| summary(slot, &json!({})));
            let state = state(json!({"expect": expect, "last_success": last}));
            let overdue = state.overdue_at().is_some_and(|at| case.now.unwrap() > at);
            same("overdue", case.overdue.unwrap(), overdue)
        }
        "stuck" => {
            let recent = case.recent.as_ref().unwrap().iter();
            let recent: Vec<_> = recent.map(|run| summary("20261122T000000Z", run)).collect();
            let expect = json!({"max_runtime_ms": case.max_runtime_ms});
            let state = state(json!({"expect": expect, "recent": recent}));
            let stuck = state.stuck_after_ms().is_some_and(|most| case.running_ms.unwrap() > most);
            same("stuck", case.stuck.unwrap(), stuck)
        }
        other => Err(format!("no kind {other:?}")),
    });
}
