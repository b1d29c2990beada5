//! The vectors of all clients (`clients/vectors`), against what this library decides. Every case that fails is
//! printed under its id, with the rules that it is about.

use std::time::Duration;

use base64::Engine as _;
use fencegate_client::encoding::{multipart, path, sse};
use fencegate_client::machine::acquiring::{self, Acquiring, Next, Patience};
use fencegate_client::machine::backoff::{Backoff, portion};
use fencegate_client::machine::lease::{Effects, Input, Lease, OnUncertain, State, Terms, Warning};
use fencegate_client::machine::leaving::{self, Body, OnLost, Outcome, Release};
use fencegate_client::machine::settling::{self, Beside, Condition, Settling, Verdict};
use fencegate_client::{Class, LossReason};
use fencegate_wire::json::{CommitOperation, CommitRequest, CommitVerb, Problem};
use fencegate_wire::{ErrorCode, MaxHold, NameError, ObjectKey, ResourceName, Ttl};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::Digest as _;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<C> {
    core: u32,
    about: String,
    request_id: Option<String>,
    cases: Vec<C>,
}

trait Case {
    /// Its id, its rules, and why it is there.
    fn head(&self) -> (&str, &[String], &str);
}

macro_rules! case {
    ($name:ident { $($(#[$attribute:meta])* $field:ident: $kind:ty,)+ }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name { id: String, rules: Vec<String>, why: String, $($(#[$attribute])* $field: $kind,)+ }

        impl Case for $name {
            fn head(&self) -> (&str, &[String], &str) {
                (&self.id, &self.rules, &self.why)
            }
        }
    };
}

fn load<C: DeserializeOwned>(name: &str) -> File<C> {
    let text = std::fs::read_to_string(format!("{FOLDER}/{name}.json")).expect("the file is there");
    let file: File<C> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(file.core, 1, "{name}");
    assert!(!file.about.is_empty() && !file.cases.is_empty(), "{name}");
    file
}

/// Runs all cases, and says which failed.
fn replay<C: DeserializeOwned + Case>(
    name: &str,
    run: impl Fn(&C, &File<C>) -> Result<(), String>,
) {
    let file = load::<C>(name);
    let mut failed = 0;
    for case in &file.cases {
        if let Err(error) = run(case, &file) {
            let (id, rules, why) = case.head();
            eprintln!("{name} / {id} ({}): {why}\n    {error}", rules.join(" "));
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "{failed} of {} cases of {name}.json failed", file.cases.len());
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Result<(), String> {
    match expected == got {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected:?}, got {got:?}")),
    }
}

fn at(place: usize, error: String) -> String {
    format!("[{place}] {error}")
}

/// The class of a code, known or not; `+unknown` behind it says that the outcome is unknown.
fn class_of(got: &str) -> (&str, Class) {
    match (got.strip_suffix("+unknown"), ErrorCode::parse(got)) {
        (Some(code), _) => (code, Class::of_answer(code, 503, true, true)),
        (None, Some(code)) => (got, Class::of(code)),
        (None, None) if got.starts_with("fence-") => {
            (got, Class::of_answer(got, 412, false, false))
        }
        (None, None) => panic!("{got} is no code"),
    }
}

fn foreign(got: &str) -> Option<u16> {
    got.strip_prefix("proxy-").map(|status| status.parse().expect("a status"))
}

fn is_draw(draw: f64) -> bool {
    (0.0..=1.0).contains(&draw)
}

#[test]
fn every_case_has_an_id_of_its_own_and_names_rules_of_the_spec() {
    let spec = std::fs::read_to_string(format!("{FOLDER}/../SPEC.md")).unwrap();
    let mut files = 0;
    for entry in std::fs::read_dir(FOLDER).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "schema" || path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for case in file["cases"].as_array().unwrap() {
            let id = case["id"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{name} / {id} comes twice");
            for rule in case["rules"].as_array().unwrap() {
                let rule = format!("**{}** ", rule.as_str().unwrap());
                assert!(spec.contains(&rule), "{name} / {id}: there is no {rule}");
            }
        }
        files += 1;
    }
    assert_eq!(files, 10);
}

#[test]
fn every_file_is_valid_against_its_schema() {
    let schema = std::fs::read_to_string(format!("{FOLDER}/schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    for name in [
        "acquire",
        "durations",
        "errors",
        "lease",
        "multipart",
        "names",
        "retry",
        "scope",
        "sse",
        "write",
    ] {
        let file = std::fs::read_to_string(format!("{FOLDER}/{name}.json")).unwrap();
        let file: Value = serde_json::from_str(&file).unwrap();
        let mut one = schema.clone();
        one["$ref"] = Value::String(format!("#/$defs/{name}"));
        let validator = jsonschema::validator_for(&one).unwrap();
        let wrong: Vec<String> = validator
            .iter_errors(&file)
            .take(5)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
}

case!(NameCase {
    kind: String,
    name: String,
    path: Option<String>,
    refused: Option<String>,
});

#[test]
fn names() {
    fn word(error: NameError) -> String {
        let word = match error {
            NameError::Length(_) => "length",
            NameError::Alphabet => "alphabet",
            NameError::Dots => "dots",
            NameError::EmptySegment => "empty-segment",
            NameError::Control => "control",
            NameError::NotNfc => "not-nfc",
        };
        word.to_owned()
    }
    replay("names", |case: &NameCase, _| {
        let got = match case.kind.as_str() {
            "resource" => ResourceName::new(case.name.clone()).map(|name| {
                let path = path::resource(&name);
                path.strip_prefix("/resources/").unwrap().to_owned()
            }),
            _ => ObjectKey::new(case.name.clone()).map(|key| {
                let path = path::object(&ResourceName::new("r").unwrap(), &key);
                path.strip_prefix("/resources/r/objects/").unwrap().to_owned()
            }),
        };
        let expected = match (&case.path, &case.refused) {
            (Some(path), None) => Ok(path.clone()),
            (None, Some(refused)) => Err(refused.clone()),
            _ => return Err("path or refused".into()),
        };
        same("path", expected, got.map_err(word))
    });
}

case!(DurationCase {
    kind: String,
    given: Value,
    sent: Option<String>,
    refused: Option<bool>,
});

#[derive(Deserialize)]
struct Asked(#[serde(deserialize_with = "fencegate_wire::lock::requested_duration")] Duration);

#[test]
fn durations() {
    fn read(kind: &str, given: &Value) -> Option<String> {
        let ms = |duration: Duration| format!("{}ms", duration.as_millis());
        if let Value::Number(number) = given {
            let duration = Duration::from_millis(number.as_u64()?);
            return match kind {
                "ttl" => Ttl::new(duration).is_ok(),
                "max_hold" => MaxHold::new(duration).is_ok(),
                _ => true,
            }
            .then(|| ms(duration));
        }
        match kind {
            "ttl" => {
                let ttl: Ttl = serde_json::from_value(given.clone()).ok()?;
                Some(if ttl.is_infinite() {
                    "infinite".into()
                } else {
                    format!("{}ms", ttl.as_ms())
                })
            }
            "max_hold" => {
                let max_hold: MaxHold = serde_json::from_value(given.clone()).ok()?;
                Some(format!("{}ms", max_hold.as_ms()))
            }
            _ if given == "forever" => Some("forever".into()),
            _ => serde_json::from_value::<Asked>(given.clone()).ok().map(|asked| ms(asked.0)),
        }
    }
    replay("durations", |case: &DurationCase, _| {
        if case.sent.is_none() != (case.refused == Some(true)) {
            return Err("sent or refused".into());
        }
        same("sent", case.sent.clone(), read(&case.kind, &case.given))
    });
}

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

/// The table of the error classes is the same here and in the vectors, and has every code.
#[test]
fn every_code_of_the_gateway_is_in_the_vectors() {
    let file = load::<ErrorCase>("errors");
    for code in ErrorCode::ALL {
        let id = format!("code-{code}");
        assert!(file.cases.iter().any(|case| case.id == id), "{code} is not in errors.json");
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attempt {
    start: u64,
    end: u64,
    got: String,
    retry_after_ms: Option<u64>,
}

#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct End {
    at: u64,
    class: Option<String>,
    code: Option<String>,
}

case!(RetryCase {
    deadline_ms: u64,
    #[serde(default)]
    once: bool,
    #[serde(default)]
    ride_out: bool,
    draws: Vec<f64>,
    attempts: Vec<Attempt>,
    end: End,
});

#[test]
fn retry() {
    /// The class and code of what an attempt got, and whether it is repeated.
    fn judged(got: &str, ride_out: bool) -> (Class, Option<String>, bool) {
        match (got, foreign(got)) {
            ("nothing" | "not-connected", _) => (Class::Unavailable, None, true),
            (_, Some(401 | 403 | 407)) => (Class::Denied, None, false),
            (_, Some(status)) if status >= 500 || status == 429 => (Class::Unavailable, None, true),
            (_, Some(_)) => (Class::GatewayFault, None, false),
            _ => {
                let (code, class) = class_of(got);
                let rides = ride_out && ["resource-frozen", "resource-draining"].contains(&code);
                let again = matches!(class, Class::Unavailable | Class::OutcomeUnknown)
                    || code == "idempotency-in-progress"
                    || rides;
                // A call that can be made again is never unknown in the end.
                let class = if class == Class::OutcomeUnknown { Class::Unavailable } else { class };
                (class, Some(code.to_owned()), again)
            }
        }
    }
    replay("retry", |case: &RetryCase, _| {
        let (mut backoff, mut now, mut end) = (Backoff::default(), 0, None);
        let mut draws = case.draws.iter().copied();
        let mut draw = 0.5;
        for (place, attempt) in case.attempts.iter().enumerate() {
            same("start", attempt.start, now).map_err(|error| at(place, error))?;
            if end.is_some() {
                return Err(at(place, "the call had ended".into()));
            }
            now = attempt.end;
            if attempt.got == "ok" {
                end = Some(End { at: now, class: None, code: None });
                continue;
            }
            let (class, code, again) = judged(&attempt.got, case.ride_out);
            let left_ms = case.deadline_ms.saturating_sub(now);
            draw = draws.next().unwrap_or(draw);
            assert!(is_draw(draw), "{}", case.id);
            let pause_ms = backoff.next(draw, attempt.retry_after_ms, left_ms);
            match pause_ms.filter(|pause_ms| again && !case.once && *pause_ms < left_ms) {
                Some(pause_ms) => now += pause_ms,
                None => end = Some(End { at: now, class: Some(class.as_str().to_owned()), code }),
            }
        }
        same("end", Some(&case.end), end.as_ref())
    });
}

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

fn reason_of(word: &str) -> LossReason {
    use LossReason as R;
    let all = [
        R::Superseded,
        R::Broken,
        R::Void,
        R::ReleasedElsewhere,
        R::HoldExceeded,
        R::Gone,
        R::OrderStale,
        R::Unconfirmed,
        R::Stalled,
        R::Transferred,
        R::Released,
        R::Closed,
    ];
    all.into_iter().find(|reason| reason.as_str() == word).unwrap_or_else(|| panic!("{word}"))
}

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
        // Under which id, how often it was sent, and when the next call is due.
        let (mut id, mut under_id, mut due, mut last) = (1, 0, Some(0), None);
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
                    (under_id, machine) = (0, Acquiring::new(patience));
                }
                continue;
            }
            same("method", "POST", turn.method.as_str()).map_err(wrong)?;
            same("at", due, Some(turn.at)).map_err(wrong)?;
            same("id", turn.id, id).map_err(wrong)?;
            let wait_ms = machine.wait_ms(until.saturating_sub(turn.at));
            same("wait_ms", turn.wait_ms, wait_ms).map_err(wrong)?;
            machine.sent();
            under_id += 1;
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
            let next = machine.judge(said, under_id == 1);
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
                (under_id, machine) = (0, Acquiring::new(patience));
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

#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct Left {
    is: String,
    reason: Option<String>,
}

case!(ScopeCase {
    body: String,
    lost: Option<String>,
    on_lost: String,
    writes_under_way: bool,
    release_answer: Option<String>,
    outcome: Left,
    release: String,
    calls: Vec<String>,
    hooks: Vec<String>,
});

#[test]
fn scope() {
    replay("scope", |case: &ScopeCase, _| {
        let body = match case.body.as_str() {
            "returns" => Body::Returned,
            "raises" => Body::Failed,
            "cancelled-by-signal" => Body::Cancelled,
            "cancelled-outside" => Body::Dropped,
            other => return Err(format!("body {other}")),
        };
        let on_lost = if case.on_lost == "ignore" { OnLost::Ignore } else { OnLost::Fail };
        let (outcome, release) = leaving::leave(body, case.lost.as_deref().map(reason_of), on_lost);
        let (is, reason) = match outcome {
            Outcome::Value => ("value", None),
            Outcome::OwnError => ("own-error", None),
            Outcome::Lost(reason) => ("lost", Some(reason.as_str().to_owned())),
            Outcome::Nothing => ("cancelled", None),
        };
        same("outcome", &case.outcome, &Left { is: is.to_owned(), reason })?;
        let release = match release {
            Release::Awaited => "awaited",
            Release::Background => "background",
            Release::None => "none",
        };
        same("release", case.release.as_str(), release)?;
        // The order follows from that; the conformance scenarios look at it.
        let place = |call: &str| case.calls.iter().position(|one| one == call);
        let is_due = case.release_answer.is_some();
        same("a release is due", is_due, release != "none")?;
        same("it is sent", is_due, place("release").is_some())?;
        same(
            "it comes before the return",
            release == "awaited",
            place("release") < place("return") && is_due,
        )?;
        let waits = case.writes_under_way && release == "awaited";
        same("writes are waited for", waits, place("wait-for-writes").is_some())?;
        let fails = case.release_answer.as_deref().is_some_and(|answer| answer != "ok");
        same("a failed release calls a hook", fails, !case.hooks.is_empty())
    });
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Chunk {
    Text(String),
    Bytes { base64: String },
}

#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct SseEvent {
    event: String,
    data: String,
    id: String,
}

case!(SseCase {
    chunks: Vec<Chunk>,
    events: Vec<SseEvent>,
    retry: Option<u64>,
});

#[test]
fn sse() {
    replay("sse", |case: &SseCase, _| {
        let (mut parser, mut events, mut retry) = (sse::SseParser::default(), Vec::new(), None);
        for chunk in &case.chunks {
            let bytes = match chunk {
                Chunk::Text(text) => text.clone().into_bytes(),
                Chunk::Bytes { base64 } => {
                    base64::engine::general_purpose::STANDARD.decode(base64).unwrap()
                }
            };
            for item in parser.push(&bytes) {
                match item {
                    sse::SseItem::Event(event) => {
                        events.push(SseEvent {
                            event: event.event,
                            data: event.data,
                            id: event.id,
                        });
                    }
                    sse::SseItem::Retry(ms) => retry = Some(ms),
                    sse::SseItem::Id(_) => {}
                    sse::SseItem::TooLong => return Err("too long".into()),
                }
            }
        }
        same("events", &case.events, &events)?;
        same("retry", case.retry, retry)
    });
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Planned {
    op: String,
    resource: String,
    key: String,
    text: Option<String>,
    base64: Option<String>,
    content_type: Option<String>,
    if_match: Option<String>,
    #[serde(default)]
    if_absent: bool,
}

case!(MultipartCase {
    boundary: String,
    operations: Vec<Planned>,
    versions: std::collections::BTreeMap<String, i64>,
    body: Bytes,
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bytes {
    text: Option<String>,
    base64: Option<String>,
}

fn decoded(text: Option<&String>, base64: Option<&String>) -> Vec<u8> {
    match (text, base64) {
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(encoded)) => {
            base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64")
        }
        _ => panic!("text or base64"),
    }
}

#[test]
fn multipart() {
    replay("multipart", |case: &MultipartCase, _| {
        let (mut operations, mut bodies) = (Vec::new(), Vec::new());
        for planned in &case.operations {
            let mut body = None;
            if planned.op == "put" {
                let name = format!("b{}", bodies.len());
                let content_type = planned.content_type.clone();
                let content_type = content_type.unwrap_or("application/octet-stream".into());
                let bytes = decoded(planned.text.as_ref(), planned.base64.as_ref());
                bodies.push((name.clone(), content_type, bytes));
                body = Some(name);
            }
            operations.push(CommitOperation {
                op: if planned.op == "put" { CommitVerb::Put } else { CommitVerb::Delete },
                resource: ResourceName::new(planned.resource.clone()).unwrap(),
                key: ObjectKey::new(planned.key.clone()).unwrap(),
                body,
                content_type: planned.content_type.clone(),
                if_match: planned.if_match.clone(),
                if_none_match: planned.if_absent.then(|| "*".to_owned()),
            });
        }
        let versions = case.versions.iter();
        let versions =
            versions.map(|(name, version)| (ResourceName::new(name.clone()).unwrap(), *version));
        let list = CommitRequest { operations, versions: versions.collect() };
        let list = serde_json::to_vec(&list).unwrap();
        let head = |is_first, name: &str, content_type: &str, digest: Option<&str>| {
            multipart::head(&case.boundary, is_first, name, content_type, digest)
        };
        let mut whole = head(true, "operations", "application/json", None).to_vec();
        whole.extend(list);
        for (name, content_type, bytes) in bodies {
            let digest = sha2::Sha256::digest(&bytes);
            let digest = base64::engine::general_purpose::STANDARD.encode(digest);
            let digest = format!("sha-256=:{digest}:");
            whole.extend_from_slice(&head(false, &name, &content_type, Some(&digest)));
            whole.extend(bytes);
        }
        whole.extend_from_slice(&multipart::tail(&case.boundary));
        let expected = decoded(case.body.text.as_ref(), case.body.base64.as_ref());
        same("body", String::from_utf8_lossy(&expected), String::from_utf8_lossy(&whole))?;
        same("bytes", expected, whole)
    });
}
