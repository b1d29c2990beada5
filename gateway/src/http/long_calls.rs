//! Calls that wait: for a lock, for a change, for events. Each keeps its connection meanwhile, so together they get a
//! share of the connections; the rest is for whoever gives a lock back, renews it, or asks how the gateway is.

use std::sync::Arc;

use fence_core::ErrorCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;

/// How many of the connections of a gateway may wait.
#[derive(Clone)]
pub struct LongCalls(Arc<Semaphore>);

/// The right to wait, for as long as it lasts.
pub struct LongCall(#[expect(dead_code, reason = "held, not used")] OwnedSemaphorePermit);

impl LongCalls {
    /// Four fifths of the connections, and one at least.
    pub fn among(connections_max: usize) -> Self {
        Self(Arc::new(Semaphore::new((connections_max - connections_max / 5).max(1))))
    }

    /// Begins a call that waits.
    ///
    /// # Errors
    /// As many wait as may. The connection is closed, so that it keeps no room either.
    pub fn begin(&self) -> Result<LongCall, Problem> {
        let permit = Arc::clone(&self.0).try_acquire_owned().map_err(|_| {
            let why = "too many calls wait at this gateway; ask again, or without waiting";
            Problem::new(ErrorCode::Overloaded, why).and_close()
        })?;
        Ok(LongCall(permit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_connections_is_kept_for_others() {
        for (connections, waiting) in [(1, 1), (4, 4), (5, 4), (60, 48), (10_000, 8_000)] {
            let calls = LongCalls::among(connections);
            let held: Vec<_> = (0..waiting).map(|_| calls.begin().expect("room")).collect();
            assert_eq!(
                calls.begin().err().map(|problem| problem.code()),
                Some(ErrorCode::Overloaded)
            );
            drop(held);
            assert!(calls.begin().is_ok());
        }
    }
}
