//! Requests to upstreams: who is let through, and when what was forwarded is over.
//!
//! Nothing is forwarded unless the ledger is known to have admitted it. For a drained upstream the ledger holds
//! an *intent* from then on, until the forwarding task has the upstream's whole answer, or knows that nothing
//! was sent. If the outcome is unknown, the intent stays open: only an operator, or the upstream's
//! `max_effect_delay`, can end it.

mod closing;
mod intents;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::mutants::{self, Mutant};
use fence_core::ports::{
    Attempt, ForwardEnd, IntentItem, IntentVerdict, Ledger, LedgerError, Patience,
};
use fence_core::{LockId, OperationId, PrincipalName, ResourceName, Token};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::access::Permit;
use super::batch::{Act, Batcher, Failure};
use super::data::{Record, WriteFailure};
use super::locks::Drains;
use super::{Base, Engine, EngineError, metrics};
use closing::Closing;

/// A request that is to be forwarded to an upstream.
#[derive(Debug, Clone)]
pub struct Forward {
    /// The upstream.
    pub upstream: String,
    /// Whether its guarantee is `drained`.
    pub drained: bool,
    /// After this time whatever was forwarded has had its effect or never will.
    pub max_effect_delay: Option<Duration>,
    /// The resource.
    pub resource: ResourceName,
    /// The fence token.
    pub token: Token,
    /// The lock id, if sent.
    pub lock: Option<LockId>,
    /// The sequence number, if sent.
    pub sequence: Option<i64>,
    /// The version that the resource must have.
    pub resource_version: Option<i64>,
    /// The method, for operators.
    pub method: String,
    /// The path, for operators.
    pub path: String,
    /// The request, for operators.
    pub request_id: String,
    /// What allows it.
    pub permit: Permit,
}

/// What may be forwarded now. Dropped without being closed, its fate is unknown.
pub struct Admitted {
    /// Its id.
    pub operation: OperationId,
    open: Option<Open>,
}

/// An open intent that this gateway forwards.
struct Open {
    operation: OperationId,
    closing: Closing,
}

impl Open {
    fn new(operation: OperationId, closing: Closing) -> Self {
        closing.here().insert(operation);
        Self { operation, closing }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.closing.here().remove(&self.operation);
    }
}

impl Admitted {
    /// It is over: the upstream has answered, or nothing was sent. Waits until the ledger knows, but no
    /// longer than a caller waits; it is told in any case.
    pub async fn close(self, end: ForwardEnd) {
        let Some(open) = self.open else { return };
        let closing = open.closing.clone();
        let (runtime, limit) = (closing.runtime.clone(), closing.timeout);
        let _ = runtime.within(limit, closing.close(open.operation, end)).await;
    }
}

/// Opening intents, as the act of a batcher.
struct OpenIntents {
    ledger: Arc<dyn Ledger>,
    closing: Closing,
}

/// The verdict on its way to the one who forwards. An intent that nobody takes is closed: nothing was
/// sent.
struct Opened {
    verdict: Option<IntentVerdict>,
    operation: OperationId,
    drained: bool,
    closing: Closing,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.drained && self.verdict == Some(IntentVerdict::Admitted) {
            drop(self.closing.close(self.operation, ForwardEnd::Unsent));
        }
    }
}

#[async_trait]
impl Act for OpenIntents {
    type Item = IntentItem;
    type Verdict = Opened;
    type Lane = ResourceName;

    const NAME: &'static str = "open_intents";

    fn principal(item: &IntentItem) -> Option<&PrincipalName> {
        item.by.principal()
    }

    fn lane(item: &IntentItem) -> ResourceName {
        item.resource.clone()
    }

    async fn run(
        &self,
        items: Arc<[IntentItem]>,
        patience: Patience,
    ) -> Result<Vec<Opened>, LedgerError> {
        let verdicts = self.ledger.open_intents(Arc::clone(&items), patience).await?;
        let opened = |(verdict, item): (IntentVerdict, &IntentItem)| Opened {
            verdict: Some(verdict),
            operation: item.operation,
            drained: item.drained,
            closing: self.closing.clone(),
        };
        Ok(verdicts.into_iter().zip(items.iter()).map(opened).collect())
    }

    fn is_busy(opened: &Opened) -> bool {
        opened.verdict == Some(IntentVerdict::Busy)
    }

    fn rules_moved(opened: &Opened) -> bool {
        opened.verdict == Some(IntentVerdict::RulesMoved)
    }

    fn ask_after(item: &mut IntentItem) -> bool {
        item.attempt = Attempt::Bury;
        true
    }

    /// Absent is not "not admitted": the same operation is sent again, to be found, admitted or buried.
    fn rerun(item: &mut IntentItem, wanted: bool) {
        item.attempt = if wanted { Attempt::Rerun } else { Attempt::Bury };
    }
}

/// What the engine has for upstreams.
pub(super) struct Upstreams {
    opens: Batcher<OpenIntents>,
    closing: Closing,
}

impl Upstreams {
    /// Starts the queues. What is over is told to `drains`.
    pub(super) fn start(base: &Base, drains: Drains) -> Self {
        let closing = Closing::start(base, drains);
        let open = OpenIntents { ledger: Arc::clone(&base.ledger), closing: closing.clone() };
        Self { opens: base.batcher(open), closing }
    }

    /// How many requests are being forwarded.
    pub(super) fn forwards(&self) -> usize {
        self.closing.forwards.len()
    }
}

impl Engine {
    /// Keeps the gateway from stopping while something is being forwarded.
    pub fn forwarding(&self) -> TaskTrackerToken {
        self.inner.upstreams.closing.forwards.token()
    }

    /// Waits until nothing is being forwarded any more. To be called once no request is taken.
    pub async fn forwards_done(&self) {
        let forwards = &self.inner.upstreams.closing.forwards;
        forwards.close();
        forwards.wait().await;
    }

    /// Decides whether a request may be forwarded. Never call this from a request's own future: what is
    /// admitted must be forwarded or closed.
    ///
    /// # Errors
    /// Whatever it is, nothing may be forwarded, and nothing has to be closed.
    #[tracing::instrument(level = "debug", skip_all, fields(resource = %request.resource))]
    pub async fn admit(&self, request: Forward) -> Result<Admitted, WriteFailure> {
        let upstreams = &self.inner.upstreams;
        let operation = self.inner.runtime.ids.operation();
        let resource = request.resource.clone();
        let (token, request_id) = (request.token, &request.request_id);
        let permit = request.permit.clone();
        let principal = permit.principal();
        let record = Record { resource: &resource, key: None, token, request_id, principal };
        // Not held up: it has its share of what may be in flight to the upstream.
        self.refuse_known(&record, None, false).await?;
        let asked = self.inner.writes.refusals.asking(&resource);
        let drained = request.drained;
        let item = IntentItem {
            operation,
            resource: request.resource,
            token: request.token,
            lock: request.lock,
            sequence: request.sequence,
            resource_version: request.resource_version,
            drained,
            upstream: request.upstream,
            method: request.method,
            path: request.path,
            gateway: self.inner.locks.gateway(),
            max_effect_delay: request.max_effect_delay,
            attempt: Attempt::First,
            by: permit.by(),
        };
        let failed = |error| WriteFailure { operation, error };
        let verdict = loop {
            let item = IntentItem { by: permit.by(), ..item.clone() };
            match upstreams.opens.submit(item).await {
                Ok(opened) if OpenIntents::rules_moved(&opened) => {
                    permit.renew().await.map_err(failed)?;
                }
                verdict => break verdict,
            }
        };
        let mut opened = match verdict {
            Ok(opened) => opened,
            Err(Failure::Busy) => return Err(failed(EngineError::Busy)),
            // It is found and closed as not sent, or buried; nobody forwards it.
            Err(Failure::Unknown) => return Err(failed(EngineError::NotForwarded)),
            Err(failure) => return Err(failed(EngineError::unsent(failure, "upstreams"))),
        };
        match opened.verdict.take() {
            Some(IntentVerdict::Admitted) => {
                if mutants::is(Mutant::CloseBeforeForward) {
                    drop(upstreams.closing.close(operation, ForwardEnd::Answered(200)));
                }
                let open = drained.then(|| Open::new(operation, upstreams.closing.clone()));
                Ok(Admitted { operation, open })
            }
            Some(IntentVerdict::Refused(refusal)) => {
                let writes = &self.inner.writes;
                let principal = record.principal.as_ref();
                writes.refusals.keep(&resource, token, principal, &refusal, asked);
                writes.reject(&record, &refusal);
                Err(failed(EngineError::Refused(refusal)))
            }
            Some(IntentVerdict::RulesMoved) => Err(failed(EngineError::AccessUnavailable)),
            Some(IntentVerdict::Busy) => Err(failed(EngineError::Busy)),
            Some(IntentVerdict::Buried) | None => Err(failed(EngineError::NotForwarded)),
        }
    }
}

/// Counts what was forwarded, by upstream and class of status, or by why there was none.
pub fn count_forward(upstream: &str, status: &'static str) {
    ::metrics::counter!(metrics::UPSTREAM_REQUESTS, "upstream" => upstream.to_owned(), "status" => status)
        .increment(1);
}
