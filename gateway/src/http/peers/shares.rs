//! Counts how much of something each peer holds, up to a share, and forgets peers that hold nothing.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::Peer;

/// The shares of all peers in one thing.
#[derive(Clone)]
pub struct Shares(Arc<Inner>);

struct Inner {
    /// The most that one peer may hold.
    max: usize,
    held: Mutex<HashMap<Peer, usize>>,
}

/// What was taken; given back when it is dropped.
pub struct Held {
    /// `None` if it counts against nobody's share.
    of: Option<(Shares, Peer)>,
    amount: usize,
}

impl Shares {
    /// Shares of so much each.
    pub fn of(max: usize) -> Self {
        Self(Arc::new(Inner { max, held: Mutex::default() }))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Peer, usize>> {
        self.0.held.lock()
    }

    /// The most that a peer may hold; who is not counted has no limit here.
    pub fn max_for(&self, peer: Option<Peer>) -> usize {
        peer.map_or(usize::MAX, |_| self.0.max)
    }

    /// Takes so much; `None` if the peer would hold more than its share.
    pub fn take(&self, peer: Option<Peer>, amount: usize) -> Option<Held> {
        let Some(peer) = peer.filter(|_| amount > 0) else {
            return Some(Held { of: None, amount: 0 });
        };
        let mut held = self.held();
        let now = held.get(&peer).copied().unwrap_or_default();
        let then = now.checked_add(amount).filter(|then| *then <= self.0.max)?;
        held.insert(peer, then);
        Some(Held { of: Some((self.clone(), peer)), amount })
    }

    /// How many peers hold something.
    #[cfg(test)]
    pub(in crate::http) fn holders(&self) -> usize {
        self.held().len()
    }
}

impl Held {
    /// Makes one of two things that one peer holds.
    pub fn merge(&mut self, mut more: Self) {
        if self.of.is_none() {
            std::mem::swap(self, &mut more);
        }
        self.amount += std::mem::take(&mut more.amount);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some((shares, peer)) = self.of.as_ref().filter(|_| self.amount > 0) else { return };
        let mut held = shares.held();
        if let Some(now) = held.get_mut(peer) {
            *now -= self.amount;
            if *now == 0 {
                held.remove(peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_holds_its_share_and_is_forgotten_with_nothing() {
        let shares = Shares::of(10);
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|ip| Peer::of(ip.parse().unwrap()));
        let mut first = shares.take(one, 4).unwrap();
        first.merge(shares.take(one, 6).unwrap());
        assert!(shares.take(one, 1).is_none(), "its share is taken");
        assert!(shares.take(one, usize::MAX).is_none());
        let second = shares.take(other, 10).unwrap();
        let nobody = shares.take(None, 1_000).unwrap();
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
}
