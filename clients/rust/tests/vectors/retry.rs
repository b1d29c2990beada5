//! Pauses between attempts, and when no other is made.

use fencegate_client::Class;
use fencegate_client::machine::backoff::Backoff;
use serde::Deserialize;

use super::{Case, at, case, class_of, foreign, is_draw, replay, same};

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
