//! The lease machine.

use fencegate_client::LossReason;
use fencegate_client::machine::lease::{Effects, Input, Lease, OnUncertain, State, Terms, Warning};
use serde::Deserialize;

use super::{Case, at, case, is_draw, reason_of, replay, same};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Granted {
    at: u64,
    sent: u64,
    left_ms: Option<u64>,
    ttl_ms: Option<u64>,
    then: Then,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at: u64,
    on: String,
    sent: Option<u64>,
    left_ms: Option<u64>,
    ttl_ms: Option<u64>,
    #[serde(default)]
    asked: bool,
    code: Option<String>,
    reason: Option<String>,
    then: Then,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Then {
    state: String,
    reason: Option<String>,
    deadline: Option<u64>,
    renew_at: Option<u64>,
    joins: Option<bool>,
    attempt_ms: Option<u64>,
    signal: Option<String>,
    #[serde(default)]
    hooks: Vec<String>,
}

case!(LeaseCase {
    on_uncertain: String,
    stall_after_ms: Option<u64>,
    is_renewed: bool,
    draw: f64,
    granted: Granted,
    steps: Vec<Step>,
});

fn compare(now: u64, then: &Then, lease: &Lease, effects: &Effects) -> Result<(), String> {
    let (state, reason) = match lease.state() {
        State::Held => ("held", None),
        State::Uncertain => ("uncertain", None),
        State::Lost(reason) => ("lost", Some(reason.as_str())),
        State::Released => ("released", None),
    };
    same("state", then.state.as_str(), state)?;
    same("reason", then.reason.as_deref(), reason)?;
    same("signal", then.signal.as_deref(), effects.signal.map(LossReason::as_str))?;
    let hook = |warning: &Warning| match warning {
        Warning::Expiring { .. } => "expiring".to_owned(),
        Warning::Breaking { .. } => "breaking".to_owned(),
        Warning::Revived { .. } => "revived".to_owned(),
    };
    same("hooks", then.hooks.clone(), effects.warnings.iter().map(hook).collect())?;
    if let Some(joins) = then.joins {
        same("deadline", then.deadline, lease.deadline_ms())?;
        same("renew_at", then.renew_at, lease.due_ms())?;
        same("joins", joins, lease.joins(now))?;
    }
    match then.attempt_ms {
        Some(attempt_ms) => same("attempt_ms", attempt_ms, lease.attempt_ms()),
        None => Ok(()),
    }
}

fn step(lease: &mut Lease, step: &Step, draw: f64) -> Effects {
    let now = step.at;
    let input = match step.on.as_str() {
        "clock" => return lease.tick(now),
        "asked" => {
            let effects = lease.tick(now);
            lease.ttl_asked(now, step.ttl_ms);
            return effects;
        }
        "renewed" => {
            if step.asked {
                lease.ttl_known(step.ttl_ms);
            }
            let sent_ms = step.sent.expect("sent");
            Input::Renewed { sent_ms, left_ms: step.left_ms, ttl_ms: step.ttl_ms }
        }
        "failed" => Input::RenewFailed,
        "refused" => match LossReason::of(step.code.as_deref().expect("code")) {
            Some(reason) => Input::Lost(reason),
            None => return lease.tick(now),
        },
        "breaking" => Input::Breaking { sent_ms: step.at, left_ms: step.left_ms.expect("left_ms") },
        "ended" => Input::Lost(reason_of(step.reason.as_deref().expect("reason"))),
        "release" => Input::Release,
        "beat" => Input::Beat,
        other => panic!("{other}"),
    };
    lease.on(now, input, draw)
}

#[test]
fn lease() {
    replay("lease", |case: &LeaseCase, _| {
        assert!(is_draw(case.draw), "{}", case.id);
        let on_uncertain = match case.on_uncertain.as_str() {
            "hold" => OnUncertain::Hold,
            _ => OnUncertain::Stop,
        };
        let Granted { at: now, sent, left_ms, ttl_ms, then } = &case.granted;
        let (stall_after_ms, is_renewed) = (case.stall_after_ms, case.is_renewed);
        let terms = Terms { on_uncertain, stall_after_ms, is_renewed };
        let mut lease = Lease::granted(*now, *sent, (*left_ms, *ttl_ms), terms, case.draw);
        compare(*now, then, &lease, &Effects::default())
            .map_err(|error| format!("granted: {error}"))?;
        for (place, one) in case.steps.iter().enumerate() {
            let effects = step(&mut lease, one, case.draw);
            compare(one.at, &one.then, &lease, &effects).map_err(|error| at(place, error))?;
        }
        Ok(())
    });
}
