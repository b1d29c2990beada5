//! Counts how much of something each principal or peer holds, up to a share, and forgets who holds nothing.

use std::collections::HashMap;
use std::sync::Arc;

use fencegate_access::Quota;
use parking_lot::{Mutex, MutexGuard};

use super::{Counted, Holder};

/// The shares of all in one thing.
#[derive(Clone)]
pub struct Shares(Arc<Inner>);

struct Inner {
    /// By which roles say how much it is; none where they say nothing of it.
    quota: Option<Quota>,
    /// How many parts each one has that is counted by parts.
    parts: usize,
    /// The most that each may hold whose roles do not say otherwise.
    each: usize,
    held: Mutex<HashMap<Holder, usize>>,
}

/// What was taken; given back when it is dropped.
pub struct Held {
    /// `None` if it counts against nobody's share.
    of: Option<(Shares, Holder)>,
    amount: usize,
}

impl Shares {
    /// Shares of so much each.
    pub fn of(quota: impl Into<Option<Quota>>, each: usize) -> Self {
        Self::in_parts(quota, each, 1)
    }

    /// The same of what is taken in parts of one.
    pub fn in_parts(quota: impl Into<Option<Quota>>, each: usize, parts: usize) -> Self {
        Self(Arc::new(Inner { quota: quota.into(), parts, each, held: Mutex::default() }))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Holder, usize>> {
        self.0.held.lock()
    }

    /// The most that somebody may hold; who is not counted has no limit here.
    pub fn max_for(&self, counted: &Counted) -> usize {
        let most = counted.most(self.0.quota, self.0.each);
        most.map_or(usize::MAX, |most| most.saturating_mul(self.0.parts))
    }

    /// Takes so much; `None` if they would hold more than their share.
    pub fn take(&self, counted: &Counted, amount: usize) -> Option<Held> {
        let Some(holder) = counted.holder().filter(|_| amount > 0) else {
            return Some(Held { of: None, amount: 0 });
        };
        let max = self.max_for(counted);
        let mut held = self.held();
        let now = held.get(&holder).copied().unwrap_or_default();
        let then = now.checked_add(amount).filter(|then| *then <= max)?;
        held.insert(holder.clone(), then);
        Some(Held { of: Some((self.clone(), holder)), amount })
    }

    /// How many hold something.
    #[cfg(test)]
    pub(in crate::http) fn holders(&self) -> usize {
        self.held().len()
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
        let Some((shares, holder)) = self.of.as_ref().filter(|_| self.amount > 0) else { return };
        let mut held = shares.held();
        if let Some(now) = held.get_mut(holder) {
            *now -= self.amount;
            if *now == 0 {
                held.remove(holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::peers::tests::{peers, principal};

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
        let (plain, raised) = (principal("ann", ""), principal("bob", "connections = 12"));
        assert!(shares.take(&plain, 11).is_none(), "as everybody");
        let held = shares.take(&raised, 12).unwrap();
        assert!(shares.take(&raised, 1).is_none());
        assert!(shares.take(&principal("bob", "connections = 13"), 1).is_some(), "newer rules");
        assert!(shares.take(&plain, 10).is_some(), "one principal is no other");
        drop(held);
        assert_eq!(shares.holders(), 0);
    }
}
