//! What leaving a scope gives its caller.

use fencegate_client::machine::leaving::{self, Body, OnLost, Outcome, Release};
use serde::Deserialize;

use super::{Case, case, reason_of, replay, same};

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
