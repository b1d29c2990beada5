//! What gateways answer by themselves: `GET /status`, renewals, and streams about locks, unless the scenario wants
//! to see them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::reply::Reply;
use super::request::Request;
use super::{answers, locked};

/// What is answered without asking the scenario.
pub struct Auto {
    status: Mutex<Value>,
    renewals: AtomicBool,
    watches: AtomicBool,
    locks: Mutex<HashMap<String, Value>>,
}

impl Default for Auto {
    fn default() -> Self {
        let status = json!({
            "version": env!("CARGO_PKG_VERSION"), "answer_within_ms": 12_000, "keys_kept_ms": 604_800_000_i64,
        });
        Self {
            status: Mutex::new(status),
            renewals: AtomicBool::new(true),
            watches: AtomicBool::new(true),
            locks: Mutex::default(),
        }
    }
}

impl Auto {
    /// Changes a member of the answer to `GET /status`.
    pub fn status(&self, name: &str, value: Value) {
        if let Some(member) = locked(&self.status).get_mut(name) {
            *member = value;
        }
    }

    /// Whether renewals are answered by themselves, as granted.
    pub fn renewals(&self, on: bool) {
        self.renewals.store(on, Ordering::SeqCst);
    }

    /// Whether streams about locks are answered by themselves, and stay silent.
    pub fn watches(&self, on: bool) {
        self.watches.store(on, Ordering::SeqCst);
    }

    /// Remembers a lock as it was granted, for its renewals.
    pub fn granted(&self, lock: &Value) {
        if let Some(id) = lock.get("id").and_then(Value::as_str) {
            locked(&self.locks).insert(id.to_owned(), lock.clone());
        }
    }

    /// A lock as it was granted.
    pub fn lock(&self, id: &str) -> Value {
        let known = locked(&self.locks).get(id).cloned();
        known.unwrap_or_else(|| answers::lock(id, &["r"], "worker-a", "7", Some(30_000)))
    }

    pub(super) fn answer(&self, request: &Request) -> Option<Reply> {
        if request.is("GET", "/status") {
            return Some(Reply::json(200, &locked(&self.status)));
        }
        let renewal = request.is("POST", "/locks/renew") || request.is("POST", "/locks/*/renew");
        if renewal && self.renewals.load(Ordering::SeqCst) {
            return Some(self.renewed(request));
        }
        if request.is("GET", "/locks/*/events") && self.watches.load(Ordering::SeqCst) {
            let stream = Reply::new(200).header("content-type", "text/event-stream");
            return Some(stream.body(": \n\n").claiming(1 << 40).last());
        }
        None
    }

    /// The answer to a renewal of one or of many, as granted.
    pub fn renewed(&self, request: &Request) -> Reply {
        if request.path != "/locks/renew" {
            let id = request.path.split('/').nth(2).unwrap_or_default();
            return Reply::json(200, &self.lock(id));
        }
        let ids = request.json().ok().and_then(|body| body.get("ids").cloned());
        let ids = ids.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        let items: Vec<_> = ids
            .iter()
            .filter_map(Value::as_str)
            .map(|id| json!({"id": id, "lock": self.lock(id)}))
            .collect();
        Reply::json(200, &json!({ "items": items }))
    }
}
