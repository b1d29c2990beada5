//! A request on its way through, in a task of its own: admit, send, pass the answer on (`answer.rs`), close the
//! intent.
//!
//! When an intent is closed: once the upstream's answer was read to its end (then the upstream has nothing left to
//! do for the request) and no more of the request is on its way; or when no connection came about, so that nothing
//! was sent. In every other case the outcome is unknown, and the intent stays open. The end of the answer is held
//! back from the caller until the intent is closed: whoever has seen that end finds nothing under way. Only if the
//! outcome stays unknown, or is unknown for long, the answer goes first.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CONTENT_LENGTH, HeaderMap};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use fence_core::ErrorCode;
use fence_core::OperationId;
use fence_core::ports::ForwardEnd;
use jiff::Timestamp;
use reqwest::Url;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::body::{Incoming, Sending, Trouble};
use super::outcome::{Outcome, chain};
use super::{Upstream, is_fenced};
use crate::engine::access::Asks;
use crate::engine::{Engine, EngineError, Forward, count_forward};
use crate::http::problem::Problem;
use crate::http::state::Limits;
use crate::spans;

/// A request that is to be passed on.
pub struct Passage {
    /// Where to.
    pub upstream: Arc<Upstream>,
    /// The same with its path.
    pub target: Url,
    /// The method.
    pub method: Method,
    /// The headers, as the upstream gets them.
    pub headers: HeaderMap,
    /// The body.
    pub body: Incoming,
    /// What the ledger has to admit, for a method that is fenced.
    pub fenced: Option<Forward>,
    /// Its share of what may be in flight.
    pub room: OwnedSemaphorePermit,
    /// Who asks, if rules of access may be in force.
    pub asks: Option<Asks>,
}

/// Passes a request on and returns the upstream's answer. The task behind it goes on if this is dropped.
///
/// # Errors
/// The problem to answer with.
pub async fn forward(
    engine: &Engine,
    limits: &Limits,
    passage: Passage,
) -> Result<Response, Problem> {
    let (answer, answered) = oneshot::channel();
    let clock = &engine.runtime().clock;
    let fenced = passage.fenced.is_some();
    let task = Task {
        engine: engine.clone(),
        idle: limits.body_idle_timeout,
        began: clock.elapsed(),
        began_at: clock.now(),
        answer: Some(answer),
        operation: None,
        fenced,
        numbered: passage.fenced.as_ref().is_some_and(|requested| requested.sequence.is_some()),
        upstream: Arc::clone(&passage.upstream),
        is_ruled: passage.asks.is_some(),
    };
    let token = engine.forwarding();
    let run = async move {
        task.run(passage).await;
        drop(token);
    };
    let run = spans::within(spans::current(), run);
    engine.runtime().spawn.spawn("forward", Box::pin(run));
    answered.await.unwrap_or_else(|_| {
        let why = "see the gateway's log under this request id";
        // The task has died; it may have sent the request before.
        Err(Problem::new(ErrorCode::Internal, why).and_unknown_if(fenced))
    })
}

/// A request in its task.
pub(super) struct Task {
    pub(super) engine: Engine,
    pub(super) idle: Duration,
    began: Duration,
    began_at: Timestamp,
    pub(super) answer: Option<oneshot::Sender<Result<Response, Problem>>>,
    pub(super) operation: Option<OperationId>,
    pub(super) fenced: bool,
    /// Whether it has a sequence number.
    numbered: bool,
    pub(super) upstream: Arc<Upstream>,
    /// Set if rules of access were in force when its headers were made.
    pub(super) is_ruled: bool,
}

impl Task {
    /// 1. Fenced: the ledger admits it, or nothing is sent.
    /// 2. What is left of the time is not enough any more, because this process was paused; or the rules of access
    ///    have moved since it was admitted, and do not allow it: nothing is sent (I17).
    /// 3. Send. Nothing was sent: close.
    /// 4. Pass the answer on to its end, cut off what is left of the body, then close.
    async fn run(mut self, mut passage: Passage) {
        let _room = passage.room;
        let admitted = match passage.fenced.take() {
            None => None,
            Some(requested) => {
                let (resource, token) = (requested.resource.clone(), requested.token);
                match self.engine.admit(requested).await {
                    Ok(admitted) => Some(admitted),
                    Err(failure) => {
                        let lost = matches!(failure.error, EngineError::NotForwarded);
                        let error = failure.error;
                        let beside = self.engine.beside_write(&error, &resource, None, token).await;
                        let problem = Problem::from(error).about(&resource);
                        let problem = problem.presented(token).beside(beside);
                        let problem = if lost { self.used_up(problem, "may be") } else { problem };
                        return self.fail(problem.of_operation(failure.operation));
                    }
                }
            }
        };
        self.operation = admitted.as_ref().map(|admitted| admitted.operation);
        let head = (passage.method, passage.target, passage.headers);
        let allowed = match &passage.asks {
            Some(asks) if self.fenced => asks.confirm().await,
            _ => Ok(()),
        };
        let sent = match (self.left(), allowed) {
            (None, _) => Err(Outcome::Unsent(self.late("nothing was forwarded"))),
            (_, Err(error)) => Err(Outcome::Unsent(error.into())),
            (Some(left), Ok(())) => self.send(head, passage.body, left).await,
        };
        match sent {
            Ok((response, sending)) => self.pass_back(response, sending, admitted).await,
            Err(Outcome::Unsent(problem)) => {
                count_forward(&self.upstream.name, "unreachable");
                if let Some(admitted) = admitted {
                    admitted.close(ForwardEnd::Unsent).await;
                }
                let problem = self.used_up(problem, "is");
                self.fail(problem);
            }
            Err(Outcome::Unknown(problem)) => {
                let late = problem.code() == ErrorCode::UpstreamTimeout;
                count_forward(&self.upstream.name, if late { "timeout" } else { "failed" });
                let problem = if self.fenced { problem.and_unknown() } else { problem };
                self.fail(problem);
            }
        }
    }

    /// What is left of the time that a request may take as a whole.
    ///
    /// Where the ledger counts an intent as closed after a time, the wall clock is asked, too: while a
    /// machine is suspended, the other one stands still.
    pub(super) fn left(&self) -> Option<Duration> {
        let clock = &self.engine.runtime().clock;
        let mut gone = clock.elapsed().saturating_sub(self.began);
        if self.upstream.max_effect_delay.is_some() {
            let by_the_wall = clock.now().duration_since(self.began_at);
            gone = gone.max(Duration::try_from(by_the_wall).unwrap_or_default());
        }
        self.upstream.timeout.checked_sub(gone).filter(|left| !left.is_zero())
    }

    /// What was admitted has used up its sequence number, whether it was sent or not.
    fn used_up(&self, problem: Problem, is: &str) -> Problem {
        if !self.numbered {
            return problem;
        }
        problem.and_say(&format!(
            "the number in X-Fence-Seq {is} used up: send the request again with a higher one"
        ))
    }

    fn late(&self, what: &str) -> Problem {
        let limit = humantime::format_duration(self.upstream.timeout);
        let why = format!("the upstream gave no whole answer within {limit}; {what}");
        Problem::new(ErrorCode::UpstreamTimeout, why)
    }

    fn unknown(&self) -> &'static str {
        if self.fenced { "it may have acted or not" } else { "the read may be sent again" }
    }

    /// Step 3.
    async fn send(
        &mut self,
        (method, target, mut headers): (Method, Url, HeaderMap),
        body: Incoming,
        left: Duration,
    ) -> Result<(reqwest::Response, Option<Sending>), Outcome> {
        let client = self.upstream.client(&method, &*self.engine.runtime().clock);
        let trouble = body.trouble();
        match body.length() {
            Some(0) if !is_fenced(&method) => {}
            Some(length) => drop(headers.insert(CONTENT_LENGTH, length.into())),
            None => {}
        }
        let mut request = reqwest::Request::new(method, target);
        *request.headers_mut() = headers;
        // Unless there is an answer it is dropped here, and then no more of the body is sent.
        let (body, sending) = body.into_body();
        *request.body_mut() = Some(body);
        let answered = client.execute(request);
        let runtime = self.engine.runtime().clone();
        // A read that nobody waits for any more has no purpose.
        let outcome = match (&mut self.answer, self.fenced) {
            (Some(answer), false) => tokio::select! {
                outcome = runtime.within(left, answered) => outcome,
                () = answer.closed() => None,
            },
            _ => runtime.within(left, answered).await,
        };
        match outcome {
            None => Err(Outcome::Unknown(self.late(self.unknown()))),
            Some(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err(Outcome::Unknown(self.failed("it changed the protocol unasked")))
            }
            Some(Ok(response)) => Ok((response, sending)),
            Some(Err(error)) => Err(self.judge(&error, &trouble)),
        }
    }

    pub(super) fn failed(&self, why: &str) -> Problem {
        let text = format!("the upstream gave no whole answer: {why}; {}", self.unknown());
        Problem::new(ErrorCode::UpstreamFailed, text)
    }

    /// What an error says about what was sent. Anything but a connection that never came about may have
    /// carried part of the request.
    fn judge(&self, error: &reqwest::Error, trouble: &Trouble) -> Outcome {
        tracing::warn!(
            upstream = self.upstream.name,
            operation = self.operation.map(tracing::field::display),
            error = chain(error),
            "an upstream gave no answer"
        );
        if error.is_connect() || error.is_builder() {
            let why = "no connection to the upstream came about; nothing was forwarded";
            return Outcome::Unsent(Problem::new(ErrorCode::UpstreamUnreachable, why));
        }
        match trouble.take() {
            Some(problem) => Outcome::Unknown(problem),
            None => Outcome::Unknown(self.failed("the connection was lost")),
        }
    }

    pub(super) fn fail(&mut self, problem: Problem) {
        let problem = match self.operation {
            Some(operation) => problem.of_operation(operation),
            None => problem,
        };
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(problem));
        }
    }
}
