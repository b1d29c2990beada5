//! A thin HTTP client. Every answer it gets is checked against `openapi.yaml`.

use std::net::SocketAddr;

use bytes::Bytes;
use fence_core::wire::{Lock, Problem, Written};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::process::DEADLINE;
use crate::secrets;
use crate::spec::Spec;

/// A client of HTTP without TLS. It reads no certificates of the system, which takes longer than many a test.
pub fn plain_http() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}

/// A client of one gateway.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    /// Whether answers are held against the contract.
    checked: bool,
}

impl Client {
    /// A client of the gateway at `base`, such as `http://127.0.0.1:8080`.
    pub fn new(base: impl Into<String>) -> Self {
        let http = plain_http()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(DEADLINE)
            .build()
            .expect("a client can be built");
        Self { http, base: base.into(), checked: true }
    }

    /// The same for a gateway of another version, whose contract is another.
    pub fn of_another_version(self) -> Self {
        Self { checked: false, ..self }
    }

    /// Where it calls, if that is an address.
    fn address(&self) -> Option<SocketAddr> {
        self.base.strip_prefix("http://")?.parse().ok()
    }

    /// Any call; `path` is as it goes on the wire, without the query.
    pub fn call(&self, method: Method, path: impl Into<String>) -> Call {
        Call {
            client: self.clone(),
            method,
            path: path.into(),
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            checked: self.checked,
        }
    }

    /// `GET` of a path.
    pub fn get(&self, path: impl Into<String>) -> Call {
        self.call(Method::GET, path)
    }

    /// `POST` of JSON to a path.
    pub fn post(&self, path: impl Into<String>, body: &Value) -> Call {
        self.call(Method::POST, path)
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// `POST /locks` with this body.
    pub fn lock(&self, body: &Value) -> Call {
        self.post("/locks", body)
    }

    /// Takes a lock with a ttl such as `30s`; it must be granted.
    pub async fn acquire(&self, resource: &str, ttl: &str) -> Lock {
        let body = json!({ "resource": resource, "ttl": ttl, "owner": "test" });
        self.lock(&body).send().await.expect(201).parse()
    }

    /// `POST /locks/{id}/renew`, with or without a new ttl.
    pub fn renew(&self, lock: &Lock, ttl: Option<&str>) -> Call {
        let body = ttl.map_or_else(|| json!({}), |ttl| json!({ "ttl": ttl }));
        self.post(format!("/locks/{}/renew", lock.id), &body)
    }

    /// `DELETE /locks/{id}`.
    pub fn release(&self, lock: &Lock) -> Call {
        self.call(Method::DELETE, format!("/locks/{}", lock.id))
    }

    /// `GET /locks/{id}`.
    pub fn lock_of(&self, lock: &Lock) -> Call {
        self.get(format!("/locks/{}", lock.id))
    }

    /// `POST /resources/{resource}/break`.
    pub fn break_lock(&self, resource: &str, body: &Value) -> Call {
        self.post(format!("{}/break", resource_path(resource)), body)
    }

    /// `POST /resources/{resource}/fence`.
    pub fn fence(&self, resource: &str, body: &Value) -> Call {
        self.post(format!("{}/fence", resource_path(resource)), body)
    }

    /// `PUT` of an object, without a token yet.
    pub fn put(&self, resource: &str, key: &str, body: impl Into<Bytes>) -> Call {
        self.call(Method::PUT, object_path(resource, key)).body(body)
    }

    /// `GET` of an object.
    pub fn read(&self, resource: &str, key: &str) -> Call {
        self.get(object_path(resource, key))
    }

    /// `DELETE` of an object, without a token yet.
    pub fn delete(&self, resource: &str, key: &str) -> Call {
        self.call(Method::DELETE, object_path(resource, key))
    }

    /// `DELETE` of a resource, without a token yet.
    pub fn delete_resource(&self, resource: &str) -> Call {
        self.call(Method::DELETE, resource_path(resource))
    }

    /// The version of a resource as `GET /resources/{resource}` tells it.
    pub async fn version(&self, resource: &str) -> i64 {
        let answer = self.get(resource_path(resource)).send().await.expect(200);
        answer.json()["version"].as_i64().expect("a resource has a version")
    }
}

/// The path of a resource, encoded.
pub fn resource_path(resource: &str) -> String {
    format!("/resources/{}", encode(resource, b""))
}

/// The path of an object, encoded; slashes in the key stay.
pub fn object_path(resource: &str, key: &str) -> String {
    format!("{}/objects/{}", resource_path(resource), encode(key, b"/"))
}

/// Percent-encodes all bytes but the unreserved ones of RFC 3986 and `keep`.
pub fn encode(text: &str, keep: &[u8]) -> String {
    text.bytes()
        .map(|byte| {
            let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            if plain || keep.contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// A request that is being put together.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is sent"]
pub struct Call {
    client: Client,
    method: Method,
    path: String,
    query: Vec<String>,
    headers: HeaderMap,
    body: Bytes,
    checked: bool,
}

impl Call {
    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl AsRef<str>) -> Self {
        let name: HeaderName = name.parse().expect("a header name");
        let value = HeaderValue::from_str(value.as_ref()).expect("a header value");
        self.headers.append(name, value);
        self
    }

    /// Presents a token.
    pub fn token(self, token: impl ToString) -> Self {
        self.header("x-fence-token", token.to_string())
    }

    /// Presents a lock's token and id, as our clients always do.
    pub fn under(self, lock: &Lock) -> Self {
        self.token(lock.token).header("x-lock-id", lock.id.to_string())
    }

    /// Sends an idempotency key.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// Adds a query parameter.
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push(format!("{name}={}", encode(value, b"")));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Leaves the answer unchecked: for paths that are not in the contract, and for streams.
    pub fn unchecked(mut self) -> Self {
        self.checked = false;
        self
    }

    /// Sends it. Panics if no whole answer comes, or one that the contract does not declare.
    pub async fn send(self) -> Answer {
        let what = format!("{} {}", self.method, self.path);
        self.try_send().await.unwrap_or_else(|error| panic!("{what}: {error:?}"))
    }

    /// Whether its path ends so.
    pub fn is_to(&self, end: &str) -> bool {
        self.path.ends_with(end)
    }

    /// What it shows in `Authorization`.
    fn shown(&self) -> Option<String> {
        self.headers.get(AUTHORIZATION)?.to_str().ok().map(str::to_owned)
    }

    /// Sends it and returns once the head of the answer has come, unchecked: for streams.
    pub async fn open(self) -> reqwest::Result<reqwest::Response> {
        let mut url = format!("{}{}", self.client.base, self.path);
        for (index, parameter) in self.query.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(parameter);
        }
        if let (Some(gateway), Some(shown)) = (self.client.address(), self.shown()) {
            secrets::note(gateway, &shown);
        }
        let request = self.client.http.request(self.method.clone(), url);
        request.headers(self.headers).body(self.body).send().await
    }

    /// Sends it; an error means that no whole answer came.
    pub async fn try_send(self) -> reqwest::Result<Answer> {
        let (checked, method, path) = (self.checked, self.method.clone(), self.path.clone());
        let (gateway, shown) = (self.client.address(), self.shown());
        let response = self.open().await?;
        let status = response.status();
        let headers = response.headers().clone();
        let body = response.bytes().await?;
        if let (Some(gateway), Some(shown)) = (gateway, shown) {
            let answer = format!("{headers:?} {}", String::from_utf8_lossy(&body));
            secrets::answered(gateway, &shown, status != StatusCode::UNAUTHORIZED, &answer);
        }
        if checked {
            Spec::get().check(method.as_str(), &path, status.as_u16(), &headers, &body);
        }
        Ok(Answer { status, headers, body })
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The answer itself, if it has this status; panics with its body otherwise.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        self
    }

    /// The answer itself, if it is a problem with this status and code; panics otherwise.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status.as_u16(), self.code().as_str()), (status, code), "{}", self.text());
        self
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The value of a header that must be there.
    #[track_caller]
    pub fn must_have(&self, name: &str) -> &str {
        self.header(name).unwrap_or_else(|| panic!("no header {name}: {:#?}", self.headers))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; `Null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body as one of the wire types.
    #[track_caller]
    pub fn parse<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body as the answer to a put.
    #[track_caller]
    pub fn written(&self) -> Written {
        self.parse()
    }

    /// The body as a problem document.
    #[track_caller]
    pub fn problem(&self) -> Problem {
        self.parse()
    }

    /// The `code` of a problem document; empty if it is none.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}
