//! The acquire loop.

use fencegate_client::LossReason;
use fencegate_client::machine::acquiring::{self, Acquiring, Next, Patience};
use fencegate_client::machine::backoff::{Backoff, portion};
use serde::Deserialize;
use serde_json::Value;

use super::{Case, at, case, class_of, foreign, replay, same};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    at: u64,
    method: String,
    path: String,
    id: u32,
    wait_ms: Option<u64>,
    answered_at: Option<u64>,
    got: Option<String>,
    retry_after_ms: Option<u64>,
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Acquired {
    guard: Option<u32>,
    class: Option<String>,
    code: Option<String>,
    #[serde(default)]
    cancelled: bool,
}

case!(AcquireCase {
    wait: Value,
    ttl_ms: Option<u64>,
    once: bool,
    cancelled_at: Option<u64>,
    draw: f64,
    turns: Vec<Turn>,
    result: Acquired,
});

/// What the machine decides, turn by turn, and the pauses between. Releases, and renewals before a guard is
/// returned, are sent by others: here only that one is due.
#[test]
fn acquire() {
    replay("acquire", |case: &AcquireCase, _| {
        let patience = match &case.wait {
            Value::Null => Patience::None,
            Value::String(forever) if forever == "forever" => Patience::Forever,
            wait => Patience::UpTo(wait.as_u64().expect("wait")),
        };
        let until = match patience {
            Patience::None => 30_000,
            Patience::UpTo(wait_ms) => wait_ms,
            Patience::Forever => u64::MAX,
        };
        let (mut backoff, mut machine) = (Backoff::default(), Acquiring::new(patience));
        // Under which id, and when the next call is due.
        let (mut id, mut due, mut last) = (1, Some(0), None);
        for (place, turn) in case.turns.iter().enumerate() {
            let wrong = |error| at(place, error);
            if turn.path != "/locks" {
                assert!(turn.answered_at.is_some() && turn.next.is_none(), "{}", case.id);
                let is_lost = turn.got.as_deref().is_some_and(|got| LossReason::of(got).is_some());
                if turn.path == "/locks/{id}/renew" && is_lost {
                    let answered_at = turn.answered_at.unwrap();
                    let left_ms = until.saturating_sub(answered_at);
                    due = backoff
                        .next(case.draw, None, left_ms)
                        .map(|pause_ms| answered_at + pause_ms);
                    id += 1;
                    machine = Acquiring::new(patience);
                }
                continue;
            }
            same("method", "POST", turn.method.as_str()).map_err(wrong)?;
            same("at", due, Some(turn.at)).map_err(wrong)?;
            same("id", turn.id, id).map_err(wrong)?;
            let wait_ms = machine.wait_ms(until.saturating_sub(turn.at));
            same("wait_ms", turn.wait_ms, wait_ms).map_err(wrong)?;
            machine.sent();
            let (Some(now), Some(got)) = (turn.answered_at, turn.got.as_deref()) else {
                continue;
            };
            let retry_after_ms = turn.retry_after_ms;
            let said = match (got, foreign(got)) {
                ("granted", _) => acquiring::Said::Granted,
                ("draining", _) => acquiring::Said::Draining,
                ("nothing", _) => acquiring::Said::Unanswered,
                ("not-connected", _) => acquiring::Said::Unsent,
                (_, Some(status)) => acquiring::Said::Foreign { status },
                (code, None) => {
                    acquiring::Said::Problem { code, class: class_of(code).1, retry_after_ms }
                }
            };
            let next = machine.judge(said);
            let word = match next {
                Next::Take => "take",
                Next::WaitOn => "wait-on",
                Next::Again { .. } => "again",
                Next::Anew => "anew",
                Next::Later => "later",
                Next::GiveUp => "give-up",
            };
            same("next", turn.next.as_deref(), Some(word)).map_err(wrong)?;
            let left_ms = until.saturating_sub(now);
            due = match next {
                Next::Take | Next::GiveUp => None,
                Next::WaitOn => (left_ms > 0).then_some(now),
                Next::Again { .. } if case.once => None,
                Next::Again { floor_ms } => {
                    backoff.next(case.draw, floor_ms, left_ms).map(|ms| now + ms)
                }
                Next::Anew => backoff.next(case.draw, None, left_ms).map(|ms| now + ms),
                Next::Later => Some(now + 1_000 + portion(4_000, case.draw)),
            };
            if next == Next::Anew {
                id += 1;
                machine = Acquiring::new(patience);
            }
            last = Some(got.to_owned());
        }
        let is_released = case.turns.iter().any(|turn| turn.method == "DELETE");
        if case.result.guard.is_some() {
            same("guard", case.result.guard, Some(id))?;
            return same("released", false, is_released);
        }
        same("cancelled", case.cancelled_at.is_some(), case.result.cancelled)?;
        if let (Some(code), Some(last)) = (&case.result.code, &last) {
            same("code", code, last)?;
            same("class", case.result.class.as_deref(), Some(class_of(code).1.as_str()))?;
        }
        assert!(case.ttl_ms.is_none_or(|ttl_ms| ttl_ms >= 1_000), "{}", case.id);
        same("released", is_released, machine.may_be_left())
    });
}
