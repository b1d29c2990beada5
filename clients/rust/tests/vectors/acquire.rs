//! The acquire loop.

use fencegate_client::machine::acquiring::{self, Acquiring, Next, Patience};
use fencegate_client::machine::backoff::{Backoff, portion};
use fencegate_client::machine::lease::{Lease, Terms};
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
    left_ms: Option<u64>,
    next: Option<String>,
}

impl Turn {
    fn is_renewal(&self) -> bool {
        self.path == "/locks/{id}/renew"
    }

    /// Whether the guard may be given out that this answer grants or renews.
    fn is_good(&self, case: &AcquireCase) -> bool {
        let said = self.got.as_deref().is_some_and(|got| ["granted", "renewed"].contains(&got));
        let Some(now) = self.answered_at.filter(|_| said) else { return false };
        let times = (self.left_ms.or(case.ttl_ms), case.ttl_ms);
        Lease::granted(now, self.at, times, Terms::default(), case.draw)
            .can_begin(now, case.grace_ms)
    }
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
    #[serde(default)]
    grace_ms: u64,
    turns: Vec<Turn>,
    result: Acquired,
});

fn word(next: Next) -> &'static str {
    match next {
        Next::Take => "take",
        Next::WaitOn => "wait-on",
        Next::Again { .. } => "again",
        Next::Anew => "anew",
        Next::Later => "later",
        Next::GiveUp => "give-up",
    }
}

/// What the machine decides, turn by turn, and the pauses between. Releases, and renewals before a guard is
/// returned, are sent by others: here only that one is due, and what follows from its answer.
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
        // When the last id was over, whose grant came to nothing.
        let mut ended_at = None;
        for (place, turn) in case.turns.iter().enumerate() {
            let wrong = |error| at(place, error);
            if turn.path != "/locks" {
                assert!(turn.answered_at.is_some(), "{}", case.id);
                let next = turn.is_renewal().then(|| match turn.is_good(case) {
                    true => Next::Take,
                    false => machine.wasted(),
                });
                same("next", turn.next.as_deref(), next.map(word)).map_err(wrong)?;
                // What is given back comes before the next id.
                if next == Some(Next::Anew) || ended_at.is_some() {
                    ended_at = turn.answered_at;
                }
                continue;
            }
            if let Some(now) = ended_at.take() {
                let pause_ms = backoff.next(case.draw, None, until.saturating_sub(now));
                due = pause_ms.map(|pause_ms| now + pause_ms);
                id += 1;
                machine.forget();
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
            same("next", turn.next.as_deref(), Some(word(next))).map_err(wrong)?;
            if next == Next::Take {
                let renews = case.turns.get(place + 1).is_some_and(Turn::is_renewal);
                let is_doubted = case.ttl_ms.is_none() || !turn.is_good(case);
                same("renews first", renews, is_doubted).map_err(wrong)?;
            }
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
                machine.forget();
            }
            last = Some(got.to_owned());
        }
        let is_released = case.turns.last().is_some_and(|turn| turn.method == "DELETE");
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
