//! What settles a write.

use fencegate_client::machine::settling::{self, Beside, Condition, Settling, Verdict};
use fencegate_client::{Class, LossReason};
use serde::Deserialize;

use super::{Case, at, case, class_of, foreign, replay, same};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    number: Option<u64>,
    got: String,
    overlapped: bool,
    #[serde(default)]
    earlier_is_open: bool,
    verdict: String,
    open: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    by: String,
    got: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    applied: bool,
    #[serde(default)]
    replayed: bool,
    #[serde(default)]
    not_applied: bool,
    class: Option<String>,
    code: Option<String>,
    reason: Option<String>,
}

case!(WriteCase {
    numbered: bool,
    condition: String,
    attempts: Vec<Sent>,
    asks: Vec<Question>,
    #[serde(default)]
    abandoned: bool,
    result: Written,
});

#[test]
fn write() {
    replay("write", |case: &WriteCase, _| {
        let condition = match case.condition.as_str() {
            "tags" => Condition::Tags,
            "absence" => Condition::Absence,
            _ => Condition::None,
        };
        let mut settling = Settling::new(case.numbered, condition);
        let (mut number, mut last) = (case.numbered.then_some(1), None);
        for (place, sent) in case.attempts.iter().enumerate() {
            let wrong = |error| at(place, error);
            same("number", sent.number, number).map_err(wrong)?;
            let said = match (sent.got.as_str(), foreign(&sent.got)) {
                ("done", _) => settling::Said::Done,
                ("nothing", _) => settling::Said::Unanswered,
                ("not-connected", _) => settling::Said::Unsent,
                (_, Some(status)) => settling::Said::Foreign { status },
                (got, None) => {
                    let (code, class) = class_of(got);
                    settling::Said::Problem { code, class }
                }
            };
            let beside =
                Beside { overlapped: sent.overlapped, earlier_is_open: sent.earlier_is_open };
            let verdict = settling.judge(said, beside);
            let word = match verdict {
                Verdict::Done => "done",
                Verdict::Refused => "refused",
                Verdict::Again => "again",
                Verdict::Renumber => "renumber",
            };
            same("verdict", sent.verdict.as_str(), word).map_err(wrong)?;
            same("open", sent.open, settling.is_open()).map_err(wrong)?;
            if verdict == Verdict::Renumber {
                number = number.map(|number| number + 1);
            }
            last = Some((verdict, sent.got.as_str()));
        }
        // What follows from that for the caller.
        for ask in &case.asks {
            assert!(["operation", "key"].contains(&ask.by.as_str()), "{}", case.id);
        }
        let is_asked = settling.is_open() && !case.asks.is_empty();
        match last {
            Some((Verdict::Done, _)) => {
                same("applied", true, case.result.applied && !case.result.replayed)
            }
            Some((Verdict::Refused, got)) => {
                let (class, reason) = match foreign(got) {
                    Some(_) => (Class::Denied, None),
                    None => (class_of(got).1, LossReason::of(got).map(LossReason::as_str)),
                };
                same("class", case.result.class.as_deref(), Some(class.as_str()))?;
                if class == Class::LockLost {
                    same("reason", case.result.reason.as_deref(), reason)?;
                }
                same("code", case.result.code.as_deref(), (class != Class::Denied).then_some(got))
            }
            Some(_) if is_asked => {
                let found = case.asks.last().map(|ask| ask.got.as_str());
                let expected = match found {
                    Some("applied") => case.result.applied && case.result.replayed,
                    _ if case.abandoned => case.result.not_applied,
                    _ => case.result.class.as_deref() == Some("OutcomeUnknown"),
                };
                same("what the client asked decides", true, expected)
            }
            Some(_) => {
                let class = if settling.is_open() { "OutcomeUnknown" } else { "Unavailable" };
                same("class", case.result.class.as_deref(), Some(class))
            }
            None => same("class", case.result.class.as_deref(), Some("LockLost")),
        }
    });
}
