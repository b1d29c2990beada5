//! One request, as it is sent in each attempt.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use super::body::Body;

/// What an attempt sends, but for what differs between attempts.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The path and query, encoded.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Body>,
    /// For how long the gateway was asked to wait.
    pub(crate) wait_ms: u64,
    /// How long the head of the answer may take, if less than usual.
    pub(crate) within_ms: Option<u64>,
}

impl Request {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        let (headers, body) = (HeaderMap::new(), None);
        Self { method, path: path.into(), headers, body, wait_ms: 0, within_ms: None }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// With JSON as its body. Our own requests always serialize.
    pub(crate) fn json<T: serde::Serialize>(mut self, body: &T) -> Self {
        // INVARIANT: requests are structs of strings and numbers.
        let bytes = serde_json::to_vec(body).expect("a request is JSON");
        self.body = Some(bytes.into());
        self.headers
            .insert(reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self
    }

    /// With a header whose value was checked, or made by us.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// With an answer that begins a little sooner than that, or not at all: who waits for that long hears why.
    pub(crate) fn within(mut self, within: Duration) -> Self {
        let ms = crate::clock::ms(within);
        self.within_ms = Some(ms - ms / 10);
        self
    }

    pub(crate) fn waits(mut self, wait_ms: u64) -> Self {
        self.wait_ms = wait_ms;
        self
    }
}

/// The ids of the attempts of one call (CC8): `<id>`, then `<id>.2`, and so on, so that all of them are
/// found together in the log.
#[derive(Debug, Clone)]
pub(crate) struct RequestIds {
    first: Uuid,
    attempts: u32,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        Self { first: Uuid::now_v7(), attempts: 0 }
    }

    pub(crate) fn next(&mut self) -> String {
        self.attempts += 1;
        match self.attempts {
            1 => self.first.to_string(),
            attempt => format!("{}.{attempt}", self.first),
        }
    }

    /// How many attempts have been made.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }
}
