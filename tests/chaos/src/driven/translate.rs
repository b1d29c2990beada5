//! From what a driver tells to the answers of a history.

use std::collections::BTreeMap;

use fence_core::EntityTag;
use fence_history::Answer;
use serde_json::Value;
use uuid::Uuid;

use crate::line::NOT_TOLD;

/// What was told of a write, and what of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Write {
    /// What the history holds.
    pub answer: Answer,
    /// Its idempotency key.
    pub key: Option<String>,
    /// Its number; `Some(None)`: it has none.
    pub number: Option<Option<i64>>,
    /// By which an unknown outcome can be resolved.
    pub handle: Option<String>,
}

/// What is told of a put into a resource, or of a commit. By a tag: it demanded one, or that there is none.
pub fn write(result: &Result<Value, Value>, resource: &str, by_tag: bool) -> Write {
    let (Ok(told) | Err(told)) = result;
    let answer = match result {
        Ok(told) => written(told, resource),
        Err(error) => failure(error, by_tag),
    };
    let number = told.get("number").map(Value::as_i64);
    Write { answer, key: text(told, "key"), number, handle: text(told, "handle") }
}

/// What is told of a write whose outcome was unknown: `None` if it still is.
///
/// What took effect is told by its operation alone, so it is an answer about that.
pub fn settled(result: &Result<Value, Value>) -> Option<Settled> {
    match result {
        Ok(told) if told["outcome"] == "applied" => Some(Settled::Applied {
            operation: uuid(told, "operation"),
            version: told["version"].as_i64(),
        }),
        Ok(told) if told["outcome"] == "not_applied" => Some(Settled::NotApplied),
        _ => None,
    }
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It took effect.
    Applied {
        /// As this operation.
        operation: Option<Uuid>,
        /// With this version of its first resource.
        version: Option<i64>,
    },
    /// It did not, and never will.
    NotApplied,
}

/// A lock that was told to be granted, with versions if they are told.
pub fn granted(told: &Value) -> Option<(Uuid, i64, BTreeMap<String, i64>)> {
    let token = told["token"].as_str()?.parse().ok()?;
    let versions = match &told["versions"] {
        Value::Object(versions) => versions
            .iter()
            .filter_map(|(name, version)| Some((name.clone(), version.as_i64()?)))
            .collect(),
        Value::Array(versions) => {
            let names =
                told["resources"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let versions = versions.iter().filter_map(Value::as_i64);
            names.map(str::to_owned).zip(versions).collect()
        }
        _ => BTreeMap::new(),
    };
    Some((uuid(told, "id")?, token, versions))
}

/// An error: whether the outcome is unknown, or that nothing came of it.
///
/// A history holds no tags, and a refusal because of a key or a number needs one there: codes that the checkers would
/// miss the reason of stand behind their class.
pub fn failure(error: &Value, by_tag: bool) -> Answer {
    let class = error["class"].as_str().unwrap_or("no class");
    let said = ["code", "kind", "reason"].into_iter().find_map(|name| text(error, name));
    let is_whole = error["key"].is_string() && error.get("number").is_some() && !by_tag;
    let code = match said {
        Some(code) if class == "LockLost" || is_whole => code,
        Some(code) => format!("{class}: {code}"),
        None => class.to_owned(),
    };
    match class {
        "OutcomeUnknown" => Answer::Unknown { operation: uuid(error, "operation") },
        "Unavailable" | "GatewayFault" => Answer::Failed { code },
        _ => Answer::Refused { code },
    }
}

fn written(told: &Value, resource: &str) -> Answer {
    let Some(operation) = uuid(told, "operation") else {
        return Answer::Failed { code: format!("unreadable: {told}") };
    };
    let results = told["results"].as_array().into_iter().flatten();
    let tags = results.chain([told]).filter_map(|one| EntityTag::parse(one["etag"].as_str()?));
    let generation = tags.map(|tag| tag.generation).next().unwrap_or(NOT_TOLD);
    let versions = match told["resources"].as_array() {
        Some(resources) => {
            let one = |one: &Value| Some((text(one, "resource")?, one["version"].as_i64()));
            resources.iter().filter_map(one).collect()
        }
        None => vec![(resource.to_owned(), told["version"].as_i64())],
    };
    // Nobody else has its key, so that it took effect within this call, whichever attempt is answered.
    Answer::Written { operation, versions, generation, replayed: false }
}

fn text(told: &Value, name: &str) -> Option<String> {
    told[name].as_str().map(str::to_owned)
}

fn uuid(told: &Value, name: &str) -> Option<Uuid> {
    told[name].as_str()?.parse().ok()
}
