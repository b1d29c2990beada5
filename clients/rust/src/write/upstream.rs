//! Requests to an upstream under a guard. They are sent once: the gateway cannot know what a service of
//! somebody else does with a second one.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use fencegate_wire::json::Problem;
use fencegate_wire::{OperationId, ResourceName};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::unknown::OutcomeUnknown;
use crate::class::Class;
use crate::clock::now_ms;
use crate::error::{Details, Error};
use crate::guard::held::Held;
use crate::hooks::Event;
use crate::machine::lease::Input;
use crate::transport::answer::{JSON_BYTES_MAX, Reply, class_of};
use crate::transport::body::Body;
use crate::transport::request::{Request, RequestIds};

/// Headers that say who writes; the guard sets them.
const OURS: &[&str] = &[
    "authorization",
    "connection",
    "content-length",
    "expect",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-fence-seq",
    "x-fence-token",
    "x-lock-id",
    "x-request-id",
];

/// A request to an upstream; `.await` sends it, once.
#[must_use = "a request is sent when it is awaited"]
pub struct UpstreamBuilder {
    held: Arc<Held>,
    upstream: String,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Option<Body>,
    wrong: Option<Error>,
}

/// What an upstream answered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UpstreamResponse {
    /// Its status. What it did before it answered anything but a 2xx, only it knows.
    pub status: u16,
    /// Its headers, and the gateway's.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// The operation, by which the gateways know the request.
    pub operation: Option<OperationId>,
}

impl UpstreamBuilder {
    pub(crate) fn new(held: Arc<Held>, upstream: &str, method: Method, path: &str) -> Self {
        let mut wrong = None;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let is_dots = |name: &str| matches!(name, "." | "..");
        let is_named = (1..=64).contains(&upstream.len()) && upstream.bytes().all(is_name);
        if !is_named || is_dots(upstream) {
            wrong = Some(Error::misuse("an upstream's name has 1 to 64 of A-Z a-z 0-9 _ - ."));
        }
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#';
        if !path.bytes().all(is_plain) || path.len() > 8_192 {
            wrong = Some(Error::misuse("a path at an upstream is encoded: visible ASCII"));
        }
        // Such a path would leave the upstream before the gateway sees it.
        let plain = path.split('?').next().unwrap_or_default().to_ascii_lowercase();
        if plain.split('/').any(|segment| is_dots(&segment.replace("%2e", "."))) {
            wrong = Some(Error::misuse("no segment of a path at an upstream is . or .."));
        }
        if matches!(
            method,
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::CONNECT
        ) {
            wrong =
                Some(Error::misuse("a guard sends what changes something: no GET, HEAD, OPTIONS"));
        }
        let path = path.trim_start_matches('/').to_owned();
        let (upstream, headers) = (upstream.to_owned(), HeaderMap::new());
        Self { held, upstream, method, path, headers, body: None, wrong }
    }

    /// A header for the upstream.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let parsed = name.parse::<HeaderName>().ok().zip(HeaderValue::from_str(value).ok());
        match parsed {
            Some((name, value)) if !OURS.contains(&name.as_str()) => {
                self.headers.append(name, value);
            }
            _ => {
                let text = format!("the header {name:?} is none, or is set by the guard itself");
                self.wrong.get_or_insert_with(|| Error::misuse(text));
            }
        }
        self
    }

    /// What to send.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = Some(body.into());
        self
    }

    async fn send(mut self) -> Result<UpstreamResponse, Error> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let began_ms = now_ms();
        let held = &self.held;
        held.check()?;
        held.learn(Input::Beat);
        // Under way until it is answered: a release waits for it.
        let _under_way = held.numbers.begin();
        let mut request = Request::new(
            self.method.clone(),
            format!("/upstreams/{}/{}", self.upstream, self.path),
        );
        request.headers = self.headers;
        request.body = self.body;
        let request = request
            .header("x-fence-token", &held.token.to_string())
            .header("x-lock-id", &held.id.to_string());
        let reply = held.inner.transport.attempt_forward(&request, &RequestIds::new().next()).await;
        let result = match reply {
            Ok(answer) => {
                let whole = answer.bytes_of_upstream().await;
                whole.map_err(|(operation, details)| unknown(held, operation, details))
            }
            Err(reply) => Err(failure(held, reply)),
        };
        held.inner.called("upstream", began_ms, 1, result.as_ref().err());
        result
    }
}

fn resource(held: &Held) -> ResourceName {
    held.resources[0].clone()
}

fn unknown(held: &Held, operation: Option<OperationId>, details: Details) -> Error {
    let forward =
        OutcomeUnknown::of_forward(held.inner.clone(), resource(held), operation, details);
    Error::OutcomeUnknown(Box::new(forward))
}

/// What became of a request that no upstream answered.
fn failure(held: &Held, reply: Reply) -> Error {
    match reply {
        Reply::Problem(problem) => refused(held, &problem),
        Reply::Nothing(nothing) if !nothing.was_sent => Reply::Nothing(nothing).error(1),
        Reply::Foreign(foreign) if matches!(foreign.status, 401 | 407) => foreign.error(1),
        Reply::Unsendable(error) => error,
        reply => unknown(held, None, Details { attempts: 1, ..*Details::local(reply.summary()) }),
    }
}

fn refused(held: &Held, problem: &Problem) -> Error {
    match class_of(problem) {
        Class::OutcomeUnknown => unknown(held, problem.operation, *Details::of_problem(problem, 1)),
        Class::LockLost => {
            held.refused(problem);
            let error = Error::of_problem(problem, 1);
            if let Error::LockLost(lost) = &error {
                let (resource, reason) = (resource(held), lost.reason);
                held.inner.hooks.tell(&Event::StaleWrite { resource, reason });
            }
            error
        }
        _ => Error::of_problem(problem, 1),
    }
}

impl crate::transport::answer::Answer {
    /// An upstream's answer, whole. One that breaks off says nothing for sure.
    async fn bytes_of_upstream(self) -> Result<UpstreamResponse, (Option<OperationId>, Details)> {
        let (status, headers) = (self.status.as_u16(), self.headers.clone());
        let operation =
            self.header("x-operation-id").and_then(|id| id.parse().ok()).map(OperationId);
        let broken = |detail: String| Details { attempts: 1, ..*Details::local(detail) };
        let body = self.bytes(JSON_BYTES_MAX).await;
        let body = body.map_err(|nothing| (operation, broken(nothing.detail)))?;
        Ok(UpstreamResponse { status, headers, body, operation })
    }
}

impl IntoFuture for UpstreamBuilder {
    type Output = Result<UpstreamResponse, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
