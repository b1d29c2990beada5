//! Problem documents (RFC 9457): every error on its way out, whoever found it.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fence_core::ports::{EventCursor, Holder};
use fence_core::{ErrorCode, OperationId, Refusal, ResourceName, Token, wire};
use uuid::Uuid;

use crate::engine::Standings;
use crate::engine::error::EngineError;
use crate::spans::TraceId;

/// The media type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The longest `Retry-After` for a held lock: its holder may release it long before its deadline.
const HELD_RETRY_MS_MAX: i64 = 30_000;
const HELD_RETRY_MS_MIN: i64 = 100;

/// An error as it goes to the caller.
///
/// As a response it has no body yet: the outermost middleware, which knows the request id, writes
/// the document with [`Problem::render`].
#[derive(Debug, Clone)]
pub struct Problem(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    code: ErrorCode,
    document: wire::Problem,
    close: bool,
    operation: Option<OperationId>,
    object_size: Option<u64>,
}

impl Problem {
    /// A problem with this code; `detail` says what happened here.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let finds_no_room = [ErrorCode::Overloaded, ErrorCode::RateLimited].contains(&code);
        let document = wire::Problem {
            kind: format!("/docs/errors/{code}"),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            code: code.as_str().to_owned(),
            retryable: code.retryable(),
            request_id: String::new(),
            gateway_request_id: None,
            trace_id: None,
            resource: None,
            index: None,
            presented_token: None,
            superseded_by: None,
            superseded_at: None,
            // Whoever finds no room is always told when to come back.
            retry_after_ms: finds_no_room.then_some(1_000),
            position: None,
            holder: None,
            holder_age_ms: None,
            operation: None,
            reason: None,
            version: None,
            etag: None,
            begin_after: None,
            outcome: None,
        };
        Self(Box::new(Inner { code, document, close: false, operation: None, object_size: None }))
    }

    /// A request that breaks a rule of HTTP or of this API.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::RequestMalformed, detail)
    }

    /// Its code.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// What happened, in words.
    pub fn detail(&self) -> &str {
        &self.0.document.detail
    }

    /// Whether the request may have taken effect or not.
    pub fn outcome_unknown(&self) -> bool {
        self.0.document.outcome.is_some()
    }

    /// Closes the connection after the answer, because the rest of it cannot be trusted.
    pub fn and_close(mut self) -> Self {
        self.0.close = true;
        self
    }

    /// Says one more thing.
    pub fn and_say(mut self, more: &str) -> Self {
        self.0.document.detail += "; ";
        self.0.document.detail += more;
        self
    }

    /// Names the resource.
    pub fn about(mut self, resource: &ResourceName) -> Self {
        self.0.document.resource = Some(resource.to_string());
        self
    }

    /// Names the operation of a commit by its position, from 0.
    pub fn at_index(mut self, index: Option<usize>) -> Self {
        self.0.document.index = index;
        self
    }

    /// Repeats the token that was presented.
    pub fn presented(mut self, token: Token) -> Self {
        self.0.document.presented_token = Some(token.to_string());
        self
    }

    /// Names the operation in `X-Operation-Id`; in the document, too, if it is the one to ask about.
    pub fn of_operation(mut self, operation: OperationId) -> Self {
        self.0.operation = Some(operation);
        if self.outcome_unknown() {
            self.0.document.operation.get_or_insert(operation);
        }
        self
    }

    /// Tells the size of the object that a range lies outside of.
    pub fn of_size(mut self, size: u64) -> Self {
        self.0.object_size = Some(size);
        self
    }

    /// Says why an operator is in the way.
    pub fn because(mut self, reason: Option<String>) -> Self {
        self.0.document.reason = reason;
        self
    }

    /// Says what is known beside it.
    pub fn beside(mut self, standings: Standings) -> Self {
        let document = &mut self.0.document;
        document.reason = standings.reason;
        document.version = standings.version;
        document.etag = standings.tag.map(|tag| tag.to_string());
        self
    }

    /// The resource that it is about.
    pub fn resource(&self) -> Option<&str> {
        self.0.document.resource.as_deref()
    }

    /// Says when to come back.
    pub fn and_retry_after(self, wait: Duration) -> Self {
        self.retry_after(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).max(1))
    }

    fn retry_after(mut self, ms: i64) -> Self {
        self.0.document.retry_after_ms = Some(ms);
        self
    }

    fn held_by(mut self, holder: Holder) -> Self {
        let document = &mut self.0.document;
        document.resource = Some(holder.resource.to_string());
        document.holder = Some(holder.owner);
        document.holder_age_ms = Some(holder.age_ms);
        self.retry_after(holder.remaining_ms.clamp(HELD_RETRY_MS_MIN, HELD_RETRY_MS_MAX))
    }

    fn at(mut self, position: Option<i64>) -> Self {
        self.0.document.position = position;
        if self.code().retryable() { self.retry_after(0) } else { self }
    }

    fn superseded(mut self, refusal: &Refusal) -> Self {
        if let Refusal::Stale { by, at, .. } = refusal {
            self.0.document.superseded_by = by.map(Into::into);
            self.0.document.superseded_at = *at;
        }
        self
    }

    /// The request may have taken effect or not.
    pub fn and_unknown(self) -> Self {
        self.with_unknown_outcome()
    }

    /// The same, if there was anything to take effect.
    pub fn and_unknown_if(self, fenced: bool) -> Self {
        if fenced { self.and_unknown() } else { self }
    }

    fn with_operation(mut self, operation: Option<OperationId>) -> Self {
        self.0.document.operation = operation;
        self
    }

    fn begin_after(mut self, begin: EventCursor) -> Self {
        self.0.document.begin_after = Some(begin.to_string());
        self
    }

    fn with_unknown_outcome(mut self) -> Self {
        self.0.document.outcome = Some("unknown".into());
        self
    }

    /// The document as JSON.
    pub fn render(
        mut self,
        request_id: &str,
        own: Option<Uuid>,
        trace: Option<TraceId>,
    ) -> Vec<u8> {
        let document = &mut self.0.document;
        document.request_id = request_id.to_owned();
        document.gateway_request_id = own.map(|own| own.to_string());
        document.trace_id = trace.map(|trace| trace.to_string());
        // INVARIANT: a struct of strings and numbers always serializes.
        serde_json::to_vec(&self.0.document).expect("a problem is JSON")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let inner = &self.0;
        let mut response = Response::default();
        *response.status_mut() =
            StatusCode::from_u16(inner.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if inner.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if inner.code.status() == 401 {
            let asks = HeaderValue::from_static("Bearer realm=\"fencegate\"");
            headers.insert(header::WWW_AUTHENTICATE, asks);
        }
        if let Some(ms) = inner.document.retry_after_ms {
            headers.insert(header::RETRY_AFTER, whole_seconds(ms).into());
        }
        if let Some(operation) = inner.operation {
            headers.insert(HeaderName::from_static("x-operation-id"), text(operation));
        }
        if let Some(size) = inner.object_size {
            headers.insert(header::CONTENT_RANGE, text(format_args!("bytes */{size}")));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// `Retry-After` counts seconds; rounded up, so that nobody comes too early.
fn whole_seconds(ms: i64) -> i64 {
    ms.max(0).saturating_add(999) / 1000
}

/// A header value from ids and numbers, which are plain ASCII.
pub fn text(value: impl std::fmt::Display) -> HeaderValue {
    HeaderValue::try_from(value.to_string()).unwrap_or(HeaderValue::from_static(""))
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let problem = Self::new(error.code(), detail(&error));
        match error {
            EngineError::Refused(refusal) => problem.superseded(&refusal),
            EngineError::KeyReused { first } => problem.with_operation(Some(first)),
            EngineError::Held(holder) => problem.held_by(holder),
            EngineError::WaitElapsed { position } | EngineError::LockWaiting { position } => {
                problem.at(position)
            }
            EngineError::Draining(Some(resource)) => problem.about(&resource).retry_after(1_000),
            EngineError::Frozen(resource)
            | EngineError::NeverLocked(resource)
            | EngineError::OrderStale(resource) => problem.about(&resource),
            EngineError::EventsVoid { begin } => problem.begin_after(begin),
            EngineError::OutcomeUnknown { operation } => {
                problem.with_operation(operation).with_unknown_outcome().retry_after(1_000)
            }
            EngineError::MintRegressed(_) | EngineError::RefenceRequired(_) => {
                problem.retry_after(5_000)
            }
            _ if problem.code().retryable() => problem.retry_after(1_000),
            _ => problem,
        }
    }
}

/// What the caller reads. What drivers say goes to the log alone: it may name hosts and statements.
fn detail(error: &EngineError) -> String {
    match error {
        EngineError::Refused(refusal) => refused(refusal).into(),
        EngineError::LedgerUnavailable(why) => {
            tracing::warn!(why, "the ledger is unavailable");
            "the ledger does not answer; nothing was applied".into()
        }
        EngineError::MintUnavailable(why) => {
            tracing::warn!(why, "the mint is unavailable");
            "the mint does not answer; no lock was granted, and existing locks stay usable".into()
        }
        EngineError::BlobsUnavailable(why) => {
            tracing::warn!(why, "the blob store is unavailable");
            "the blob store does not answer, or is not the one of this ledger; nothing was applied"
                .into()
        }
        EngineError::Defect(why) => {
            tracing::error!(why, "a defect of the gateway");
            "see the gateway's log under this request id".into()
        }
        other => other.to_string(),
    }
}

fn refused(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Void => {
            "the token was issued before the ledger was re-fenced; acquire the lock again"
        }
        Refusal::Unknown | Refusal::Foreign => {
            "no lock on this resource was ever granted this token, or none of yours"
        }
        Refusal::Stale { .. } => {
            "a newer token was granted on this resource; stop, read the state again, and acquire \
             the lock again if the work is still needed"
        }
        Refusal::Released => "the lock was released; its token admits no more writes",
        Refusal::Broken => "an operator broke the lock; its token admits no more writes",
        Refusal::LockIdMismatch => "X-Lock-Id is not the id of the lock that has this token",
        Refusal::Frozen => "an operator has stopped all writes to this resource",
        Refusal::Draining => {
            "effects of older tokens are under way at an upstream; the lock is not in force yet"
        }
        Refusal::Protected => {
            "an operator has forbidden deleting this resource; GET /resources/{resource} says why"
        }
        Refusal::TooManyObjects => {
            "the resource has more than 10000 objects, which one call does not remove; delete them by their keys, in \
             pages, as `fence rm -R` does"
        }
        Refusal::SequenceOutOfOrder => {
            "X-Fence-Seq must be higher than in every earlier write under this token"
        }
        Refusal::VersionMismatch => {
            "the object or the resource is not at the version that the request demands"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fence_core::LockState;

    #[test]
    fn every_code_round_trips_through_a_document() {
        for code in ErrorCode::ALL {
            let problem = Problem::new(*code, "what happened");
            let bytes = problem.clone().render("r1", None, None);
            let document: wire::Problem = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(document.code, code.as_str());
            assert_eq!(document.status, code.status());
            assert_eq!(document.kind, format!("/docs/errors/{code}"));
            assert_eq!(document.request_id, "r1");
            assert_eq!(document.retryable, code.retryable());
            let response = problem.into_response();
            assert_eq!(response.status().as_u16(), code.status());
            assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
        }
    }

    #[test]
    fn a_held_lock_says_who_and_when_to_come_back() {
        let problem = Problem::from(EngineError::Held(Holder {
            resource: ResourceName::new("job:1").unwrap(),
            owner: "w1".into(),
            state: LockState::Leased,
            age_ms: 12,
            remaining_ms: 1_001,
        }));
        let document: wire::Problem =
            serde_json::from_slice(&problem.clone().render("r", None, None)).unwrap();
        assert_eq!(document.holder.as_deref(), Some("w1"));
        assert_eq!(document.retry_after_ms, Some(1_001));
        assert_eq!(problem.into_response().headers()["retry-after"], "2");
    }

    #[test]
    fn defects_and_drivers_are_not_quoted() {
        for error in [
            EngineError::Defect("secret at 10.0.0.7".into()),
            EngineError::LedgerUnavailable("secret at 10.0.0.7".into()),
            EngineError::MintUnavailable("secret at 10.0.0.7".into()),
        ] {
            let text = String::from_utf8(Problem::from(error).render("r", None, None)).unwrap();
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn only_a_lost_answer_has_an_unknown_outcome() {
        assert!(Problem::from(EngineError::OutcomeUnknown { operation: None }).outcome_unknown());
        assert!(!Problem::from(EngineError::Overloaded("commit")).outcome_unknown());
    }
}
