//! Linearizability by trying all orders of the calls, with a model of its own: slow and plain. It knows
//! what plain histories hold (see `Shape::plain`), on one resource.

use std::collections::{BTreeMap, BTreeSet};

use fence_history::{Answer, Asked, Call, Change};
use uuid::Uuid;

#[derive(Clone)]
enum Fence {
    None,
    Told {
        token: i64,
        ended: bool,
    },
    /// Sealed above this token, and nobody was told.
    Hidden {
        above: i64,
    },
}

#[derive(Clone)]
struct State {
    fence: Fence,
    values: BTreeMap<String, String>,
    keys: BTreeSet<String>,
}

/// Whether some order explains all answers.
pub fn is_linearizable(calls: &[Call]) -> bool {
    let mut tokens = BTreeMap::new();
    for call in calls {
        if let Some(Answer::Granted { lock, token, .. }) = answer(call) {
            tokens.insert(*lock, *token);
        }
    }
    let state = State { fence: Fence::None, values: BTreeMap::new(), keys: BTreeSet::new() };
    explain(&calls.iter().collect::<Vec<_>>(), &state, &tokens)
}

fn answer(call: &Call) -> Option<&Answer> {
    call.answered.as_ref().map(|answered| &answered.answer)
}

/// Whether a call may have had no effect, or none that matters.
fn may_be_left_out(call: &Call) -> bool {
    match answer(call) {
        None | Some(Answer::Unknown { .. } | Answer::Failed { .. }) => true,
        Some(Answer::Refused { code }) => code != "fence-token-stale",
        Some(_) => false,
    }
}

fn explain(left: &[&Call], state: &State, tokens: &BTreeMap<Uuid, i64>) -> bool {
    if left.iter().all(|call| may_be_left_out(call)) {
        return true;
    }
    let needed = left.iter().filter(|call| !may_be_left_out(call));
    let first_end = needed.filter_map(|call| call.answered.as_ref()).map(|it| it.at).min();
    left.iter().enumerate().any(|(index, call)| {
        if first_end.is_some_and(|end| end < call.begun_at) {
            return false;
        }
        let Some(next) = carry_out(call, state, tokens) else { return false };
        let mut rest = left.to_vec();
        rest.remove(index);
        explain(&rest, &next, tokens)
    })
}

fn carry_out(call: &Call, state: &State, tokens: &BTreeMap<Uuid, i64>) -> Option<State> {
    let mut next = state.clone();
    let highest = match state.fence {
        Fence::None => 0,
        Fence::Told { token, .. } => token,
        Fence::Hidden { above } => above,
    };
    let admits =
        |at: i64| matches!(state.fence, Fence::Told { token, ended: false } if token == at);
    let can = match (&call.asked, answer(call)) {
        (_, Some(Answer::Failed { .. })) => false,
        (Asked::Acquire { .. }, Some(Answer::Granted { token, .. })) => {
            next.fence = Fence::Told { token: *token, ended: false };
            *token > highest
        }
        (Asked::Acquire { .. }, None | Some(Answer::Unknown { .. })) => {
            next.fence = Fence::Hidden { above: highest };
            true
        }
        (Asked::Release { lock }, None | Some(Answer::Unknown { .. } | Answer::Done)) => {
            if let Fence::Told { token, ended } = &mut next.fence
                && tokens.get(lock) == Some(token)
            {
                *ended = true;
            }
            true
        }
        (Asked::Write(write), Some(Answer::Refused { .. })) => match state.fence {
            Fence::Told { token, .. } => write.token < token,
            Fence::Hidden { above } => write.token <= above,
            Fence::None => false,
        },
        (Asked::Write(write), Some(Answer::Written { replayed: true, .. })) => {
            state.keys.contains(write.idempotency_key.as_deref().unwrap_or_default())
        }
        (Asked::Write(write), _) => {
            match &write.change {
                Change::Put { key, value, .. } => {
                    next.values.insert(key.clone(), value.clone());
                }
                Change::Delete { key } => {
                    next.values.remove(key);
                }
                Change::DeleteAll => next.values.clear(),
            }
            let is_new = write.idempotency_key.clone().is_none_or(|key| next.keys.insert(key));
            admits(write.token) && is_new
        }
        (Asked::Read { key, .. }, Some(Answer::Value { found, .. })) => {
            state.values.get(key) == found.as_ref().map(|seen| &seen.value)
        }
        _ => true,
    };
    can.then_some(next)
}
