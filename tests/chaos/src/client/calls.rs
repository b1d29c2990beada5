//! What a caller can ask of a gateway, call by call: the request, and what its answer says.

use std::time::Duration;

use bytes::Bytes;
use fence_core::EntityTag;
use fence_core::wire::{Committed, Fence, Lock};
use fence_history::{Answer, Asked, Change, FencedWrite, Intent, Outcome, Seen};
use fence_tests::client::{object_path, resource_path};
use fence_tests::multipart;
use fence_tests::s3::Key;
use rand::RngExt as _;
use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Client, Held};
use crate::line::{Line, NOT_TOLD};
use crate::payload::{bytes_of, value_of};
use crate::rules::OTHERS;
use crate::upstream::target;

/// A whole answer.
pub struct Got {
    pub(super) status: u16,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Got {
    /// Sends a request and waits for all of its answer.
    pub async fn from(request: RequestBuilder) -> reqwest::Result<Self> {
        let response: Response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Self { status, headers, body: response.bytes().await? })
    }

    pub(super) fn header<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }

    pub(super) fn tag(&self) -> Option<EntityTag> {
        EntityTag::parse(self.headers.get("etag")?.to_str().ok()?)
    }

    fn json<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// An answer that is not what was asked for.
    fn problem(&self) -> Answer {
        let problem: Value = self.json().unwrap_or_default();
        let code = problem["code"].as_str().unwrap_or("no-code").to_owned();
        if problem["outcome"] == "unknown" {
            let operation = problem["operation"].as_str().and_then(|id| id.parse().ok());
            return Answer::Unknown { operation };
        }
        match self.status {
            400..500 => Answer::Refused { code },
            _ => Answer::Failed { code },
        }
    }

    /// What is read from a 2xx; what cannot be read is trouble that the report names.
    fn success(&self, read: impl FnOnce(&Self) -> Option<Answer>) -> Answer {
        match self.status {
            200..300 => read(self).unwrap_or_else(|| {
                let code = format!("unreadable: {} {}", self.status, self.body.escape_ascii());
                Answer::Failed { code }
            }),
            _ => self.problem(),
        }
    }

    fn done(self) -> Answer {
        self.success(|_| Some(Answer::Done))
    }

    /// The key of S3 that came with a lock.
    fn key(&self) -> Option<Key> {
        self.json::<Lock>()?.s3.as_ref().map(Key::from)
    }

    fn granted(self) -> Answer {
        self.success(|got| {
            let lock: Lock = got.json()?;
            let names = lock.resources.iter().map(ToString::to_string);
            Some(Answer::Granted {
                lock: lock.id.0,
                token: lock.token.get(),
                versions: names.zip(lock.versions).collect(),
                again: got.status == 200,
            })
        })
    }

    fn fenced(self, lock: Uuid) -> Answer {
        self.success(|got| {
            let fence: Fence = got.json()?;
            let (token, versions) =
                (fence.token.get(), vec![(fence.resource.to_string(), fence.version)]);
            Some(Answer::Granted { lock, token, versions, again: got.status == 200 })
        })
    }

    fn written(self, resource: String) -> Answer {
        self.success(|got| {
            Some(Answer::Written {
                operation: got.header("x-operation-id")?,
                versions: vec![(resource, got.header("x-resource-version"))],
                generation: got.tag().map_or(NOT_TOLD, |tag| tag.generation),
                replayed: got.headers.contains_key("idempotent-replayed"),
            })
        })
    }

    fn committed(self) -> Answer {
        self.success(|got| {
            let done: Committed = got.json()?;
            let tag = done.results.iter().find_map(|result| result.etag.as_deref())?;
            let versions = done.resources.into_iter().map(|one| (one.resource, one.version));
            Some(Answer::Written {
                operation: done.operation.0,
                versions: versions.collect(),
                generation: EntityTag::parse(tag)?.generation,
                replayed: got.headers.contains_key("idempotent-replayed"),
            })
        })
    }

    fn read(self) -> Answer {
        self.success(|got| {
            let tag = got.tag()?;
            let (generation, version) = (tag.generation, tag.version);
            let found = Some(Seen { generation, version, value: value_of(&got.body) });
            Some(Answer::Value { found, resource_version: got.header("x-resource-version") })
        })
    }

    /// What an upstream answered, or the gateway in its stead.
    fn forwarded(self) -> Answer {
        match (self.header::<String>("x-fence-verdict").as_deref(), self.status) {
            (Some("admitted"), 200..300) => Answer::Forwarded,
            (Some("admitted"), _) => Answer::Done,
            _ => self.problem(),
        }
    }

    fn outcome(self) -> Answer {
        if self.status == 404 {
            return Answer::Outcome(Outcome::NotKnown);
        }
        self.success(|got| {
            let record: Value = got.json()?;
            match record["outcome"].as_str()? {
                "applied" => Some(Answer::Outcome(Outcome::Applied)),
                "not_applied" => Some(Answer::Outcome(Outcome::Buried)),
                "unknown" => Some(Answer::Outcome(Outcome::NotKnown)),
                _ => None,
            }
        })
    }
}

impl Client {
    /// Asks for a lock until it has an answer, under an id of its own choice or none.
    pub(super) async fn acquire(&mut self, resources: &[&str], wait: Duration) -> Option<Held> {
        let id = self.chance(0.5).then(|| self.random_id());
        let ttl = self.draw(1000, 2000);
        let mut body = json!({
            "resources": resources, "owner": format!("client-{}", self.number),
            "ttl": format!("{ttl}ms"),
        });
        if let Some(id) = id {
            body["id"] = json!(id);
            if let Some(writer) = self.names_a_writer(id) {
                body["writers"] = json!([writer]);
            }
        }
        if !wait.is_zero() {
            body["wait"] = json!(format!("{}ms", wait.as_millis()));
        }
        for _ in 0..3 {
            let asked = Asked::Acquire {
                lock: id,
                resources: resources.iter().map(ToString::to_string).collect(),
            };
            let body = body.clone();
            let request =
                |http: &reqwest::Client, base: &str| http.post(format!("{base}/locks")).json(&body);
            let mut key = None;
            let read = |got: Got| {
                key = got.key();
                got.granted()
            };
            match self.ask(asked, request, read).await {
                Some(answer @ Answer::Granted { .. }) => return held(answer, key),
                Some(Answer::Refused { .. }) => return None,
                _ if id.is_none() || self.chance(0.3) => return None,
                _ => self.pause(1, 300).await,
            }
        }
        None
    }

    /// An id or key that nobody else has.
    pub(super) fn random_id(&mut self) -> Uuid {
        uuid::Builder::from_random_bytes(self.rng.random()).into_uuid()
    }

    /// Hands a lock over.
    pub(super) async fn transfer(&mut self, from: &Held) -> Option<Held> {
        let to = self.chance(0.7).then(|| self.random_id());
        let resources = from.versions.iter().map(|(resource, _)| resource.clone()).collect();
        let asked = Asked::Transfer { from: from.lock, to, resources };
        let owner = format!("client-{}-successor", self.number);
        let lock = from.lock;
        let request = move |http: &reqwest::Client, base: &str| {
            let mut body = json!({ "owner": owner });
            if let Some(to) = to {
                body["id"] = json!(to);
            }
            http.post(format!("{base}/locks/{lock}/transfer")).json(&body)
        };
        let mut key = None;
        let read = |got: Got| {
            key = got.key();
            got.granted()
        };
        let answer = self.ask(asked, request, read).await?;
        held(answer, key)
    }

    /// Sets a fence without a lock.
    pub(super) async fn fence(&mut self, resource: &str, force: bool) -> Option<Held> {
        let id = self.random_id();
        let asked = Asked::Fence { lock: id, resource: resource.to_owned() };
        let body = json!({ "id": id, "owner": format!("client-{}", self.number), "force": force });
        let path = format!("{}/fence", resource_path(resource));
        let request =
            |http: &reqwest::Client, base: &str| http.post(format!("{base}{path}")).json(&body);
        held(self.ask(asked, request, |got| got.fenced(id)).await?, None)
    }

    /// Starts a lock's ttl again.
    pub(super) async fn renew(&mut self, held: &Held) -> Option<Answer> {
        let lock = held.lock;
        let request = |http: &reqwest::Client, base: &str| {
            http.post(format!("{base}/locks/{lock}/renew")).json(&json!({}))
        };
        self.ask(Asked::Renew { lock }, request, Got::done).await
    }

    /// Gives a lock back.
    pub(super) async fn release(&mut self, held: &Held) -> Option<Answer> {
        let lock = held.lock;
        let request =
            |http: &reqwest::Client, base: &str| http.delete(format!("{base}/locks/{lock}"));
        self.ask(Asked::Release { lock }, request, Got::done).await
    }

    /// Fences a holder off, now or soon.
    pub(crate) async fn break_lock(&mut self, resource: &str) -> Option<Answer> {
        let after = if self.chance(0.5) { "0ms" } else { "500ms" };
        let path = format!("{}/break", resource_path(resource));
        let request = |http: &reqwest::Client, base: &str| {
            let body = json!({ "after": after, "reason": "by chance" });
            http.post(format!("{base}{path}")).json(&body)
        };
        self.ask(Asked::Break { resource: resource.to_owned() }, request, Got::done).await
    }

    /// Writes, small in the ledger or large by way of the store.
    pub(super) async fn write(&mut self, wish: &FencedWrite, lock: Option<Uuid>) -> Option<Answer> {
        let resource = wish.resource.clone();
        let request = |http: &reqwest::Client, base: &str| {
            let request = match &wish.change {
                Change::Put { key, value, .. } => {
                    http.put(format!("{base}{}", object_path(&resource, key))).body(bytes_of(value))
                }
                Change::Delete { key } => {
                    http.delete(format!("{base}{}", object_path(&resource, key)))
                }
                Change::DeleteAll => http.delete(format!("{base}{}", resource_path(&resource))),
            };
            let request =
                under(request, wish.token, lock, wish.sequence, wish.idempotency_key.as_deref());
            match wish.if_version {
                Some(version) => request.header("x-if-resource-version", version),
                None => request,
            }
        };
        let resource = wish.resource.clone();
        self.ask(Asked::Write(wish.clone()), request, |got| got.written(resource)).await
    }

    /// Puts into several resources in one act.
    pub(super) async fn commit(
        &mut self,
        held: &Held,
        steps: &[(String, Change)],
        key: &str,
        sequence: Option<i64>,
    ) -> Option<Answer> {
        let asked = Asked::Commit {
            token: held.token,
            sequence,
            idempotency_key: Some(key.to_owned()),
            steps: steps.to_vec(),
        };
        let mut parts = vec![Vec::new()];
        let mut list = Vec::new();
        for (resource, change) in steps {
            let Change::Put { key, value, .. } = change else { continue };
            let body = format!("body{}", list.len());
            parts.push(multipart::part(&body, "", &bytes_of(value)));
            list.push(json!({ "op": "put", "resource": resource, "key": key, "body": body }));
        }
        parts[0] = multipart::list(&json!({ "operations": list }));
        parts.push(multipart::end());
        let body = parts.concat();
        let request = |http: &reqwest::Client, base: &str| {
            let kind = format!("multipart/form-data; boundary={}", multipart::BOUNDARY);
            let request = http.post(format!("{base}/commit")).header("content-type", kind);
            under(request.body(body), held.token, Some(held.lock), sequence, Some(key))
        };
        self.ask(asked, request, Got::committed).await
    }

    /// Reads an object.
    pub async fn read(&mut self, resource: &str, key: &str) -> Option<Answer> {
        let asked = Asked::Read { resource: resource.to_owned(), key: key.to_owned() };
        let path = object_path(resource, key);
        let request = |http: &reqwest::Client, base: &str| http.get(format!("{base}{path}"));
        self.ask(asked, request, Got::read).await
    }

    /// The version of a resource, if that can be had. It is not written down.
    pub async fn version_of(&mut self, resource: &str) -> Option<i64> {
        let any = usize::try_from(self.draw(0, self.shared.gateways.len() as u64)).ok()?;
        let url = format!("{}{}", self.shared.gateways[any], resource_path(resource));
        let patience = self.patience.unwrap_or(Duration::from_secs(3));
        let answer = self.http.get(url).timeout(patience).send().await.ok()?;
        let resource: Value = answer.error_for_status().ok()?.json().await.ok()?;
        resource["version"].as_i64()
    }

    /// Sends a request to an upstream. Returns the operation that it was admitted as, if that was told.
    pub(super) async fn forward(&mut self, resource: &str, token: i64) -> Option<Uuid> {
        let request = self.random_id();
        let target = target(&mut self.rng, resource, request);
        let asked = Asked::Forward { resource: resource.to_owned(), token, request };
        let mut operation = None;
        let post = |http: &reqwest::Client, base: &str| {
            http.post(format!("{base}{target}")).header("x-fence-token", token)
        };
        let read = |got: Got| {
            operation = got.header("x-operation-id");
            got.forwarded()
        };
        if let Some(Answer::Unknown { operation: Some(named) }) = self.ask(asked, post, read).await
        {
            operation = Some(named);
        }
        if let Some(operation) = operation {
            (self.shared.tell)(Line::Intent(Intent { operation, request }));
        }
        operation
    }

    /// As an operator: closes the intent of a request with which the upstream is done.
    pub(super) async fn resolve(&mut self, operation: Uuid) -> Option<Answer> {
        let request = |http: &reqwest::Client, base: &str| {
            let url = format!("{base}/admin/intents/{operation}/resolve");
            http.post(url).json(&json!({ "reason": "it is over" }))
        };
        self.ask(Asked::Resolve { operation }, request, Got::done).await
    }

    /// What became of an operation.
    pub async fn look_up(&mut self, operation: Uuid) -> Option<Answer> {
        let request =
            |http: &reqwest::Client, base: &str| http.get(format!("{base}/operations/{operation}"));
        // To whom rules deny the operation it is not there.
        let own = std::mem::replace(&mut self.principal, OTHERS);
        let answer = self.ask(Asked::Ask { operation }, request, Got::outcome).await;
        self.principal = own;
        answer
    }
}

fn under(
    request: RequestBuilder,
    token: i64,
    lock: Option<Uuid>,
    sequence: Option<i64>,
    idempotency_key: Option<&str>,
) -> RequestBuilder {
    let mut request = request.header("x-fence-token", token);
    if let Some(lock) = lock {
        request = request.header("x-lock-id", lock.to_string());
    }
    if let Some(sequence) = sequence {
        request = request.header("x-fence-seq", sequence);
    }
    if let Some(key) = idempotency_key {
        request = request.header("idempotency-key", key);
    }
    request
}

fn held(answer: Answer, s3: Option<Key>) -> Option<Held> {
    match answer {
        Answer::Granted { lock, token, versions, .. } => {
            Some(Held { lock, token, versions, sequence: 0, s3 })
        }
        _ => None,
    }
}
