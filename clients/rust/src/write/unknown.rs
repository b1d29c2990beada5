//! An outcome that is unknown, and how to find it out (CC24, CC25).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::json::{Operation, OperationOutcome};
use fencegate_wire::{OperationId, ResourceName};

use super::sending::{Known, Writing};
use crate::client::Inner;
use crate::clock::{ms, now_ms, sleep_until_ms};
use crate::error::{Details, Error};
use crate::guard;
use crate::reading::views::operation_of_id;

/// A write that may have taken effect or not. Nobody knows by now; [`OutcomeUnknown::resolve`] finds out.
pub struct OutcomeUnknown {
    resource: ResourceName,
    operation: Option<OperationId>,
    details: Details,
    how: How,
}

enum How {
    /// A write of objects, which can be sent again under its key.
    Write(Arc<Writing>),
    /// A request to an upstream, which is never sent again.
    Forward(Arc<Inner>),
}

/// What became of a write whose outcome was unknown.
#[derive(Debug)]
#[non_exhaustive]
pub enum Settled {
    /// It took effect, once.
    Applied {
        /// Its operation, if the gateway named it.
        operation: Option<OperationId>,
        /// The version of the resource that it became; absent for a delete of nothing.
        version: Option<i64>,
    },
    /// It took no effect and never will, for this reason.
    NotApplied(Error),
}

impl fmt::Debug for OutcomeUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutcomeUnknown")
            .field("resource", &self.resource)
            .field("operation", &self.operation)
            .field("details", &self.details)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for OutcomeUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the outcome of the write on {} is unknown: {}", self.resource, self.details)
    }
}

impl OutcomeUnknown {
    pub(super) fn of_write(
        writing: Arc<Writing>,
        operation: Option<OperationId>,
        details: Details,
    ) -> Self {
        let resource = writing.prepared.resource.clone();
        Self { resource, operation, details, how: How::Write(writing) }
    }

    pub(super) fn of_forward(
        inner: Arc<Inner>,
        resource: ResourceName,
        operation: Option<OperationId>,
        details: Details,
    ) -> Self {
        Self { resource, operation, details, how: How::Forward(inner) }
    }

    /// Where.
    pub fn resource(&self) -> &ResourceName {
        &self.resource
    }

    /// The idempotency key; a request to an upstream has none.
    pub fn key(&self) -> Option<&str> {
        match &self.how {
            How::Write(writing) => Some(&writing.prepared.key),
            How::Forward(_) => None,
        }
    }

    /// The operation, if a gateway named it.
    pub fn operation(&self) -> Option<OperationId> {
        self.operation
    }

    /// What came last.
    pub fn details(&self) -> &Details {
        &self.details
    }

    /// Finds out what became of it, for up to `within`: looks it up, and sends it again under its key and
    /// number as long as the gateway surely knows the key. A request to an upstream is only looked up.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: it is unknown still.
    pub async fn resolve(&self, within: Duration) -> Result<Settled, Error> {
        match &self.how {
            How::Write(writing) => writing.go_on(ms(within)).await.map(Settled::from),
            How::Forward(inner) => self.look_up(inner, ms(within)).await,
        }
    }

    /// Gives the lock back, so that no copy of the write takes effect any more, and asks then: the answer is
    /// final (CC25). The guard is released by this, whatever comes of it.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: no gateway could be asked; or it went to an upstream, which a release does
    /// not reach.
    pub async fn abandon(&self, within: Duration) -> Result<Settled, Error> {
        let How::Write(writing) = &self.how else {
            return self.resolve(within).await;
        };
        match guard::bury(&writing.held, within).await {
            true => writing.ask_finally().await.map(Settled::from).ok_or_else(|| self.still()),
            false => Err(self.still()),
        }
    }

    async fn look_up(&self, inner: &Inner, within_ms: u64) -> Result<Settled, Error> {
        let until_ms = now_ms().saturating_add(within_ms);
        let Some(id) = self.operation else { return Err(self.still()) };
        let mut pause_ms = 100;
        loop {
            if let Ok(Some(found)) = operation_of_id(inner, id, until_ms).await
                && let Some(settled) = Settled::of_forward(found)
            {
                return Ok(settled);
            }
            let now = now_ms();
            if now + pause_ms >= until_ms {
                return Err(self.still());
            }
            sleep_until_ms(now + pause_ms).await;
            pause_ms = (pause_ms * 2).min(2_000);
        }
    }

    fn still(&self) -> Error {
        let how = match &self.how {
            How::Write(writing) => How::Write(writing.clone()),
            How::Forward(inner) => How::Forward(inner.clone()),
        };
        let (resource, operation) = (self.resource.clone(), self.operation);
        let details = self.details.clone();
        Error::OutcomeUnknown(Box::new(Self { resource, operation, details, how }))
    }
}

impl From<Known> for Settled {
    fn from(known: Known) -> Self {
        match known {
            Known::Applied { operation, version } => Self::Applied { operation, version },
            Known::NotApplied(error) => Self::NotApplied(error),
        }
    }
}

impl Settled {
    /// What the record of a forwarded request decides, if it does.
    fn of_forward(found: Operation) -> Option<Self> {
        match found.outcome.known()? {
            OperationOutcome::Applied => {
                Some(Self::Applied { operation: Some(found.operation), version: found.version })
            }
            OperationOutcome::NotApplied => {
                let text = "the gateway's record says that it took no effect";
                Some(Self::NotApplied(Error::Unavailable(Details::local(text))))
            }
            OperationOutcome::Unknown => None,
        }
    }
}
