//! How many bytes the bodies of requests may take, all together and of one peer.

use std::sync::Arc;

use fence_core::ErrorCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::peers::{Held, Peer, Shares};
use super::problem::Problem;

/// Bytes for the bodies of all requests under way.
#[derive(Clone)]
pub struct Budget {
    all: Arc<Semaphore>,
    shares: Shares,
}

/// The budget as one peer has it.
#[derive(Clone, Copy)]
pub struct Purse<'b> {
    budget: &'b Budget,
    peer: Option<Peer>,
}

/// Bytes that were taken; given back when it is dropped.
pub struct Share {
    all: OwnedSemaphorePermit,
    of_peer: Held,
}

impl Budget {
    /// A budget of so many bytes in all, and for one peer.
    pub fn new(bytes: usize, of_one_peer: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(bytes)), shares: Shares::of(of_one_peer) }
    }

    /// As this peer has it.
    pub fn of(&self, peer: Option<Peer>) -> Purse<'_> {
        Purse { budget: self, peer }
    }
}

impl Purse<'_> {
    /// The most bytes that there can ever be in it.
    pub fn most(&self) -> usize {
        self.budget.shares.max_for(self.peer)
    }

    /// Takes so many bytes. Only what has arrived is taken, so a sender that dawdles takes no room from others.
    ///
    /// # Errors
    /// `overloaded`: there are not so many left.
    pub fn take(&self, bytes: usize) -> Result<Share, Problem> {
        let overloaded = |which: &str| {
            let why = format!("{which} together are too large; nothing was applied");
            Problem::new(ErrorCode::Overloaded, why).and_close()
        };
        let of_peer = self.budget.shares.take(self.peer, bytes);
        let of_peer = of_peer.ok_or_else(|| overloaded("all bodies from your address"))?;
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let all = Arc::clone(&self.budget.all).try_acquire_many_owned(permits);
        Ok(Share { all: all.map_err(|_| overloaded("all bodies"))?, of_peer })
    }
}

impl Share {
    /// Makes one of two shares of one purse.
    pub fn merge(&mut self, more: Self) {
        self.all.merge(more.all);
        self.of_peer.merge(more.of_peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_leaves_room_for_others() {
        let budget = Budget::new(100, 30);
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|ip| Peer::of(ip.parse().unwrap()));
        let mut share = budget.of(one).take(20).unwrap();
        share.merge(budget.of(one).take(10).unwrap());
        let refused = budget.of(one).take(1).err().unwrap();
        assert_eq!(refused.code(), ErrorCode::Overloaded);
        let rest = (budget.of(other).take(30).unwrap(), budget.of(None).take(40).unwrap());
        assert!(budget.of(None).take(1).is_err(), "all together stay within the budget");
        drop(rest);
        // A refusal for want of room in all takes nothing of the peer's share.
        let most = budget.of(None).take(60).unwrap();
        assert!(budget.of(other).take(30).is_err());
        drop((share, most));
        assert!(budget.of(other).take(30).is_ok() && budget.of(one).take(30).is_ok());
    }
}
