//! What a gateway knows of each principal, whichever credentials it shows and under whichever rules: how often it may ask,
//! and what it holds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use fence_core::PrincipalName;
use fence_core::ports::{Clock, Stock};
use fencegate_access::{Caller, Quota};
use parking_lot::Mutex;

use super::Rate;
use super::spent::Spent;

/// Principals that are kept. Beyond that those are forgotten that nobody has a connection of; at worst all are, and each
/// begins anew.
const PRINCIPALS_MAX: usize = 65_536;

/// Something that all have shares of.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Tells it from all others.
    pub number: usize,
    /// By which roles say how much it is; none where they say nothing of it.
    pub quota: Option<Quota>,
    /// How many parts each one has that is counted by parts.
    pub parts: usize,
}

/// What a principal holds of all that it has a share of, a dozen at most, and how often it has come.
#[derive(Default)]
pub struct Holdings {
    held: Mutex<Vec<(Share, usize)>>,
    requests: AtomicU64,
    refused: AtomicU64,
    /// How many requests had come when its stock was counted last.
    counted_at: AtomicU64,
    stock: [AtomicI64; STOCKS.len()],
    /// The time of its questions of the ledger.
    pub questions: Spent,
    /// The events of its streams.
    pub events: Spent,
    /// One of its streams at a time reads on: all others would keep the ledger from everybody else.
    pub reading: tokio::sync::Mutex<()>,
    /// What it was refused of what asking again does not help.
    pub refusals: Spent,
}

/// What a principal holds, and how often it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Who.
    pub principal: PrincipalName,
    /// How many requests have come.
    pub requests: u64,
    /// How many were beyond a share.
    pub refused: u64,
    /// How much it holds of what.
    pub held: BTreeMap<&'static str, u64>,
}

impl Holdings {
    /// Counts a request.
    pub fn comes(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that is beyond a share.
    pub fn is_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How much it has in the ledger of what is under this quota, as it was counted last; 0 until then, and of what is not of
    /// the ledger.
    pub fn stock(&self, quota: Quota) -> i64 {
        let at = STOCKS.iter().position(|of| *of == quota);
        at.map_or(0, |at| self.stock[at].load(Ordering::Relaxed))
    }

    /// What it has was counted.
    pub fn has(&self, Stock { locks, resources, keys, bytes }: Stock) {
        for (of, amount) in self.stock.iter().zip([locks, resources, keys, bytes]) {
            of.store(amount, Ordering::Relaxed);
        }
    }

    /// Whether requests have come since this was asked last.
    fn came(&self) -> bool {
        let requests = self.requests.load(Ordering::Relaxed);
        self.counted_at.swap(requests, Ordering::Relaxed) != requests
    }

    /// How much it holds of what roles say something of.
    fn held(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        for (share, held) in self.held.lock().iter().filter(|(_, held)| *held > 0) {
            if let Some(quota) = share.quota {
                *all.entry(quota.as_str()).or_default() += held.div_ceil(share.parts) as u64;
            }
        }
        let stock = |quota: Quota| self.stock(quota).max(0).unsigned_abs();
        let stocks = STOCKS.map(|quota| (quota.as_str(), stock(quota)));
        all.extend(stocks.into_iter().filter(|(_, amount)| *amount > 0));
        all
    }

    /// Takes so much of something; says whether that is within the most that it may hold of it.
    pub fn take(&self, of: Share, amount: usize, most: usize) -> bool {
        let mut held = self.held.lock();
        let at = held.iter().position(|(share, _)| share.number == of.number);
        let now = at.map_or(0, |at| held[at].1);
        let Some(then) = now.checked_add(amount).filter(|then| *then <= most) else { return false };
        match at {
            Some(at) => held[at].1 = then,
            None => held.push((of, then)),
        }
        true
    }

    /// Gives so much of it back.
    pub fn give(&self, of: Share, amount: usize) {
        let mut held = self.held.lock();
        let mut all = held.iter_mut();
        if let Some((_, now)) = all.find(|(share, _)| share.number == of.number) {
            *now -= amount;
        }
    }
}

/// The quotas of what is in the ledger, in the order of [`Stock`].
const STOCKS: [Quota; 4] = [Quota::Locks, Quota::NewResources, Quota::Keys, Quota::Bytes];

/// One principal.
struct Principal {
    rate: Arc<Rate>,
    holdings: Arc<Holdings>,
}

impl Principal {
    fn is_somewhere(&self) -> bool {
        Arc::strong_count(&self.rate) > 1 || Arc::strong_count(&self.holdings) > 1
    }
}

/// All of them; cheap to clone.
#[derive(Clone)]
pub(super) struct Principals {
    clock: Arc<dyn Clock>,
    known: Arc<Mutex<HashMap<PrincipalName, Principal>>>,
}

impl Principals {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { clock: Arc::clone(clock), known: Arc::default() }
    }

    /// The rate and the holdings of a caller's principal. Under rules that say the same its rate goes on; others begin
    /// anew. What it holds it holds under all.
    pub(super) fn of(&self, caller: &Caller) -> (Arc<Rate>, Arc<Holdings>) {
        let mut known = self.known.lock();
        if known.len() >= PRINCIPALS_MAX && !known.contains_key(caller.name()) {
            known.retain(|_, principal| principal.is_somewhere());
            if known.len() >= PRINCIPALS_MAX {
                known.clear();
            }
        }
        let anew = || Arc::new(Rate::of(caller, &self.clock));
        let principal = known
            .entry(caller.name().clone())
            .or_insert_with(|| Principal { rate: anew(), holdings: Arc::default() });
        if !principal.rate.is_of(caller) {
            principal.rate = anew();
        }
        (Arc::clone(&principal.rate), Arc::clone(&principal.holdings))
    }

    /// Those of whom requests have come since this was asked last.
    pub(super) fn came(&self) -> Vec<(PrincipalName, Arc<Holdings>)> {
        let known = self.known.lock();
        let came = known.iter().filter(|(_, principal)| principal.holdings.came());
        came.map(|(name, principal)| (name.clone(), Arc::clone(&principal.holdings))).collect()
    }

    /// What the next of them hold, in the order of their names.
    pub(super) fn usage(&self, after: Option<&PrincipalName>, limit: usize) -> Vec<Usage> {
        let known = self.known.lock();
        let mut names: Vec<_> =
            known.keys().filter(|name| after.is_none_or(|it| *name > it)).collect();
        names.sort_unstable();
        names.truncate(limit);
        let usage = |name: &PrincipalName| {
            let holdings = &known[name].holdings;
            Usage {
                principal: name.clone(),
                requests: holdings.requests.load(Ordering::Relaxed),
                refused: holdings.refused.load(Ordering::Relaxed),
                held: holdings.held(),
            }
        };
        names.into_iter().map(usage).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use fencegate_access::{Identity, Rules};
    use jiff::Timestamp;

    use super::*;

    /// A clock that goes on when the test says so.
    #[derive(Default)]
    struct ByHand(Mutex<Duration>);

    #[async_trait]
    impl Clock for ByHand {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn elapsed(&self) -> Duration {
            *self.0.lock()
        }

        async fn sleep(&self, _: Duration) {}
    }

    impl Principals {
        fn rate_of(&self, caller: &Caller) -> Arc<Rate> {
            self.of(caller).0
        }
    }

    fn caller(quotas: &str) -> Caller {
        let rules = format!(
            "[[roles]]\nname = \"r\"\nallow = [\"read\"]\nresources = [\"*\"]\n{quotas}\n\
             [[principals]]\nname = \"ann\"\nroles = [\"r\"]\nmatch = {{ unix_uid = 1 }}\n"
        );
        let rules = Rules::parse(&rules).expect("rules");
        rules.caller(&Identity::Unix { uid: 1, gid: 1 }, Timestamp::UNIX_EPOCH).expect("ann")
    }

    #[test]
    fn a_burst_is_let_through_and_then_the_rate() {
        let time = Arc::new(ByHand::default());
        let principals = Principals::new(&(Arc::clone(&time) as Arc<dyn Clock>));
        let rate = principals.rate_of(&caller("rate = 10\nburst = 3"));
        for _ in 0..3 {
            assert_eq!(rate.take(), None);
        }
        assert_eq!(rate.take(), Some(Duration::from_millis(100)));
        *time.0.lock() += Duration::from_millis(100);
        assert_eq!(rate.take(), None, "what was refused was not counted");
        assert!(rate.take().is_some());
        *time.0.lock() += Duration::from_secs(60);
        assert_eq!(std::iter::from_fn(|| rate.take().is_none().then_some(())).count(), 3);
    }

    #[test]
    fn a_rate_goes_on_under_rules_that_say_the_same() {
        let principals = Principals::new(&(Arc::new(ByHand::default()) as Arc<dyn Clock>));
        let few = caller("rate = 1\nburst = 1");
        assert_eq!(principals.rate_of(&few).take(), None);
        assert!(principals.rate_of(&few).take().is_some(), "by another credential, or newer rules");
        let more = caller("rate = 1\nburst = 2");
        assert_eq!(principals.rate_of(&more).take(), None, "other rules begin anew");
    }

    #[test]
    fn what_is_held_is_held_under_all_rules() {
        let principals = Principals::new(&(Arc::new(ByHand::default()) as Arc<dyn Clock>));
        let (_, held) = principals.of(&caller("rate = 1"));
        let share = |number| Share { number, quota: Some(Quota::Uploads), parts: 2 };
        let (one, two) = (share(1), share(2));
        assert!(held.take(one, 5, 10) && held.take(two, 10, 10), "of each thing by itself");
        let (_, same) = principals.of(&caller("rate = 2"));
        assert!(!same.take(one, 6, 10) && !same.take(one, usize::MAX, 10));
        assert!(same.take(one, 6, 11), "newer rules say how much it may be");
        let usage = principals.usage(None, 9);
        assert_eq!(usage[0].held, BTreeMap::from([("uploads", 11)]), "11 and 10 halves, up");
        assert!(principals.usage(Some(&usage[0].principal), 9).is_empty());
        held.give(one, 11);
        assert!(same.take(one, 10, 10));
    }
}
