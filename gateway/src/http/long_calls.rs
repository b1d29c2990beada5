//! Calls that wait: for a lock, for a change, for events. Each keeps its connection meanwhile, so together they
//! get a share of the connections; the rest is for callers that release or renew a lock, or ask how the gateway
//! is.

use std::sync::Arc;

use fence_core::ErrorCode;
use fencegate_access::Quota;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::peers::{Counted, Held, Shares};
use super::problem::Problem;

/// The part of the calls that wait that one principal or peer may have.
const SHARE: usize = 4;

/// How many of the connections of a gateway may wait.
#[derive(Clone)]
pub struct LongCalls {
    all: Arc<Semaphore>,
    shares: Shares,
    streams: Shares,
}

/// The right to wait, for as long as it lasts.
pub struct LongCall(
    #[expect(dead_code, reason = "held, not used")] (OwnedSemaphorePermit, Held, Option<Held>),
);

impl LongCalls {
    /// Four fifths of the connections, and one at least. Of these a quarter for each
    /// principal or peer.
    pub fn among(connections_max: usize) -> Self {
        let calls = (connections_max - connections_max / 5).max(1);
        let shares = Shares::of(None, (calls / SHARE).max(1));
        let streams = Shares::of(Quota::Streams, usize::MAX);
        Self { all: Arc::new(Semaphore::new(calls)), shares, streams }
    }

    /// Begins a call that waits for its turn.
    ///
    /// # Errors
    /// As many wait as may, in all or of this principal or peer. The connection is closed, so that it keeps no room
    /// either.
    pub fn begin(&self, counted: &Counted) -> Result<LongCall, Problem> {
        self.enter(counted, None)
    }

    /// Begins a stream, or a call that waits for news: of these a principal has a quota.
    ///
    /// # Errors
    /// The same.
    pub fn begin_stream(&self, counted: &Counted) -> Result<LongCall, Problem> {
        let stream = self.streams.take(counted, 1).ok_or_else(|| {
            let why = "as many streams and calls that wait for news are open as may be";
            counted.refused(Quota::Streams.as_str(), why).and_close()
        })?;
        self.enter(counted, Some(stream))
    }

    fn enter(&self, counted: &Counted, stream: Option<Held>) -> Result<LongCall, Problem> {
        let held = self.shares.take(counted, 1).ok_or_else(|| {
            let why = "ask again, or without waiting: too many calls wait at this gateway";
            counted.refused("long_calls", why).and_close()
        })?;
        let permit = Arc::clone(&self.all).try_acquire_owned().map_err(|_| {
            let why =
                "too many calls of all callers wait at this gateway; ask again, or without waiting";
            Problem::new(ErrorCode::Overloaded, why).and_close()
        })?;
        Ok(LongCall((permit, held, stream)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::peers::tests::{Principals, peers};

    #[test]
    fn a_fifth_of_the_connections_is_kept_for_others() {
        for (connections, waiting) in [(1, 1), (4, 4), (5, 4), (60, 48), (10_000, 8_000)] {
            let calls = LongCalls::among(connections);
            let held: Vec<_> =
                (0..waiting).map(|_| calls.begin(&Counted::Nobody).expect("room")).collect();
            assert_eq!(
                calls.begin(&Counted::Nobody).err().map(|problem| problem.code()),
                Some(ErrorCode::Overloaded)
            );
            drop(held);
            assert!(calls.begin(&Counted::Nobody).is_ok());
        }
    }

    #[test]
    fn one_has_a_quarter_of_the_calls_that_wait() {
        let calls = LongCalls::among(100);
        let [one, other] = &peers();
        let held: Vec<_> = (0..20).map(|_| calls.begin(one).expect("room")).collect();
        let refused = calls.begin(one).err().map(|problem| problem.code());
        assert_eq!(refused, Some(ErrorCode::Overloaded));
        assert!(calls.begin(other).is_ok());
        drop(held);
        assert!(calls.begin(one).is_ok());
    }

    #[test]
    fn a_principal_has_so_many_streams_and_may_wait_for_locks_besides() {
        let calls = LongCalls::among(100);
        let few = Principals::default().caller("ann", "streams = 1");
        let stream = calls.begin_stream(&few).expect("room");
        let refused = calls.begin_stream(&few).err().map(|problem| problem.code());
        assert_eq!(refused, Some(ErrorCode::RateLimited));
        assert!(calls.begin(&few).is_ok());
        drop(stream);
        assert!(calls.begin_stream(&few).is_ok());
    }
}
