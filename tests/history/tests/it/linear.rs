//! The search for an order, against all orders, and on histories too long for that.

use std::collections::BTreeMap;

use fence_history::linear::{Verdict, judge, until};
use fence_history::{Answer, Asked, Call, History, Record, Seen};

use crate::brute;
use crate::build::*;
use crate::tiny::{Random, Shape, history};

/// More than any of these histories needs; one that needs more fails.
const BUDGET: usize = 100_000;

fn calls(history: &History) -> Vec<Call> {
    let call = |record: &Record| match record {
        Record::Call(call) => Some(call.clone()),
        _ => None,
    };
    history.records.iter().filter_map(call).collect()
}

fn verdict(calls: &[Call]) -> Verdict {
    let verdicts = judge(calls, BUDGET);
    assert!(verdicts.len() <= 1, "one resource: {verdicts:?}");
    verdicts.into_values().next().unwrap_or(Verdict::Linearizable)
}

/// Makes one of the answers another one. `from` is the first call that may be changed.
fn corrupt(calls: &mut [Call], from: usize, random: &mut Random) {
    let of_puts = |call: &Call| match &call.asked {
        Asked::Write(write) => match &write.change {
            fence_history::Change::Put { value, .. } => Some(value.clone()),
            _ => None,
        },
        _ => None,
    };
    let mut values: Vec<Option<String>> = calls.iter().map(of_puts).collect();
    values.retain(Option::is_some);
    values.push(None);
    let other = random.pick(&values).cloned().flatten();
    let at = from + usize::try_from(random.below((calls.len() - from) as u64)).expect("small");
    let (client, call) = (calls[at].client, &mut calls[at]);
    let Some(answered) = &mut call.answered else { return };
    match &mut answered.answer {
        Answer::Value { found, .. } => {
            *found = other.map(|value| Seen { generation: 0, version: 1, value });
        }
        Answer::Granted { token, .. } => {
            *token = (*token + 6).saturating_sub_unsigned(random.below(12))
        }
        Answer::Written { replayed, .. } if random.percent(30) => {
            let Asked::Write(write) = &call.asked else { return };
            *replayed ^= write.idempotency_key.is_some();
        }
        it @ Answer::Written { .. } => *it = refused("fence-token-stale"),
        it @ Answer::Refused { .. } if matches!(call.asked, Asked::Write(_)) => {
            *it = if random.percent(50) { written(99, 99) } else { refused("fence-token-stale") };
        }
        it @ Answer::Unknown { .. } => {
            *it = match &call.asked {
                Asked::Write(_) => written(99, 99),
                Asked::Release { .. } => Answer::Done,
                _ => return,
            };
        }
        _ => {
            // The answer came earlier: at once, if nobody else began in between.
            let later =
                |other: &Call| other.client != client && other.begun_at > calls[at].begun_at;
            let begun = calls.iter().filter(|other| later(other)).map(|other| other.begun_at).min();
            if let (Some(begun), Some(answered)) = (begun, &mut calls[at].answered) {
                answered.at = answered.at.min(begun - 1).max(calls[at].begun_at);
            }
        }
    }
}

#[test]
fn it_agrees_with_all_orders_on_thousands_of_small_histories() {
    let mut verdicts: BTreeMap<(bool, bool), u32> = BTreeMap::new();
    for seed in 0..12_000 {
        let mut random = Random(seed);
        let clients = 2 + u32::try_from(random.below(3)).unwrap();
        let accidents = random.below(60);
        let shape = Shape { clients, calls: 7, resources: 1, accidents, rollbacks: 0, plain: true };
        let mut calls = calls(&history(seed, shape));
        let is_corrupted = seed % 3 != 0;
        for _ in 0..u64::from(is_corrupted) * (1 + random.below(3)) {
            corrupt(&mut calls, 0, &mut random);
        }
        let expected = brute::is_linearizable(&calls);
        assert!(expected || is_corrupted, "seed {seed}: a correct history: {calls:#?}");
        let found = verdict(&calls);
        let agrees = match found {
            Verdict::Linearizable => expected,
            Verdict::NotLinearizable { stuck_at } => {
                assert!(calls.iter().any(|call| call.number == stuck_at));
                !expected
            }
            Verdict::GaveUp => false,
        };
        assert!(agrees, "seed {seed}: {found:?}, but all orders say {expected}: {calls:#?}");
        *verdicts.entry((is_corrupted, expected)).or_default() += 1;
    }
    println!("(corrupted, linearizable): {verdicts:?}");
    assert!(verdicts[&(true, false)] > 2_000 && verdicts[&(true, true)] > 1_000, "{verdicts:?}");
}

const LONG: Shape =
    Shape { clients: 5, calls: 300, resources: 1, accidents: 25, rollbacks: 0, plain: true };

#[test]
fn long_histories_are_judged_within_the_budget() {
    let mut wrong = 0;
    for seed in 0..60 {
        let right = calls(&history(seed, LONG));
        assert_eq!(verdict(&right), Verdict::Linearizable, "seed {seed}");
        // Faults near the end leave the most to try.
        let mut corrupted = right;
        let mut random = Random(seed);
        (0..3).for_each(|_| corrupt(&mut corrupted, 280, &mut random));
        let found = verdict(&corrupted);
        assert_ne!(found, Verdict::GaveUp, "seed {seed}");
        wrong += u32::from(found != Verdict::Linearizable);
    }
    println!("{wrong} of 60 corrupted histories are not linearizable");
    assert!(wrong >= 30, "{wrong}");
}

#[test]
fn correct_histories_of_every_kind_of_call_are_linearizable() {
    for seed in 0..60 {
        let history = history(seed, Shape::FULL);
        for (resource, found) in judge(&calls(&history), BUDGET) {
            assert_eq!(found, Verdict::Linearizable, "seed {seed}, {resource}");
        }
    }
}

#[test]
fn a_window_may_end_anywhere() {
    for seed in 0..40 {
        let all = calls(&history(seed, LONG));
        let middle = all[all.len() / 2].begun_at + 1;
        let window = until(&all, middle);
        assert!(window.len() > 100 && window.iter().any(|call| call.answered.is_none()));
        assert_eq!(verdict(&window), Verdict::Linearizable, "seed {seed}");
    }
}

#[test]
fn a_budget_that_is_too_small_is_said() {
    let all = calls(&history(1, LONG));
    assert_eq!(judge(&all, 10)["r0"], Verdict::GaveUp);
}

/// What versions would tell as well, told from the answers alone.
#[test]
fn it_finds_a_late_writer_a_stale_read_and_a_second_effect() {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    story.write(1, 10, 1);
    story.grant(2, 20, 1);
    assert_eq!(verdict(&calls(&story.history())), Verdict::Linearizable);

    let mut late = story.clone();
    late.write(2, 10, 2);
    assert_eq!(verdict(&calls(&late.history())), Verdict::NotLinearizable { stuck_at: 4 });

    let mut stale = story.clone();
    stale.write(2, 20, 2);
    stale.read(2, Some((1, "v1")));
    assert_eq!(verdict(&calls(&stale.history())), Verdict::NotLinearizable { stuck_at: 5 });

    let mut twice = story;
    for operation in [2, 3] {
        twice.call(put(20, "v2"), written(operation, 2));
        twice.last_write().idempotency_key = Some("key".into());
    }
    assert_eq!(verdict(&calls(&twice.history())), Verdict::NotLinearizable { stuck_at: 5 });
}

/// A wait that ended while the lock was draining has made older tokens stale all the same.
#[test]
fn a_lock_that_drains_is_sealed_before_it_is_granted() {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    story.call(acquire(2), refused("resource-draining"));
    story.call(put(10, "v1"), refused("fence-token-stale"));
    assert_eq!(verdict(&calls(&story.history())), Verdict::Linearizable);
    story.call(acquire(2), granted(2, 20, 0));
    assert_eq!(verdict(&calls(&story.history())), Verdict::Linearizable);
}
