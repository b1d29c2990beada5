//! What an engine says about itself: its id, how long an answer may take, what is under way.

use std::time::Duration;

use fence_core::ports::EventCursor;
use jiff::Timestamp;
use uuid::Uuid;

use crate::engine::{Engine, batch};

/// What an engine says of itself.
#[derive(Debug, Clone)]
pub struct About {
    /// What the ledger knows this gateway by.
    pub gateway: Uuid,
    /// When it was started.
    pub started_at: Timestamp,
    /// How long a caller waits for a verdict at most.
    pub answer_within: Duration,
    /// How long idempotency keys are remembered.
    pub keys_kept: Duration,
    /// Lag of the ledger's own time behind its clock, as of the last pass of this gateway; none before the first.
    pub own_time_lag: Option<Duration>,
    /// The epoch, as far as the ledger says so.
    pub epoch: Option<i64>,
    /// The end of the feed, as far as the ledger says so.
    pub last_event: Option<EventCursor>,
    /// Locks that callers wait for here.
    pub waiters: usize,
    /// Calls that watch a lock.
    pub watchers: usize,
    /// Calls that read events.
    pub event_readers: usize,
    /// Writes on their way to upstreams.
    pub forwards: usize,
}

impl Engine {
    /// What it says of itself. Answers within 100 ms, whatever hangs.
    pub async fn about(&self) -> About {
        let (epoch, last_event) = self.heights().await;
        let inner = &self.inner;
        About {
            gateway: inner.locks.gateway(),
            started_at: inner.started_at,
            answer_within: batch::answer_within(inner.settings.request_timeout),
            keys_kept: self.keys_kept(),
            own_time_lag: inner.own_time.lag(),
            epoch,
            last_event,
            waiters: inner.locks.waiters(),
            watchers: inner.locks.watchers(),
            event_readers: inner.feed.readers(),
            forwards: inner.upstreams.forwards(),
        }
    }

    /// How long idempotency keys are remembered.
    pub fn keys_kept(&self) -> Duration {
        self.inner.agreement.retention().keys
    }
}
