//! Locks that are sealed and held back: effects of older tokens are still under way at an upstream. Who puts
//! them in force, and how their callers wait for that. All that locks have to do with upstreams is here.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ResourceName;
use fence_core::ports::{Attempt, Ledger, Runtime, SealItem, SealVerdict};

use super::Line;
use super::place::WaiterPlace;
use super::wait::{Step, Waiting};
use crate::engine::locks::seal::{Acquired, Pending, acquired, seal};
use crate::engine::{EngineError, metrics};

/// How often a waiter asks whether its lock is in force, whatever else happens.
const DRAIN_POLL: Duration = Duration::from_secs(1);

/// Puts locks in force for which nothing of older tokens is under way any more; cheap to clone.
#[derive(Clone)]
pub(in crate::engine) struct Drains {
    pub(in crate::engine::locks) ledger: Arc<dyn Ledger>,
    pub(in crate::engine::locks) line: Arc<Line>,
    pub(in crate::engine::locks) runtime: Runtime,
}

impl Drains {
    /// Those on these resources, or on any, in a task of its own, and tells their callers.
    pub(in crate::engine) fn complete(&self, resources: Option<Vec<ResourceName>>) {
        let this = self.clone();
        let task = async move { this.pass(resources).await };
        self.runtime.spawn.spawn("complete-drains", Box::pin(task));
    }

    pub(in crate::engine) async fn pass(&self, resources: Option<Vec<ResourceName>>) {
        match self.ledger.complete_drains(self.line.gateway, resources.as_deref()).await {
            Ok(locks) => locks.into_iter().for_each(|lock| self.line.poke(lock)),
            Err(error) => tracing::debug!(%error, "drains were not completed; the next pass will"),
        }
    }
}

impl Waiting {
    /// Waits until a lock is in force that was sealed for this caller just now.
    pub(in crate::engine::locks) async fn drained(
        &self,
        pending: Pending,
        resource: ResourceName,
        until: Duration,
    ) -> Result<Acquired, EngineError> {
        let place = self.take_place(pending);
        match self.drain(&place, resource, until).await {
            Ok(Step::Acquired(acquired)) => place.end(Ok(acquired)),
            Ok(Step::Elapsed(Some(why))) | Err(why) => Err(why),
            Ok(_) => Err(EngineError::WaitElapsed { position: None }),
        }
    }

    /// Step 4: asks again whenever somebody says that something is over, and now and then. Whoever asks
    /// puts the lock in force, if nothing keeps it any more. An id that nobody was told is given up with
    /// the place; one that the caller chose goes on draining until its ttl ends.
    pub(super) async fn drain(
        &self,
        place: &WaiterPlace,
        resource: ResourceName,
        until: Duration,
    ) -> Result<Step, EngineError> {
        let clock = &self.runtime.clock;
        let began = clock.elapsed();
        // Each asking is a rerun of the one call, which shows nothing about its caller.
        let item = SealItem { attempt: Attempt::Rerun, ..place.pending.item.clone() };
        let pending = Pending { reentry: true, item, ..place.pending.clone() };
        let mut kept_by = resource;
        loop {
            match seal(&self.reentries, pending.clone()).await {
                Ok(SealVerdict::Again(grant)) => {
                    let took = clock.elapsed().saturating_sub(began);
                    ::metrics::histogram!(metrics::DRAIN_SECONDS).record(took);
                    return Ok(Step::Acquired(Acquired { grant, again: false }));
                }
                Ok(SealVerdict::Drains { resource, .. }) => kept_by = resource,
                Ok(verdict) => return acquired(verdict).map(Step::Acquired),
                // The lock stands in the ledger: asking again will tell.
                Err(error) if error.code().status() >= 500 => {
                    tracing::debug!(%error, "a draining lock could not be asked for");
                }
                Err(error) => return Err(error),
            }
            let left = until.saturating_sub(clock.elapsed());
            if left.is_zero() {
                return Ok(Step::Elapsed(Some(EngineError::Draining(Some(kept_by)))));
            }
            // That it is not in line any more is no news.
            let _ = self.runtime.within(left.min(DRAIN_POLL), place.called()).await;
        }
    }
}
