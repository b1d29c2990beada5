//! What gateways say: locks, writes, problem documents. And how a scenario says it in one line.

use anyhow::{Context as _, Result};
use fencegate_wire::ErrorCode;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::exchange::Exchange;
use super::reply::Reply;
use super::request::Request;

/// The operation that gateways tell of.
pub const OPERATION: &str = "01920000-0000-7000-8000-00000000a001";
/// When things happen.
pub const MOMENT: &str = "2026-11-22T12:00:00Z";

/// A lock.
pub fn lock(id: &str, resources: &[&str], owner: &str, token: &str, ttl_ms: Option<i64>) -> Value {
    json!({
        "id": id, "resources": resources, "token": token, "owner": owner, "state": "leased", "metadata": {},
        "ttl_ms": ttl_ms, "expires_in_ms": ttl_ms, "acquired_at": MOMENT,
        "versions": vec![0; resources.len()],
    })
}

/// The lock that an acquire asks for.
pub fn asked_for(request: &Request, token: &str) -> Result<Value> {
    let body = request.json()?;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let id = text("id").context("an acquire has an id")?;
    let many = body.get("resources").and_then(Value::as_array);
    let many: Vec<_> = many.into_iter().flatten().filter_map(Value::as_str).collect();
    let resources = text("resource").map_or(many, |one| vec![one]);
    let ttl = match text("ttl") {
        Some("infinite") => None,
        Some(ttl) => Some(milliseconds(ttl)?),
        None => Some(30_000),
    };
    let mut lock = lock(id, &resources, text("owner").unwrap_or_default(), token, ttl);
    if ttl.is_none() {
        lock["expires_in_ms"] = json!(60_000);
        lock["confirm_within_ms"] = json!(60_000);
    }
    Ok(lock)
}

/// A duration as clients send it: whole milliseconds.
pub fn milliseconds(text: &str) -> Result<i64> {
    let digits =
        text.strip_suffix("ms").with_context(|| format!("{text} is not in milliseconds"))?;
    digits.parse().with_context(|| format!("{text} is not in whole milliseconds"))
}

/// A problem document of this code, known or not.
pub fn problem(code: &str, status: u16, retryable: bool, extra: &Value) -> Value {
    let known = ErrorCode::parse(code);
    let mut document = json!({
        "type": format!("https://fencegate.example/docs/errors/{code}"),
        "title": known.map_or("Something newer", ErrorCode::title),
        "status": status, "detail": "said by the scenario", "code": code, "retryable": retryable,
    });
    if let (Some(document), Some(extra)) = (document.as_object_mut(), extra.as_object()) {
        document.extend(extra.clone());
    }
    document
}

/// What a put became.
pub fn written(request: &Request, version: i64) -> Result<Value> {
    let mut parts = request.path.splitn(5, '/').skip(2);
    let decode =
        |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let resource = parts.next().map(decode).context("a put has a resource")?;
    let key = parts.nth(1).map(decode).context("a put has an object")?;
    Ok(json!({
        "resource": resource, "key": key, "version": version, "size": request.body.len(),
        "sha256": request.sha256(), "operation": OPERATION,
    }))
}

/// An operation that took effect.
pub fn applied(resource: &str, key: &str, version: i64) -> Value {
    json!({
        "operation": OPERATION, "outcome": "applied", "kind": "put", "resource": resource, "key": key,
        "version": version, "size": 5, "sha256": hex::encode(Sha256::digest("hello")), "owner": "worker-a",
        "committed_at": MOMENT,
    })
}

/// A resource as everybody may see it.
pub fn resource(name: &str, owner: &str, state: &str) -> Value {
    json!({
        "resource": name, "state": state, "owner": owner, "acquired_at": MOMENT, "age_ms": 1, "renewed_ms_ago": 1,
        "ttl_ms": 30_000, "expires_in_ms": 10_000, "version": 3, "objects": 1, "queue_length": 0, "state_tag": "t1",
    })
}

/// The tag of an object that this version wrote.
pub fn tag(version: i64) -> String {
    format!("\"g0-v{version}\"")
}

impl Exchange {
    /// Grants what an acquire asks for.
    pub async fn grant(&self, token: &str) -> Result<()> {
        self.grant_with(token, &json!({})).await
    }

    /// The same, with other or further members of the lock.
    pub async fn grant_with(&self, token: &str, extra: &Value) -> Result<()> {
        let reply = self.granted(token, extra)?;
        self.reply(reply).await
    }

    /// The answer that grants.
    pub fn granted(&self, token: &str, extra: &Value) -> Result<Reply> {
        let mut lock = asked_for(&self.request, token)?;
        if let (Some(lock), Some(extra)) = (lock.as_object_mut(), extra.as_object()) {
            lock.extend(extra.clone());
        }
        self.remember(&lock);
        let id = lock["id"].as_str().unwrap_or_default().to_owned();
        let reply = Reply::json(201, &lock).header("location", format!("/locks/{id}"));
        Ok(reply.header("x-fence-token", token).header("x-fence-verdict", "admitted"))
    }

    /// Says that a put took effect, as a new object.
    pub async fn written(&self, version: i64) -> Result<()> {
        self.reply(self.written_reply(version)?).await
    }

    /// The answer that says so.
    pub fn written_reply(&self, version: i64) -> Result<Reply> {
        Ok(Reply::json(201, &written(&self.request, version)?)
            .header("etag", tag(version))
            .header("x-operation-id", OPERATION)
            .header("x-resource-version", version.to_string())
            .header("x-fence-guarantee", "strict")
            .header("x-fence-verdict", "admitted"))
    }

    /// Refuses, with the status that goes with the code.
    pub async fn problem(&self, code: &str) -> Result<()> {
        self.problem_with(code, json!({})).await
    }

    /// The same, with other or further members.
    pub async fn problem_with(&self, code: &str, extra: Value) -> Result<()> {
        self.reply(self.problem_reply(code, &extra)?).await
    }

    /// The answer that refuses.
    pub fn problem_reply(&self, code: &str, extra: &Value) -> Result<Reply> {
        let known = ErrorCode::parse(code).with_context(|| format!("{code} is no code"))?;
        Ok(self.document(&problem(code, known.status(), known.retryable(), extra)))
    }

    /// An answer with this problem document.
    pub fn document(&self, document: &Value) -> Reply {
        let mut document = document.clone();
        let id = self.request.header("x-request-id").unwrap_or("of-the-gateway");
        if let Some(document) = document.as_object_mut() {
            document.entry("request_id").or_insert_with(|| json!(id));
        }
        let status = document["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let verdict = if document.get("outcome").is_some() { "unknown" } else { "refused" };
        let reply = Reply::new(status.unwrap_or(500)).header("x-fence-verdict", verdict);
        reply.header("content-type", "application/problem+json").body(document.to_string())
    }

    /// Answers with the bytes of an object.
    pub async fn object(&self, text: &str, version: i64) -> Result<()> {
        self.reply(object(text, version)).await
    }

    /// Answers without a body.
    pub async fn empty(&self, status: u16) -> Result<()> {
        self.reply(Reply::new(status)).await
    }
}

/// The answer with the bytes of an object.
pub fn object(text: &str, version: i64) -> Reply {
    let reply = Reply::new(200).header("content-type", "text/plain").header("etag", tag(version));
    reply
        .header("x-resource-version", version.to_string())
        .header("accept-ranges", "bytes")
        .body(text)
}
