//! Requests to a drained upstream: admitted by the ledger, acted upon, closed.

use std::sync::Arc;

use fence_core::OperationId;
use fence_core::ports::{
    Attempt, By, CloseItem, DrainedUpstream, ForwardEnd, IntentItem, IntentVerdict, Intents as _,
    LedgerError, Resolution,
};
use fence_history::{Answer, Asked, Intent};
use fencegate::ledger::postgres::PgLedger;
use futures::FutureExt as _;

use super::session::{Sending, Session, failed, name, only, refused, token};
use super::stage::{Known, Stage, UPSTREAM};
use crate::line::Line;

/// Registers the upstream.
///
/// # Errors
/// The ledger does not take it.
pub async fn register(ledger: &PgLedger) -> Result<(), LedgerError> {
    let upstream = DrainedUpstream {
        name: UPSTREAM.into(),
        resource_prefix: UPSTREAM.into(),
        max_effect_delay: None,
    };
    ledger.register_upstreams(&[upstream]).await
}

/// Says that nothing is under way at the upstream, once that is so: as an operator does after a re-fence.
///
/// # Errors
/// The ledger does not answer; it is to be said again.
pub async fn resolve_doubts(stage: &Stage, ledger: &PgLedger) -> Result<(), LedgerError> {
    let _alone = stage.under_way.write().await;
    let resolution = Resolution {
        reason: "a schedule".into(),
        request_id: "schedule".into(),
        by: By::default(),
    };
    ledger.resolve_doubts(UPSTREAM, resolution).await.map(drop)
}

impl Session {
    /// Sends a request to the upstream, if this lock is on one of its resources.
    pub async fn forward(&mut self, known: &Known) {
        let of_upstream = known.versions.iter().find(|(name, _)| name.starts_with(UPSTREAM));
        let Some((resource, _)) = of_upstream.cloned() else { return };
        let stage = Arc::clone(&self.stage);
        let _under_way = stage.under_way.read().await;
        let (request, operation) = (self.id(), OperationId(self.id()));
        let asked = Asked::Forward { resource: resource.clone(), token: known.token, request };
        let call = self.begin(0, asked);
        let item = IntentItem {
            operation,
            resource: name(&resource),
            token: token(known.token),
            lock: None,
            sequence: None,
            resource_version: None,
            drained: true,
            upstream: UPSTREAM.into(),
            method: "POST".into(),
            path: "/".into(),
            gateway: stage.gateways[0],
            max_effect_delay: None,
            attempt: Attempt::First,
            by: By::default(),
        };
        let send: Sending<IntentVerdict> = Box::new(move |ledger, attempt, patience| {
            let item = IntentItem { attempt, ..item.clone() };
            async move { only(ledger.open_intents([item].into(), patience).await) }.boxed()
        });
        let busy = |verdict: &IntentVerdict| *verdict == IntentVerdict::Busy;
        let answer = match self.settle_surely(Attempt::First, &send, busy).await {
            Some(IntentVerdict::Admitted) => {
                stage.book.write(Line::Intent(Intent { operation: operation.0, request }));
                self.pause(0, 40).await;
                let is_sent = self.chance(0.85);
                if is_sent {
                    stage.book.effect(resource, known.token, request);
                }
                self.close_intent(operation, is_sent).await;
                if is_sent { Answer::Forwarded } else { failed("unsent") }
            }
            Some(IntentVerdict::Refused(refusal)) => refused(refusal.code().as_str()),
            Some(IntentVerdict::Buried) => failed("given-up"),
            Some(IntentVerdict::RulesMoved | IntentVerdict::Busy) | None => failed("undone"),
        };
        stage.answer(call, answer);
    }

    async fn close_intent(&mut self, operation: OperationId, is_sent: bool) {
        let end = if is_sent { ForwardEnd::Answered(200) } else { ForwardEnd::Unsent };
        loop {
            let (_, ledger) = self.gateway();
            match ledger.close_intents(&[CloseItem { operation, end }]).await {
                Ok(_) => return,
                Err(error) => drop(self.stage.leaves_unknown(&error)),
            }
            self.pause(1, 30).await;
        }
    }
}
