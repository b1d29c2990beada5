//! The class of each answer.

use fencegate_client::machine::settling::{self, Beside, Condition, Settling, Verdict};
use fencegate_client::{Class, LossReason};
use fencegate_wire::ErrorCode;
use fencegate_wire::json::Problem;
use serde_json::Value;

use super::{Case, case, load, replay, same};

case!(ErrorCase {
    write: bool,
    status: u16,
    headers: std::collections::BTreeMap<String, String>,
    problem: Option<Value>,
    text: Option<String>,
    class: String,
    reason: Option<String>,
    retry: bool,
});

#[test]
fn errors() {
    replay("errors", |case: &ErrorCase, file| {
        let is_ours = case.headers.get("x-request-id") == file.request_id.as_ref();
        let body = match (&case.problem, &case.text) {
            (Some(problem), None) => problem.to_string(),
            (None, Some(text)) => text.clone(),
            _ => return Err("problem or text".into()),
        };
        let problem: Option<Problem> =
            serde_json::from_str(&body).ok().filter(|_| is_ours && case.status >= 400);
        let (class, reason, retry) = match problem {
            Some(problem) => {
                let unknown = problem.outcome.as_deref() == Some("unknown");
                let code = problem.code.as_str();
                let class = Class::of_answer(code, case.status, problem.retryable, unknown);
                let reason = LossReason::of(code).unwrap_or(LossReason::Broken);
                let reason = (class == Class::LockLost).then(|| reason.as_str().to_owned());
                let retry = matches!(class, Class::Unavailable | Class::OutcomeUnknown)
                    || ErrorCode::parse(code) == Some(ErrorCode::IdempotencyInProgress);
                (class, reason, retry)
            }
            None if case.write => {
                let mut settling = Settling::new(true, Condition::None);
                match settling
                    .judge(settling::Said::Foreign { status: case.status }, Beside::default())
                {
                    Verdict::Again => (Class::OutcomeUnknown, None, true),
                    _ => (Class::Denied, None, false),
                }
            }
            // What others answer to a read is judged by the transport: the conformance scenarios look.
            None => return Ok(()),
        };
        same("class", case.class.as_str(), class.as_str())?;
        same("reason", case.reason.clone(), reason)?;
        same("retry", case.retry, retry)
    });
}

/// The vectors have every code, and the rules every code with its class.
#[test]
fn every_code_of_the_gateway_is_in_the_vectors_and_the_rules() {
    let file = load::<ErrorCase>("errors");
    let rules =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../SPEC.md")).unwrap();
    for code in ErrorCode::ALL {
        let id = format!("code-{code}");
        assert!(file.cases.iter().any(|case| case.id == id), "{code} is not in errors.json");
        let row = format!("| `{}`", Class::of(*code).as_str());
        let mut rows = rules.lines().filter(|line| line.starts_with(&row));
        assert!(rows.any(|row| row.contains(&format!("`{code}`"))), "{code} is not in CC58");
    }
}
