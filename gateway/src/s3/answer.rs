//! The outermost layer of S3: request id, host, errors as XML, log line and duration.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use fencegate_s3::xml::write::{self, Failure as Told};

use super::Front;
use super::failure::Failure;
use crate::http::Problem;
use crate::http::middleware::{Line, RequestId, contain, keep_pages_out};
use crate::spans::within;

/// The media type of all documents of S3.
pub const XML: HeaderValue = HeaderValue::from_static("application/xml");

/// The operation that a request was found to be, for its log line and metrics.
#[derive(Debug, Clone, Copy)]
struct Operation(&'static str);

/// An answer to an operation.
pub fn of(mut response: Response, operation: &'static str) -> Response {
    response.extensions_mut().insert(Operation(operation));
    response
}

/// Runs a request and finishes its answer.
pub async fn answer(State(front): State<Front>, mut request: Request, next: Next) -> Response {
    let id = RequestId::accept(request.headers());
    request.extensions_mut().insert(id.clone());
    let line = Line::begin(&request, id);
    request.extensions_mut().insert(line.named());
    request.extensions_mut().insert(line.recorded());
    line.in_log().runs(finished(front, request, next, line)).await
}

async fn finished(front: Front, request: Request, next: Next, mut line: Line) -> Response {
    let id = line.id();
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let domain = front.settings.domain.as_deref();
    let mut response = match keep_pages_out(&request, &front.app.doors, domain) {
        Ok(()) => within(line.place(), next.run(request)).await,
        Err(problem) => Failure::from(problem).into_response(),
    };
    // What layers in between refuse they refuse natively.
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = Failure::from(problem).into_response();
    }
    let failure = response.extensions_mut().remove::<Failure>();
    let operation = response.extensions_mut().remove::<Operation>();
    let failed = failure.as_ref().and_then(Failure::operation);
    line.is_of_s3(operation.map(|operation| operation.0).or(failed).unwrap_or("-"));
    if let Some(failure) = &failure {
        line.failed(failure.code(), failure.resource());
        if !has_no_body(&method, response.status()) {
            let told = Told {
                error: failure.error(),
                resource: &path,
                request_id: id.as_str(),
                host_id: "fencegate",
            };
            *response.body_mut() = Body::from(write::error(&told));
            response.headers_mut().insert(header::CONTENT_TYPE, XML);
        }
        if method != Method::GET && method != Method::HEAD {
            let unknown = failure.outcome_unknown();
            let verdict = if unknown { "unknown" } else { "refused" };
            let verdict = HeaderValue::from_static(verdict);
            response.headers_mut().insert(HeaderName::from_static("x-fence-verdict"), verdict);
            if unknown {
                let outcome = HeaderName::from_static("x-fence-outcome");
                response.headers_mut().insert(outcome, HeaderValue::from_static("unknown"));
            }
        }
    }
    let headers = response.headers_mut();
    contain(headers, true);
    headers.insert(HeaderName::from_static("x-request-id"), id.as_header());
    headers.insert(HeaderName::from_static("x-amz-request-id"), id.as_header());
    headers.insert(header::SERVER, HeaderValue::from_static("fencegate"));
    line.ends(&response);
    response
}

fn has_no_body(method: &Method, status: StatusCode) -> bool {
    *method == Method::HEAD || status == StatusCode::NOT_MODIFIED
}
