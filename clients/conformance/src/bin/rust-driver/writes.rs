//! Writes on guards, and what became of those of unknown outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use fencegate_client::{Body, Change, DeleteBuilder, Error, PutBuilder, Settled};
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::json;

use super::commands::duration;
use super::state::{Guard, State, Told};
use super::told;

/// `put`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    lock: String,
    resource: Option<String>,
    object: String,
    text: Option<String>,
    size: Option<usize>,
    stream: Option<String>,
    content_type: Option<String>,
    if_match: Option<String>,
    #[serde(default)]
    if_absent: bool,
    expect_version: Option<i64>,
    key: Option<String>,
    #[serde(default)]
    ride_out: bool,
    attempts: Option<u32>,
}

impl Put {
    fn body(&self) -> Body {
        if let Some(size) = self.size {
            return Body::from(vec![b'x'; size]);
        }
        if let Some(text) = &self.stream {
            let piece = Ok(bytes::Bytes::from(text.clone()));
            return Body::once(None, futures::stream::iter([piece]).boxed());
        }
        Body::from(self.text.clone().unwrap_or_default())
    }

    fn builder(&self, guard: &Guard) -> PutBuilder {
        let (object, body) = (self.object.as_str(), self.body());
        match (guard, &self.resource) {
            (Guard::Lock(lock), None) => lock.put(object, body),
            (Guard::Lock(lock), Some(resource)) => lock.on(resource).put(object, body),
            (Guard::Fence(fence), None) => fence.put(object, body),
            (Guard::Fence(fence), Some(resource)) => fence.on(resource).put(object, body),
        }
    }
}

/// Puts.
pub async fn put(state: &State, put: Put) -> Told {
    let guard = state.guard(&put.lock)?;
    let mut builder = put.builder(&guard);
    if let Some(content_type) = &put.content_type {
        builder = builder.content_type(content_type);
    }
    if let Some(tag) = &put.if_match {
        builder = builder.if_match(tag);
    }
    if put.if_absent {
        builder = builder.if_absent();
    }
    if let Some(version) = put.expect_version {
        builder = builder.if_resource_version(version);
    }
    if let Some(key) = &put.key {
        builder = builder.idempotency_key(key);
    }
    if put.ride_out {
        builder = builder.ride_out();
    }
    if put.attempts == Some(1) {
        builder = builder.no_retries();
    }
    let written = builder.await.map_err(|error| told::error(state, error))?;
    Ok(told::written(&written))
}

/// `delete` and `delete_all`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    lock: String,
    resource: Option<String>,
    #[serde(default)]
    object: String,
    if_match: Option<String>,
    expect_version: Option<i64>,
    key: Option<String>,
}

impl Delete {
    fn builder(&self, guard: &Guard, all: bool) -> DeleteBuilder {
        let object = self.object.as_str();
        match (guard, &self.resource, all) {
            (Guard::Lock(lock), None, false) => lock.delete(object),
            (Guard::Lock(lock), None, true) => lock.delete_all(),
            (Guard::Lock(lock), Some(resource), false) => lock.on(resource).delete(object),
            (Guard::Lock(lock), Some(resource), true) => lock.on(resource).delete_all(),
            (Guard::Fence(fence), _, false) => fence.delete(object),
            (Guard::Fence(fence), _, true) => fence.delete_all(),
        }
    }
}

/// Deletes one object, or all.
pub async fn delete(state: &State, delete: Delete, all: bool) -> Told {
    let guard = state.guard(&delete.lock)?;
    let mut builder = delete.builder(&guard, all);
    if let Some(tag) = &delete.if_match {
        builder = builder.if_match(tag);
    }
    if let Some(version) = delete.expect_version {
        builder = builder.if_resource_version(version);
    }
    if let Some(key) = &delete.key {
        builder = builder.idempotency_key(key);
    }
    let deleted = builder.await.map_err(|error| told::error(state, error))?;
    Ok(told::deleted(&deleted))
}

/// `commit`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    lock: String,
    operations: Vec<Operation>,
    #[serde(default)]
    versions: BTreeMap<String, i64>,
    key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operation {
    op: String,
    resource: String,
    object: String,
    #[serde(default)]
    text: String,
    content_type: Option<String>,
    if_match: Option<String>,
    #[serde(default)]
    if_absent: bool,
}

/// Commits.
pub async fn commit(state: &State, commit: Commit) -> Told {
    let mut builder = match state.guard(&commit.lock)? {
        Guard::Lock(lock) => lock.commit(),
        Guard::Fence(fence) => fence.commit(),
    };
    for operation in &commit.operations {
        builder = match operation.op.as_str() {
            "put" => builder.put(&operation.resource, &operation.object, operation.text.clone()),
            "delete" => builder.delete(&operation.resource, &operation.object),
            other => return Err(told::mistake(&format!("there is no operation {other}"))),
        };
        if let Some(content_type) = &operation.content_type {
            builder = builder.content_type(content_type);
        }
        if let Some(tag) = &operation.if_match {
            builder = builder.if_match(tag);
        }
        if operation.if_absent {
            builder = builder.if_absent();
        }
    }
    for (resource, version) in &commit.versions {
        builder = builder.expect_version(resource, *version);
    }
    if let Some(key) = &commit.key {
        builder = builder.idempotency_key(key);
    }
    let committed = builder.send().await.map_err(|error| told::error(state, error))?;
    Ok(told::committed(&committed))
}

/// `update`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    lock: String,
    resource: Option<String>,
    object: String,
    append: Option<String>,
    say: Option<String>,
}

/// Reads, changes, writes.
pub async fn update(state: &State, update: Update) -> Told {
    let lock = state.lock(&update.lock)?;
    let mut rounds = 0;
    let change = |old: Option<bytes::Bytes>| {
        rounds += 1;
        match (update.say.as_deref(), &update.append) {
            (Some("delete"), _) => Change::Delete,
            (_, Some(more)) => {
                let old = old.unwrap_or_default();
                Change::from([&old[..], more.as_bytes()].concat())
            }
            _ => Change::Keep,
        }
    };
    let done = match &update.resource {
        None => lock.update(&update.object, change).await,
        Some(resource) => lock.on(resource).update(&update.object, change).await,
    };
    let written = done.map_err(|error| told::error(state, error))?;
    let mut answer = written.as_ref().map_or_else(|| json!({"kept": true}), told::written);
    answer["rounds"] = json!(rounds);
    Ok(answer)
}

/// `upstream`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    lock: String,
    upstream: String,
    method: String,
    path: String,
    text: Option<String>,
    key: Option<String>,
}

/// Sends a request to an upstream.
pub async fn upstream(state: &State, upstream: Upstream) -> Told {
    let lock = state.lock(&upstream.lock)?;
    let method = upstream.method.parse().map_err(|_| told::mistake("there is no such method"))?;
    let mut builder = lock.upstream(&upstream.upstream, method, &upstream.path);
    if let Some(key) = &upstream.key {
        builder = builder.header("idempotency-key", key);
    }
    if let Some(text) = &upstream.text {
        builder = builder.body(text.clone());
    }
    let answer = builder.await.map_err(|error| told::error(state, error))?;
    Ok(json!({
        "status": answer.status, "text": String::from_utf8_lossy(&answer.body),
        "operation": answer.operation.map(|id| id.to_string()),
    }))
}

const RESOLVED_WITHIN: Duration = Duration::from_secs(30);

fn settled(state: &State, settled: Result<Settled, Error>) -> Told {
    settled.map(|settled| told::settled(&settled)).map_err(|error| told::error(state, error))
}

/// Finds out what became of a write.
pub async fn resolve(state: &State, handle: &str, within: Option<&str>) -> Told {
    let unknown = state.unknown(handle)?;
    let within = within.map_or(Ok(RESOLVED_WITHIN), duration)?;
    settled(state, unknown.resolve(within).await)
}

/// The same, at the price of the lock.
pub async fn abandon(state: &State, lock: &str, handle: &str) -> Told {
    state.guard(lock)?;
    let unknown = state.unknown(handle)?;
    settled(state, unknown.abandon(RESOLVED_WITHIN).await)
}
