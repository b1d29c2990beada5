//! How much memory heads that have not ended may take. Each head gets a little without asking; what it needs
//! beyond that comes from a budget that all connections of a door share.

use crate::http::budget::{Budget, Share};
use crate::http::peers::{Counted, Peer};

/// So much of a head hyper has room for from the beginning.
const FREE: u64 = 8 * 1024;

/// The heads of one connection, one after the other.
pub(in crate::http) struct Heads {
    budget: Budget,
    counted: Counted,
    /// Of the head that is coming in.
    bytes: u64,
    share: Option<Share>,
    ended: u64,
}

impl Heads {
    /// Those of a connection that counts against the share of a peer.
    pub(in crate::http) fn new(budget: Budget, peer: Option<Peer>) -> Self {
        Self { budget, counted: peer.into(), bytes: 0, share: None, ended: 0 }
    }

    /// So many bytes have come; after them as many heads have ended, and another one has begun or not. Says whether
    /// there is room for what is here of it.
    pub(super) fn note(&mut self, bytes: usize, ended: u64, in_head: bool) -> bool {
        if !in_head || ended != self.ended {
            (self.bytes, self.share, self.ended) = (0, None, ended);
        }
        if !in_head {
            return true;
        }
        let before = self.bytes.saturating_sub(FREE);
        self.bytes += bytes as u64;
        let more = self.bytes.saturating_sub(FREE) - before;
        if more == 0 {
            return true;
        }
        match self.budget.of(&self.counted).take(usize::try_from(more).unwrap_or(usize::MAX)) {
            Ok(more) => {
                match &mut self.share {
                    Some(share) => share.merge(more),
                    None => self.share = Some(more),
                }
                true
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_share_a_budget_until_they_end() {
        let budget = Budget::new(1000, usize::MAX);
        let free = usize::try_from(FREE).unwrap();
        let heads = || Heads::new(budget.clone(), None);
        let (mut one, mut other) = (heads(), heads());
        assert!(one.note(free, 0, true) && other.note(free, 0, true));
        assert!(one.note(600, 0, true));
        assert!(!other.note(600, 0, true), "there is no room for both");
        // The first has ended, in the same read as the next began.
        assert!(one.note(600, 1, true));
        let mut third = heads();
        assert!(third.note(free + 1000, 0, true));
        assert!(third.note(1, 1, false), "its body");
        assert!(one.note(free, 1, true));
        drop(one);
        assert!(heads().note(free + 1000, 0, true));
    }
}
