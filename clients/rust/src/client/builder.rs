//! How a client is made.

use std::time::Duration;

use fencegate_wire::{Ttl, json};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Client, Inner, STREAMS_MAX};
use crate::error::Error;
use crate::guard::registry::Registry;
use crate::hooks::{Event, Hooks};
use crate::names;
use crate::transport::credential::Credential;
use crate::transport::urls::Urls;
use crate::transport::{Patience, TraceParent, Transport};

/// Headers that the client sets itself.
const OURS: &[&str] = &[
    "authorization",
    "connection",
    "content-digest",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "if-range",
    "last-event-id",
    "range",
    "repr-digest",
    "te",
    "traceparent",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-fence-key-kept",
    "x-fence-seq",
    "x-fence-token",
    "x-lock-id",
    "x-request-id",
];

/// Describes a client; [`ClientBuilder::build`] makes it.
#[must_use = "a builder does nothing before `build`"]
pub struct ClientBuilder {
    urls: Vec<String>,
    owner: Option<String>,
    ttl: Duration,
    credential: Option<Credential>,
    headers: Vec<(String, String)>,
    patience: Patience,
    call_within: Duration,
    write_within: Duration,
    retries: bool,
    hooks: Hooks,
    roots: Vec<reqwest::Certificate>,
    identity: Option<reqwest::Identity>,
    traceparent: Option<TraceParent>,
}

impl ClientBuilder {
    pub(super) fn new(urls: String) -> Self {
        let seconds = Duration::from_secs;
        let urls = urls.split(',').map(|url| url.trim().to_owned()).collect();
        Self {
            urls,
            owner: None,
            ttl: seconds(30),
            credential: None,
            headers: Vec::new(),
            patience: Patience { connect: seconds(3), head: seconds(15), idle: seconds(30) },
            call_within: seconds(30),
            write_within: seconds(60),
            retries: true,
            hooks: Hooks::default(),
            roots: Vec::new(),
            identity: None,
            traceparent: None,
        }
    }

    /// Another gateway in front of the same ledger, asked if those before it fail.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// What the client calls itself, shown to everybody; by default `<host>:<pid>:<8 digits>`.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// The ttl of locks that do not say theirs: `1s` to `24h`; by default 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// A bearer token to show.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = Some(credential);
        self
    }

    /// A header for each request, such as one that a proxy wants.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// How long to wait for a connection; by default 3 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.patience.connect = timeout;
        self
    }

    /// How long to wait for an answer to begin, beyond what the call itself waits; by default 15 s, and never
    /// less than the gateway says that it may need.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.patience.head = timeout;
        self
    }

    /// The longest pause in an answer or a stream; by default 30 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.patience.idle = timeout;
        self
    }

    /// For how long a call goes on, with all its attempts; by default 30 s.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_within = timeout;
        self
    }

    /// For how long a write goes on, with all its attempts; by default 60 s.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_within = timeout;
        self
    }

    /// One attempt for each call, whatever comes of it. Renewals and releases go on as ever.
    pub fn no_retries(mut self) -> Self {
        self.retries = false;
        self
    }

    /// Gives each request the `traceparent` of the program's tracer, such as
    /// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`; `None`: there is no span.
    pub fn traceparent(
        mut self,
        current: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.traceparent = Some(Box::new(current));
        self
    }

    /// A function that is told what happens inside, for metrics and logs.
    pub fn on_event(mut self, hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.hooks = Hooks::new(hook);
        self
    }

    /// Certificates, in PEM, of whom to trust beside those that the machine trusts.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, Error> {
        let read = reqwest::Certificate::from_pem_bundle(pem);
        let read = read.map_err(|error| Error::misuse(format!("no certificates: {error}")))?;
        if read.is_empty() {
            return Err(Error::misuse("no certificates: there is none in the file"));
        }
        self.roots.extend(read);
        Ok(self)
    }

    /// A certificate and its key, in PEM, to show to the gateway.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn certificate(mut self, pem: &[u8]) -> Result<Self, Error> {
        let read = reqwest::Identity::from_pem(pem);
        self.identity =
            Some(read.map_err(|error| Error::misuse(format!("no certificate and key: {error}")))?);
        Ok(self)
    }

    /// Makes the client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Misuse`]: one of the settings makes no sense.
    pub fn build(self) -> Result<Client, Error> {
        let ttl = Ttl::new(names::whole_ms(self.ttl)?).map_err(Error::misuse)?;
        let owner = self.owner.unwrap_or_else(super::environment::default_owner);
        check_owner(&owner)?;
        let patience = self.patience;
        for (name, time) in [
            ("connect_timeout", patience.connect),
            ("answer_timeout", patience.head),
            ("idle_timeout", patience.idle),
            ("call_timeout", self.call_within),
            ("write_timeout", self.write_within),
        ] {
            if time.is_zero() || time > Ttl::MAX {
                return Err(Error::misuse(format!("{name} is from 1ms to 24h")));
            }
        }
        let client = || {
            let builder = reqwest::Client::builder();
            let builder = match &self.roots[..] {
                [] => builder,
                roots => builder.tls_certs_merge(roots.iter().cloned()),
            };
            match &self.identity {
                Some(identity) => builder.identity(identity.clone()),
                None => builder,
            }
        };
        let urls = Urls::new(&self.urls)?;
        let headers = headers(&self.headers)?;
        let transport =
            Transport::new(client, urls, self.credential, self.traceparent, headers, patience)?;
        let inner = Inner {
            transport,
            owner,
            ttl,
            call_within: self.call_within,
            write_within: self.write_within,
            retries: self.retries,
            hooks: self.hooks,
            guards: Registry::default(),
            background: TaskTracker::new(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
            streams: Semaphore::new(STREAMS_MAX),
            keys_kept_ms: std::sync::atomic::AtomicU64::new(0),
        };
        Ok(Client { inner: std::sync::Arc::new(inner) })
    }
}

fn headers(named: &[(String, String)]) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in named {
        let wrong = |why: &str| Error::misuse(format!("the header {name:?} {why}"));
        let header: HeaderName = name.parse().map_err(|_| wrong("has a name that is none"))?;
        if OURS.contains(&header.as_str()) {
            return Err(wrong("is set by the client itself"));
        }
        let value = HeaderValue::from_str(value).map_err(|_| wrong("has a value that is none"))?;
        headers.append(header, value);
    }
    Ok(headers)
}

/// The gateway's rules for the name of a holder.
pub(crate) fn check_owner(owner: &str) -> Result<(), Error> {
    if owner.len() > json::OWNER_BYTES_MAX {
        let most = json::OWNER_BYTES_MAX;
        return Err(Error::misuse(format!("an owner has at most {most} bytes")));
    }
    if owner.chars().any(char::is_control) {
        return Err(Error::misuse("an owner has no control characters"));
    }
    Ok(())
}

/// The gateway's rules for an operator's words.
pub(crate) fn check_reason(reason: &str) -> Result<(), Error> {
    let most = json::REASON_BYTES_MAX;
    if reason.is_empty() || reason.len() > most || reason.chars().any(char::is_control) {
        let text = format!("a reason has 1 to {most} bytes and no control characters");
        return Err(Error::misuse(text));
    }
    Ok(())
}
