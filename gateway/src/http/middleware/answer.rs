//! The outermost middleware: request id, problem documents, verdict, log line and duration.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use fence_core::ResourceName;
use parking_lot::Mutex;

use super::browsers::{Doors, contain, keep_pages_out};
use super::recorded::Recorded;
use super::request_id::RequestId;
use crate::http::extract::resource_in;
use crate::http::identify::FENCED_OFF;
use crate::http::problem::Problem;
use crate::http::proxy::Forwarded;
use crate::http::routes::VERSION;
use crate::http::traced;
use crate::log_scope::{self, REQUEST};
use crate::spans::{Place, Span, TraceId, current, within};

/// How long requests took, by route, method and class of status.
const DURATION: &str = "fencegate_http_request_duration_seconds";

/// Tells the recorder what the metric means.
pub fn describe() {
    let text = "From a request's head to its answer, by route, method and class of status";
    metrics::describe_histogram!(DURATION, metrics::Unit::Seconds, text);
}

/// The header that says what the fence decided.
const VERDICT: HeaderName = HeaderName::from_static("x-fence-verdict");

/// The status in the log of a request whose caller hung up before the answer.
const CLIENT_CLOSED: u16 = 499;

/// Runs a request and finishes its answer.
pub async fn answer(State(doors): State<Arc<Doors>>, mut request: Request, next: Next) -> Response {
    let id = RequestId::accept(request.headers());
    request.extensions_mut().insert(id.clone());
    let line = Line::begin(&request, id);
    request.extensions_mut().insert(line.named());
    request.extensions_mut().insert(line.recorded());
    line.in_log().runs(finished(doors, request, next, line)).await
}

async fn finished(doors: Arc<Doors>, request: Request, next: Next, mut line: Line) -> Response {
    let id = line.id();
    let mut response = match keep_pages_out(&request, &doors, None) {
        Ok(()) => within(line.place(), next.run(request)).await,
        Err(problem) => problem.into_response(),
    };
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        line.code = problem.code().as_str();
        line.about = problem.resource().map(str::to_owned);
        verdict(
            &mut response,
            &line,
            if problem.outcome_unknown() { "unknown" } else { "refused" },
        );
        *response.body_mut() = Body::from(problem.render(id.as_str(), id.own(), line.trace()));
    } else {
        verdict(&mut response, &line, "admitted");
    }
    let forwarded = response.extensions().get::<Forwarded>().is_some();
    let headers = response.headers_mut();
    contain(headers, forwarded || line.is_read_of_object());
    headers.insert(HeaderName::from_static("x-request-id"), id.as_header());
    let version = HeaderValue::from_static(VERSION);
    headers.insert(HeaderName::from_static("fencegate-version"), version);
    // Tokens and lock ids are in answers; only reads of objects and upstreams say what may be kept.
    if !forwarded {
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    line.ends(&response);
    response
}

/// Every answer about data says whether it is the fence's, so that a 412 of ours is told from one
/// of somebody behind us. A write that took effect has set its own.
fn verdict(response: &mut Response, line: &Line, verdict: &'static str) {
    if line.is_data(verdict != "admitted") {
        response.headers_mut().entry(VERDICT).or_insert(HeaderValue::from_static(verdict));
    }
}

/// The log line of a request, written when it is dropped: also when the caller hangs up and the
/// request is never finished.
///
/// It names the route, not the path, because paths hold lock ids; and never a token.
pub struct Line {
    began: Instant,
    method: Method,
    route: Option<MatchedPath>,
    /// The operation of S3, in place of a route.
    operation: Option<&'static str>,
    /// Where the resource may be named.
    uri: Uri,
    /// The resource that the answer names.
    about: Option<String>,
    named: Named,
    status: u16,
    code: &'static str,
    /// What the fence decided, of a write.
    verdict: Option<HeaderValue>,
    id: RequestId,
    /// The span that its caller names.
    caller: Option<Place>,
    /// Its own, which ends with it.
    recorded: Recorded,
}

impl Line {
    /// Begins with the request.
    #[expect(
        clippy::disallowed_methods,
        reason = "durations are shown to people; nothing depends on them"
    )]
    pub fn begin(request: &Request, id: RequestId) -> Self {
        let (caller, began) = (traced::caller(request.headers()), Instant::now());
        let recorded = Recorded::begin(caller, request.uri().path(), began);
        Self {
            began,
            method: request.method().clone(),
            route: request.extensions().get().cloned(),
            operation: None,
            uri: request.uri().clone(),
            about: None,
            named: Named::default(),
            status: CLIENT_CLOSED,
            code: "",
            verdict: None,
            id,
            caller,
            recorded,
        }
    }

    /// The trace that it is part of: its caller's, or one of ours if that is recorded.
    pub fn trace(&self) -> Option<TraceId> {
        let own = || self.recorded.place().filter(Place::is_sampled);
        self.caller.or_else(own).map(|place| place.trace)
    }

    /// The id of the request.
    pub fn id(&self) -> RequestId {
        self.id.clone()
    }

    /// What all lines name that are said until its answer.
    pub fn in_log(&self) -> log_scope::Request {
        log_scope::Request { id: self.id.as_str().to_owned(), trace: self.trace() }
    }

    /// The place of its own span, if one has begun.
    pub fn place(&self) -> Option<Place> {
        self.recorded.place()
    }

    /// Its own span, for whoever finds out who asks.
    pub fn recorded(&self) -> Recorded {
        self.recorded.clone()
    }

    /// The slip that the handler fills in.
    pub fn named(&self) -> Named {
        self.named.clone()
    }

    /// Which operation of S3 it was found to be.
    pub fn is_of_s3(&mut self, operation: &'static str) {
        self.operation = Some(operation);
    }

    /// Why it was refused, and what that was about.
    pub fn failed(&mut self, code: &'static str, about: Option<&str>) {
        self.code = code;
        self.about = about.map(str::to_owned);
    }

    /// What it was answered.
    pub fn ends(&mut self, response: &Response) {
        self.status = response.status().as_u16();
        self.verdict = response.headers().get(VERDICT).cloned();
    }

    /// Whether an operator should look at it: the gateway failed, or a writer was fenced off.
    fn is_remarkable(&self) -> bool {
        self.status >= 500 || FENCED_OFF.iter().any(|code| code.as_str() == self.code)
    }

    /// Says on its span what the line says.
    fn describe(&self, span: &mut Span, said: &Said<'_>) {
        span.is_named(format!("{} {}", said.method, self.route()));
        span.says("http.request.method", said.method);
        span.says("http.route", self.route());
        span.counts("http.response.status_code", self.status.into());
        span.says("fencegate.request_id", self.id.as_str());
        let words = [
            ("fencegate.resource", said.resource),
            ("fencegate.verdict", said.verdict),
            ("error.type", Some(self.code).filter(|code| !code.is_empty())),
        ];
        for (key, word) in words {
            if let Some(word) = word {
                span.says(key, word);
            }
        }
        // What a caller did wrong is no error of ours.
        if self.status >= 500 {
            span.fails();
        }
    }

    fn route(&self) -> &str {
        let route = self.route.as_ref().map(MatchedPath::as_str);
        self.operation.or(route).unwrap_or("-")
    }

    /// Whether the answer holds what somebody stored.
    fn is_read_of_object(&self) -> bool {
        [Method::GET, Method::HEAD].contains(&self.method)
            && self.route().starts_with("/resources/{resource}/objects/")
    }

    /// The fence decides on no read. But an error of ours is told from an upstream's there, too.
    fn is_data(&self, is_problem: bool) -> bool {
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&self.method);
        let route = self.route();
        match route {
            "/commit" => true,
            "/resources/{resource}" => self.method == Method::DELETE,
            _ if route.starts_with("/resources/{resource}/objects") => !reads,
            _ => route.starts_with("/upstreams/") && (is_problem || !reads),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let elapsed = self.began.elapsed();
        let method = known(&self.method);
        let is_remarkable = self.is_remarkable();
        let is_shown = match is_remarkable {
            true => is_logged(),
            false => tracing::enabled!(target: REQUEST, tracing::Level::INFO),
        };
        let trace = self.trace();
        let mut span = self.recorded.take();
        let is_recorded = span.is_recorded();
        if is_shown || is_recorded {
            let names = self.named.take();
            let in_path = resource_in(self.uri.path());
            let resource = in_path.as_ref().map(ResourceName::as_str);
            let resource = resource.or(names.resources.as_deref()).or(self.about.as_deref());
            let verdict = self.verdict.as_ref().and_then(|verdict| verdict.to_str().ok());
            macro_rules! line {
                ($level:ident) => {
                    tracing::$level!(
                        target: REQUEST,
                        method,
                        route = self.route(),
                        resource,
                        owner = names.owner.as_deref(),
                        status = self.status,
                        verdict,
                        code = (!self.code.is_empty()).then_some(self.code),
                        duration_ms = elapsed.as_micros() as f64 / 1e3,
                        request_id = self.id.as_str(),
                        gateway_request_id = self.id.own().map(tracing::field::display),
                        trace_id = trace.map(tracing::field::display),
                        "request"
                    )
                };
            }
            match is_remarkable {
                true if is_shown => line!(warn),
                false if is_shown => line!(info),
                _ => {}
            }
            if is_recorded {
                let said = Said { method, resource, verdict };
                self.describe(&mut span, &said);
            }
        }
        record(self.route(), method, class(self.status), elapsed.as_secs_f64());
    }
}

/// What is said of a request wherever it is said.
struct Said<'a> {
    method: &'a str,
    resource: Option<&'a str>,
    verdict: Option<&'a str>,
}

/// A slip that the handler of a request fills in. Names alone: never a token or the id of a lock.
#[derive(Debug, Clone, Default)]
pub struct Named(Arc<Mutex<Names>>);

/// What is on it.
#[derive(Debug, Default)]
struct Names {
    /// The resources, with a space between them, which no name has.
    resources: Option<String>,
    /// Who asked, in the caller's own words.
    owner: Option<String>,
}

impl Named {
    /// Notes resources and owner, as far as they are known, if there is to be a log line or a span.
    pub fn note(&self, resources: &[ResourceName], owner: &str) {
        if !is_logged() && current().is_none() {
            return;
        }
        let mut names = self.0.lock();
        if !resources.is_empty() {
            let all: Vec<&str> = resources.iter().map(ResourceName::as_str).collect();
            names.resources = Some(all.join(" "));
        }
        if !owner.is_empty() {
            names.owner = Some(owner.to_owned());
        }
    }

    fn take(&self) -> Names {
        std::mem::take(&mut self.0.lock())
    }
}

impl<S: Sync> FromRequestParts<S> for Named {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// Whether requests have a line in the log, be it that of refused writes and failures alone.
fn is_logged() -> bool {
    tracing::enabled!(target: REQUEST, tracing::Level::WARN)
}

/// Records how long a request took. Each thread keeps the handles that it got from the recorder: there are few, one
/// for each route, method and class of status, and to ask for one again makes its key anew each time.
fn record(route: &str, method: &'static str, status: &'static str, seconds: f64) {
    type Handles = HashMap<String, Vec<([&'static str; 2], metrics::Histogram)>>;
    thread_local! {
        static HANDLES: RefCell<Handles> = RefCell::default();
    }
    let labels = [method, status];
    HANDLES.with_borrow_mut(|handles| {
        let known = handles.get(route).and_then(|of| of.iter().find(|(of, _)| *of == labels));
        if let Some((_, histogram)) = known {
            return histogram.record(seconds);
        }
        let histogram = metrics::histogram!(
            DURATION, "route" => route.to_owned(), "method" => method, "status" => status
        );
        histogram.record(seconds);
        handles.entry(route.to_owned()).or_default().push((labels, histogram));
    });
}

/// Logs a request that never reached the router, because its head was unreadable.
pub fn note(status: StatusCode, code: &str, request_id: &str) {
    tracing::info!(
        target: REQUEST,
        method = "-",
        route = "-",
        status = status.as_u16(),
        code,
        request_id,
        "request"
    );
}

/// Callers can make up methods; metrics must not grow with them.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "PUT" => "PUT",
        "POST" => "POST",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        _ => "other",
    }
}

fn class(status: u16) -> &'static str {
    match status {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}
