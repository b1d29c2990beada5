//! Calls that wait: for a lock, for a change, for events. Each keeps its connection meanwhile, so together they
//! get a share of the connections; the rest is for callers that release or renew a lock, or ask how the gateway
//! is.

use std::sync::Arc;

use fence_core::ErrorCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::peers::{Held, Peer, Shares};
use super::problem::Problem;

/// The part of the calls that wait that one peer may have.
const PEER_SHARE: usize = 4;

/// How many of the connections of a gateway may wait.
#[derive(Clone)]
pub struct LongCalls {
    all: Arc<Semaphore>,
    shares: Shares,
}

/// The right to wait, for as long as it lasts.
pub struct LongCall(#[expect(dead_code, reason = "held, not used")] (OwnedSemaphorePermit, Held));

impl LongCalls {
    /// Four fifths of the connections, and one at least. Of these a quarter for one peer.
    pub fn among(connections_max: usize) -> Self {
        let calls = (connections_max - connections_max / 5).max(1);
        let shares = Shares::of((calls / PEER_SHARE).max(1));
        Self { all: Arc::new(Semaphore::new(calls)), shares }
    }

    /// Begins a call that waits.
    ///
    /// # Errors
    /// As many wait as may, in all or of this peer. The connection is closed, so that it keeps no room either.
    pub fn begin(&self, peer: Option<Peer>) -> Result<LongCall, Problem> {
        let overloaded = |of: &str| {
            let why =
                format!("too many calls {of} wait at this gateway; ask again, or without waiting");
            Problem::new(ErrorCode::Overloaded, why).and_close()
        };
        let held = self.shares.take(peer, 1).ok_or_else(|| overloaded("from your address"))?;
        let permit = Arc::clone(&self.all).try_acquire_owned();
        Ok(LongCall((permit.map_err(|_| overloaded("of all callers"))?, held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_connections_is_kept_for_others() {
        for (connections, waiting) in [(1, 1), (4, 4), (5, 4), (60, 48), (10_000, 8_000)] {
            let calls = LongCalls::among(connections);
            let held: Vec<_> = (0..waiting).map(|_| calls.begin(None).expect("room")).collect();
            assert_eq!(
                calls.begin(None).err().map(|problem| problem.code()),
                Some(ErrorCode::Overloaded)
            );
            drop(held);
            assert!(calls.begin(None).is_ok());
        }
    }

    #[test]
    fn one_peer_has_a_quarter_of_the_calls_that_wait() {
        let calls = LongCalls::among(100);
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|ip| Peer::of(ip.parse().unwrap()));
        let held: Vec<_> = (0..20).map(|_| calls.begin(one).expect("room")).collect();
        let refused = calls.begin(one).err().map(|problem| problem.code());
        assert_eq!(refused, Some(ErrorCode::Overloaded));
        assert!(calls.begin(other).is_ok());
        drop(held);
        assert!(calls.begin(one).is_ok());
    }
}
