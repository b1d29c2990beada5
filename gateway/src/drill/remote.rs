//! A gateway as the drill sees it: calls over HTTP, each within what is left of the drill's time.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use fence_core::wire::{Lock, Problem};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Certificate, Client, Method, RequestBuilder};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::Settings;

/// What stays as it is in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The longest answer that is read, in bytes: what is asked for is short.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A running gateway, perhaps behind a proxy.
pub(super) struct Remote {
    http: Client,
    base: String,
    credential: Option<String>,
    intruder: Option<String>,
    deadline: Instant,
}

/// An answer, whatever it says.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The status.
    pub(super) status: u16,
    /// The code of a problem document; none if it is no such document.
    pub(super) code: Option<String>,
    /// What the problem document says happened.
    pub(super) detail: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    /// Whether it says that something was done.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The bytes of the body.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// The body as a wire type.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl Remote {
    /// The gateway of these settings; no call ends later than their timeout from now.
    pub(super) fn new(settings: &Settings) -> anyhow::Result<Self> {
        // A drill asks each question once: what is retried is not what was answered.
        let mut http = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never());
        if let Some(pem) = &settings.authorities {
            http = http.tls_certs_merge(Certificate::from_pem_bundle(pem)?);
        }
        let http = http.build().context("cannot make an HTTP client")?;
        let base = settings.url.as_str().trim_end_matches('/').to_owned();
        let (credential, intruder) = (settings.credential.clone(), settings.intruder.clone());
        Ok(Self { http, base, credential, intruder, deadline: Instant::now() + settings.timeout })
    }

    /// What is left of the time.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Gives the calls from now on at least so much time.
    pub(super) fn extend(&mut self, grace: Duration) {
        self.deadline = self.deadline.max(Instant::now() + grace);
    }

    /// A call of the API; `path` is encoded and begins with a slash.
    pub(super) fn call(&self, method: Method, path: &str) -> RequestBuilder {
        self.by(self.credential.as_ref(), method, path)
    }

    /// The same, by the intruder.
    pub(super) fn call_of_intruder(&self, method: Method, path: &str) -> RequestBuilder {
        self.by(self.intruder.as_ref(), method, path)
    }

    fn by(&self, credential: Option<&String>, method: Method, path: &str) -> RequestBuilder {
        let call = self.http.request(method, format!("{}{path}", self.base));
        match credential {
            Some(credential) => call.bearer_auth(credential),
            None => call,
        }
    }

    /// The whole answer to a call; an error means that none came.
    pub(super) async fn send(&self, call: RequestBuilder) -> anyhow::Result<Answer> {
        match timeout_at(self.deadline, whole(call)).await {
            Ok(answer) => answer,
            Err(_) => bail!("there was no whole answer in time (--timeout)"),
        }
    }
}

/// Names the lock in a write, as a holder does.
pub(super) fn under(call: RequestBuilder, lock: &Lock) -> RequestBuilder {
    call.header("x-fence-token", lock.token.to_string()).header("x-lock-id", lock.id.to_string())
}

/// Text as a segment of a path.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

async fn whole(call: RequestBuilder) -> anyhow::Result<Answer> {
    // The URL may hold a password.
    let mut response = call.send().await.map_err(reqwest::Error::without_url)?;
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        ensure!(body.len() + part.len() <= ANSWER_BYTES_MAX, "the answer does not end");
        body.extend_from_slice(&part);
    }
    let problem: Option<Problem> = serde_json::from_slice(&body).ok();
    let (code, detail) = problem.map(|problem| (problem.code, problem.detail)).unzip();
    Ok(Answer { status, code, detail, body })
}
