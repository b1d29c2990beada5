//! Counts how much of something each principal or peer holds, up to a share. A principal's record says what it holds; of
//! peers a map does, and forgets who holds nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fencegate_access::Quota;
use parking_lot::Mutex;

use super::{Counted, Peer};
use crate::engine::access::{Holdings, Share};

/// The shares of all in one thing.
#[derive(Clone)]
pub struct Shares(Arc<Inner>);

struct Inner {
    /// What it is, in the record of a principal.
    share: Share,
    /// The most that each may hold whose roles do not say otherwise.
    each: usize,
    peers: Mutex<HashMap<Peer, usize>>,
}

/// What was taken; given back when it is dropped.
pub struct Held {
    /// `None` if it counts against nobody's share.
    of: Option<(Shares, Holder)>,
    amount: usize,
}

enum Holder {
    Peer(Peer),
    Principal(Arc<Holdings>),
}

impl Shares {
    /// Shares of so much each.
    pub fn of(quota: impl Into<Option<Quota>>, each: usize) -> Self {
        Self::in_parts(quota, each, 1)
    }

    /// The same of what is taken in parts of one.
    pub fn in_parts(quota: impl Into<Option<Quota>>, each: usize, parts: usize) -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let share = Share { number, quota: quota.into(), parts };
        Self(Arc::new(Inner { share, each, peers: Mutex::default() }))
    }

    /// The most that somebody may hold; who is not counted has no limit here.
    pub fn max_for(&self, counted: &Counted) -> usize {
        let most = counted.most(self.0.share.quota, self.0.each);
        most.map_or(usize::MAX, |most| most.saturating_mul(self.0.share.parts))
    }

    /// Takes so much; `None` if they would hold more than their share.
    pub fn take(&self, counted: &Counted, amount: usize) -> Option<Held> {
        let holder = match counted {
            _ if amount == 0 => return Some(Held { of: None, amount: 0 }),
            Counted::Nobody => return Some(Held { of: None, amount: 0 }),
            Counted::Peer(peer) => self.peer_takes(*peer, amount).then_some(Holder::Peer(*peer)),
            Counted::Principal(known) => known
                .holdings
                .take(self.0.share, amount, self.max_for(counted))
                .then(|| Holder::Principal(Arc::clone(&known.holdings))),
        };
        Some(Held { of: Some((self.clone(), holder?)), amount })
    }

    fn peer_takes(&self, peer: Peer, amount: usize) -> bool {
        let max = self.max_for(&Counted::Peer(peer));
        let mut held = self.0.peers.lock();
        let now = held.get(&peer).copied().unwrap_or_default();
        let then = now.checked_add(amount).filter(|then| *then <= max);
        then.map(|then| held.insert(peer, then)).is_some()
    }

    fn peer_gives(&self, peer: Peer, amount: usize) {
        let mut held = self.0.peers.lock();
        if let Some(now) = held.get_mut(&peer) {
            *now -= amount;
            if *now == 0 {
                held.remove(&peer);
            }
        }
    }

    /// How many peers hold something.
    #[cfg(test)]
    pub(in crate::http) fn holders(&self) -> usize {
        self.0.peers.lock().len()
    }
}

impl Held {
    /// Makes one of two things that are held by the same.
    pub fn merge(&mut self, mut more: Self) {
        if self.of.is_none() {
            std::mem::swap(self, &mut more);
        }
        self.amount += std::mem::take(&mut more.amount);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match self.of.as_ref().filter(|_| self.amount > 0) {
            None => {}
            Some((shares, Holder::Peer(peer))) => shares.peer_gives(*peer, self.amount),
            Some((shares, Holder::Principal(holdings))) => {
                holdings.give(shares.0.share, self.amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::peers::tests::{Principals, peers};

    #[test]
    fn a_peer_holds_its_share_and_is_forgotten_with_nothing() {
        let shares = Shares::in_parts(Quota::Uploads, 5, 2);
        let [one, other] = &peers();
        let mut first = shares.take(one, 4).unwrap();
        first.merge(shares.take(one, 6).unwrap());
        assert!(shares.take(one, 1).is_none(), "its share is taken");
        assert!(shares.take(one, usize::MAX).is_none());
        let second = shares.take(other, 10).unwrap();
        let nobody = shares.take(&Counted::Nobody, 1_000).unwrap();
        assert_eq!(shares.holders(), 2);
        drop(first);
        assert_eq!(shares.holders(), 1);
        // What began with nothing counts all the same.
        let mut grown = shares.take(one, 0).unwrap();
        grown.merge(shares.take(one, 10).unwrap());
        assert!(shares.take(one, 1).is_none());
        drop((second, grown, nobody));
        assert_eq!(shares.holders(), 0);
        assert!(shares.take(one, 10).is_some());
    }

    #[test]
    fn a_principal_holds_what_its_roles_say() {
        let shares = Shares::of(Quota::Connections, 10);
        let other = Shares::of(Quota::Connections, 10);
        let mut all = Principals::default();
        let (plain, raised) = (all.caller("ann", ""), all.caller("bob", "connections = 12"));
        assert!(shares.take(&plain, 11).is_none(), "as everybody");
        let held = shares.take(&raised, 12).unwrap();
        assert!(shares.take(&raised, 1).is_none());
        assert!(other.take(&raised, 12).is_some(), "one thing is no other");
        assert!(shares.take(&all.caller("bob", "connections = 13"), 1).is_some(), "newer rules");
        assert!(shares.take(&plain, 10).is_some(), "one principal is no other");
        drop(held);
        let mut grown = shares.take(&raised, 0).unwrap();
        grown.merge(shares.take(&raised, 12).unwrap());
        assert!(shares.take(&raised, 1).is_none());
        drop(grown);
        assert!(shares.take(&raised, 12).is_some());
    }
}
