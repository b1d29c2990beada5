//! How many bytes the bodies of requests may take, all together and of one principal or peer.

use std::sync::Arc;

use fence_core::ErrorCode;
use fencegate_access::Quota;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::peers::{Counted, Held, Shares};
use super::problem::Problem;

/// Bytes for the bodies of all requests under way.
#[derive(Clone)]
pub struct Budget {
    all: Arc<Semaphore>,
    shares: Shares,
}

/// The budget as one principal or peer has it.
#[derive(Clone, Copy)]
pub struct Purse<'b> {
    budget: &'b Budget,
    counted: &'b Counted,
}

/// Bytes that were taken; given back when it is dropped.
pub struct Share {
    all: OwnedSemaphorePermit,
    own: Held,
}

impl Budget {
    /// A budget of so many bytes in all, and for each.
    pub fn new(bytes: usize, each: usize) -> Self {
        let shares = Shares::of(Quota::BodyBytes, each);
        Self { all: Arc::new(Semaphore::new(bytes)), shares }
    }

    /// As they have it.
    pub fn of<'b>(&'b self, counted: &'b Counted) -> Purse<'b> {
        Purse { budget: self, counted }
    }
}

impl Purse<'_> {
    /// The most bytes that there can ever be in it.
    pub fn most(&self) -> usize {
        self.budget.shares.max_for(self.counted)
    }

    /// Takes so many bytes. Only what has arrived is taken, so a sender that dawdles takes no room from others.
    ///
    /// # Errors
    /// `overloaded`, `rate-limited`: there are not so many left.
    pub fn take(&self, bytes: usize) -> Result<Share, Problem> {
        let own = self.budget.shares.take(self.counted, bytes).ok_or_else(|| {
            let why = "nothing was applied: too many bytes are under way";
            self.counted.refused(Quota::BodyBytes.as_str(), why).and_close()
        })?;
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let all = Arc::clone(&self.budget.all).try_acquire_many_owned(permits).map_err(|_| {
            let why = "all bodies together are too large; nothing was applied";
            Problem::new(ErrorCode::Overloaded, why).and_close()
        })?;
        Ok(Share { all, own })
    }
}

impl Share {
    /// Makes one of two shares of one purse.
    pub fn merge(&mut self, more: Self) {
        self.all.merge(more.all);
        self.own.merge(more.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::peers::tests::peers;

    #[test]
    fn one_peer_leaves_room_for_others() {
        let budget = Budget::new(100, 30);
        let ([one, other], nobody) = (&peers(), &Counted::Nobody);
        let mut share = budget.of(one).take(20).unwrap();
        share.merge(budget.of(one).take(10).unwrap());
        let refused = budget.of(one).take(1).err().unwrap();
        assert_eq!(refused.code(), ErrorCode::Overloaded);
        let rest = (budget.of(other).take(30).unwrap(), budget.of(nobody).take(40).unwrap());
        assert!(budget.of(nobody).take(1).is_err(), "all together stay within the budget");
        drop(rest);
        // A refusal for want of room in all takes nothing of the peer's share.
        let most = budget.of(nobody).take(60).unwrap();
        assert!(budget.of(other).take(30).is_err());
        drop((share, most));
        assert!(budget.of(other).take(30).is_ok() && budget.of(one).take(30).is_ok());
    }
}
