//! What the client tells, as JSON.

use fencegate_client::{
    Busy, BusyKind, Committed, Deleted, Details, Error, LockLost, Receipt, Settled, Written,
};
use serde_json::{Value, json};

use super::state::State;

/// A mistake in a scenario, or in this driver.
pub fn mistake(why: &str) -> Value {
    json!({"class": "Driver", "detail": why})
}

/// What the client would refuse if its types did not.
pub fn misuse(why: &str) -> Value {
    json!({"class": "Misuse", "detail": why})
}

fn put(value: &mut Value, name: &str, field: impl Into<Option<Value>>) {
    if let Some(field) = field.into() {
        value[name] = field;
    }
}

/// An error of the client.
pub fn error(state: &State, error: Error) -> Value {
    let mut told = json!({"class": error.class().as_str(), "text": error.to_string()});
    if let Some(known) = error.details() {
        details(&mut told, known);
    }
    match error {
        Error::LockLost(lost) => loss(&mut told, &lost),
        Error::Busy(known) => busy(&mut told, &known),
        Error::CursorVoid { begin_after } => {
            put(&mut told, "begin_after", begin_after.map(Value::from))
        }
        Error::OutcomeUnknown(unknown) => {
            put(&mut told, "key", unknown.key().map(Value::from));
            put(&mut told, "operation", unknown.operation().map(|id| json!(id.to_string())));
            told["handle"] = json!(state.keep_unknown(*unknown));
        }
        _ => {}
    }
    told
}

fn details(told: &mut Value, known: &Details) {
    put(told, "code", known.code.clone().map(Value::from));
    put(told, "status", known.status.map(Value::from));
    put(told, "detail", json!(known.detail));
    put(told, "resource", known.resource.clone().map(Value::from));
    put(told, "request_id", known.request_id.clone().map(Value::from));
    put(told, "attempts", json!(known.attempts));
    put(told, "index", known.index.map(Value::from));
    put(told, "version", known.version.map(Value::from));
    put(told, "etag", known.etag.clone().map(Value::from));
}

fn loss(told: &mut Value, lost: &LockLost) {
    put(told, "reason", json!(lost.reason.as_str()));
    put(told, "superseded_by", lost.superseded_by.as_ref().map(|by| json!(by.as_str())));
}

fn busy(told: &mut Value, known: &Busy) {
    put(told, "kind", json!(kind(known.kind)));
    put(told, "holder", known.holder.clone().map(Value::from));
    put(told, "holder_age_ms", known.holder_age.map(|age| json!(age.as_millis())));
    put(told, "position", known.position.map(Value::from));
}

fn kind(kind: BusyKind) -> &'static str {
    match kind {
        BusyKind::LockHeld => "LockHeld",
        BusyKind::WaitElapsed => "WaitElapsed",
        BusyKind::QueueFull => "QueueFull",
        BusyKind::Frozen => "ResourceFrozen",
        BusyKind::Draining => "ResourceDraining",
        BusyKind::InProgress => "InProgress",
        _ => "Other",
    }
}

fn receipt(told: &mut Value, receipt: &Receipt) {
    told["key"] = json!(receipt.key);
    told["number"] = json!(receipt.number);
    told["attempts"] = json!(receipt.attempts);
}

/// What a put became.
pub fn written(written: &Written) -> Value {
    let mut told = json!({
        "resource": written.resource.to_string(), "object": written.key, "version": written.version,
        "etag": written.etag, "size": written.size, "sha256": written.sha256,
        "operation": written.operation.to_string(), "created": written.created, "replayed": written.replayed,
    });
    receipt(&mut told, &written.receipt);
    told
}

/// What a delete became.
pub fn deleted(deleted: &Deleted) -> Value {
    let mut told = json!({
        "resource": deleted.resource.to_string(), "object": deleted.key, "version": deleted.version,
        "operation": deleted.operation.map(|id| id.to_string()), "created": false, "replayed": deleted.replayed,
    });
    receipt(&mut told, &deleted.receipt);
    told
}

/// What a commit became.
pub fn committed(committed: &Committed) -> Value {
    let mut told = json!({
        "operation": committed.operation.to_string(), "resources": committed.resources, "results": committed.results,
        "version": committed.resources.first().and_then(|first| first.version), "created": null,
        "replayed": committed.replayed,
    });
    receipt(&mut told, &committed.receipt);
    told
}

/// What an unknown outcome turned out to be.
pub fn settled(settled: &Settled) -> Value {
    match settled {
        Settled::Applied { operation, version, .. } => json!({
            "outcome": "applied", "operation": operation.map(|id| id.to_string()), "version": version,
        }),
        Settled::NotApplied(_) => json!({"outcome": "not_applied"}),
        _ => mistake("an outcome that this driver does not know"),
    }
}
