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
use tracing::Instrument;

use super::browsers::{Doors, contain, keep_pages_out};
use super::request_id::RequestId;
use crate::http::extract::resource_in;
use crate::http::problem::Problem;
use crate::http::proxy::Forwarded;
use crate::http::routes::VERSION;

/// How long requests took, by route, method and class of status.
const DURATION: &str = "fencegate_http_request_duration_seconds";

/// Tells the recorder what the metric means.
pub fn describe() {
    let text = "From a request's head to its answer, by route, method and class of status";
    metrics::describe_histogram!(DURATION, metrics::Unit::Seconds, text);
}

/// The status in the log of a request whose caller hung up before the answer.
const CLIENT_CLOSED: u16 = 499;

/// Runs a request and finishes its answer.
pub async fn answer(State(doors): State<Arc<Doors>>, mut request: Request, next: Next) -> Response {
    let id = RequestId::accept(request.headers());
    request.extensions_mut().insert(id.clone());
    let mut line = Line::begin(&request, id.clone());
    request.extensions_mut().insert(line.named.clone());
    let span = tracing::info_span!("request", request_id = id.as_str());
    let mut response = match keep_pages_out(&request, &doors) {
        Ok(()) => next.run(request).instrument(span).await,
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
        *response.body_mut() = Body::from(problem.render(id.as_str(), id.own()));
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
    line.status = response.status().as_u16();
    response
}

/// Every answer about data says whether it is the fence's, so that a 412 of ours is told from one
/// of somebody behind us. A write that took effect has set its own.
fn verdict(response: &mut Response, line: &Line, verdict: &'static str) {
    if line.is_data(verdict != "admitted") {
        response
            .headers_mut()
            .entry(HeaderName::from_static("x-fence-verdict"))
            .or_insert(HeaderValue::from_static(verdict));
    }
}

/// The log line of a request, written when it is dropped: also when the caller hangs up and the
/// request is never finished.
///
/// It names the route, not the path, because paths hold lock ids; and never a token.
struct Line {
    began: Instant,
    method: Method,
    route: Option<MatchedPath>,
    /// Where the resource may be named.
    uri: Uri,
    /// The resource that the answer names.
    about: Option<String>,
    named: Named,
    status: u16,
    code: &'static str,
    id: RequestId,
}

impl Line {
    #[expect(
        clippy::disallowed_methods,
        reason = "durations are shown to people; nothing depends on them"
    )]
    fn begin(request: &Request, id: RequestId) -> Self {
        Self {
            began: Instant::now(),
            method: request.method().clone(),
            route: request.extensions().get().cloned(),
            uri: request.uri().clone(),
            about: None,
            named: Named::default(),
            status: CLIENT_CLOSED,
            code: "",
            id,
        }
    }

    fn route(&self) -> &str {
        self.route.as_ref().map_or("-", MatchedPath::as_str)
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
        if is_logged() {
            let names = self.named.names();
            let in_path = resource_in(self.uri.path());
            let resource = in_path.as_ref().map(ResourceName::as_str);
            tracing::info!(
                method,
                route = self.route(),
                resource = resource.or(names.resources.as_deref()).or(self.about.as_deref()),
                owner = names.owner.as_deref(),
                status = self.status,
                code = self.code,
                duration_ms = elapsed.as_secs_f64() * 1e3,
                request_id = self.id.as_str(),
                gateway_request_id = self.id.own().map(tracing::field::display),
                "request"
            );
        }
        record(self.route(), method, class(self.status), elapsed.as_secs_f64());
    }
}

/// A slip that the handler of a request fills in. Names alone: never a token or the id of a lock.
#[derive(Debug, Clone, Default)]
pub struct Named(Arc<Mutex<Names>>);

/// What is on it.
#[derive(Debug, Clone, Default)]
struct Names {
    /// The resources, with a space between them, which no name has.
    resources: Option<String>,
    /// Who asked, in the caller's own words.
    owner: Option<String>,
}

impl Named {
    /// Notes resources and owner, as far as they are known, if there is to be a log line.
    pub fn note(&self, resources: &[ResourceName], owner: &str) {
        if !is_logged() {
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

    fn names(&self) -> Names {
        self.0.lock().clone()
    }
}

impl<S: Sync> FromRequestParts<S> for Named {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// Whether requests have a line in the log.
fn is_logged() -> bool {
    tracing::enabled!(tracing::Level::INFO)
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
