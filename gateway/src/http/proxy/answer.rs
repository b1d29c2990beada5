//! The last step of a request on its way through: the upstream's answer goes to the caller, and the intent is
//! closed, if it may be.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use fence_core::ports::ForwardEnd;

use super::body::Sending;
use super::caller::Caller;
use super::forward::Task;
use super::outcome::{class, may_be_of_another};
use super::{Forwarded, headers};
use crate::engine::{Admitted, count_forward};
use crate::http::problem::text;

/// How long the caller is kept waiting for the end of an answer that came before the end of its body, when
/// the connection does not let go of the rest.
const LET_GO_MAX: Duration = Duration::from_secs(1);

impl Task {
    /// Passes the answer on to its end, cuts off what is left of the body, then closes the intent.
    pub(super) async fn pass_back(
        mut self,
        mut response: reqwest::Response,
        sending: Option<Sending>,
        admitted: Option<Admitted>,
    ) {
        let status = response.status();
        count_forward(&self.upstream.name, class(status));
        let headers = headers::to_caller(
            response.headers(),
            response.version(),
            self.upstream.credentials(self.is_ruled),
        );
        let length =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        // No caller keeps an intent open by reading slowly: half of the time is the upstream's.
        let drained = self.fenced && self.upstream.is_drained();
        let patience = drained.then(|| self.idle.min(self.left().unwrap_or_default() / 2));
        let mut caller = Caller::new(self.idle, patience, self.engine.clone());
        let mut head = Some(self.head(status, headers));
        let empty = length == Some(0)
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if length.is_some_and(|length: u64| length > self.upstream.body_bytes_max) {
            self.fail(
                self.failed("its answer is larger than the limit").and_unknown_if(self.fenced),
            );
            caller.leave();
            head = None;
        } else if !empty {
            self.answer_with(head.take(), &mut caller);
        }
        let mut read = 0;
        let end = loop {
            if caller.has_left() && !self.fenced && head.is_none() {
                return;
            }
            let Some(left) = self.left() else { break Err("in time") };
            match self.engine.runtime().within(left, response.chunk()).await {
                None => break Err("in time"),
                Some(Err(_)) => break Err("whole"),
                Some(Ok(None)) => break Ok(()),
                Some(Ok(Some(part))) => {
                    read += part.len() as u64;
                    if read > self.upstream.body_bytes_max {
                        caller.leave();
                    }
                    caller.give(part, length == Some(read)).await;
                }
            }
        };
        if let Err(how) = end {
            let name = &self.upstream.name;
            let operation = self.operation.map(tracing::field::display);
            tracing::warn!(upstream = name, operation, "the answer did not arrive {how}");
            caller.leave();
            if head.is_some() {
                self.fail(self.failed("its answer broke off").and_unknown_if(self.fenced));
            }
            return;
        }
        let late = self.conclude(status, sending, admitted).await;
        self.answer_with(head.take(), &mut caller);
        caller.finish().await;
        if let Some((sending, admitted)) = late {
            self.conclude_late(status, sending, admitted).await;
        }
    }

    /// The answer is there: cuts off what is left of the body, and closes the intent. If that is not
    /// possible yet, returns what is left to do.
    async fn conclude(
        &self,
        status: StatusCode,
        sending: Option<Sending>,
        admitted: Option<Admitted>,
    ) -> Option<(Sending, Admitted)> {
        let admitted = admitted?;
        if self.upstream.is_drained() && self.upstream.intermediary && may_be_of_another(status) {
            let (name, operation) = (&self.upstream.name, admitted.operation);
            let status = status.as_u16();
            tracing::warn!(upstream = name, %operation, status, "an answer that may be of another");
            return None;
        }
        if let Some(sending) = sending
            && self.upstream.is_drained()
            && self.engine.runtime().within(LET_GO_MAX, sending.end()).await.is_none()
        {
            return Some((sending, admitted));
        }
        admitted.close(ForwardEnd::Answered(status.as_u16())).await;
        None
    }

    /// The connection is blocked with a part of the body, which the upstream may still take from it.
    async fn conclude_late(&self, status: StatusCode, sending: Sending, admitted: Admitted) {
        let left = self.left().unwrap_or_default();
        match self.engine.runtime().within(left, sending.end()).await {
            Some(()) => admitted.close(ForwardEnd::Answered(status.as_u16())).await,
            None => {
                let (name, operation) = (&self.upstream.name, admitted.operation);
                tracing::warn!(upstream = name, %operation, "it was answered, but not sent whole");
            }
        }
    }

    fn head(&self, status: StatusCode, mut headers: HeaderMap) -> Response {
        if status == StatusCode::NO_CONTENT {
            headers.remove(CONTENT_LENGTH);
        }
        if let Some(operation) = self.operation {
            let guarantee = HeaderValue::from_static(self.upstream.guarantee.as_str());
            headers.insert(HeaderName::from_static("x-fence-guarantee"), guarantee);
            headers.insert(HeaderName::from_static("x-operation-id"), text(operation));
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response.extensions_mut().insert(Forwarded);
        response
    }

    fn answer_with(&mut self, head: Option<Response>, caller: &mut Caller) {
        let (Some(mut head), Some(answer)) = (head, self.answer.take()) else { return };
        *head.body_mut() = caller.body();
        if answer.send(Ok(head)).is_err() {
            caller.leave();
        }
    }
}
