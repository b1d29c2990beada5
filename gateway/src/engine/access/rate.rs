//! How often each principal may ask at this gateway, whichever credentials it shows: by GCRA, a bucket that leaks without a
//! timer.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use fence_core::PrincipalName;
use fence_core::ports::Clock;
use fencegate_access::{Caller, Quota};
use governor::clock::Clock as Reading;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota as Pace, RateLimiter};
use parking_lot::Mutex;

/// Principals whose rates are kept. Beyond that those are forgotten that nobody has a connection of; at worst all are, and
/// each begins anew.
const RATES_MAX: usize = 65_536;

/// The rate of one principal.
pub struct Rate {
    pace: Pace,
    limiter: RateLimiter<NotKeyed, InMemoryState, Elapsed, NoOpMiddleware<Nanos>>,
}

impl Rate {
    fn new(pace: Pace, clock: Elapsed) -> Self {
        Self { pace, limiter: RateLimiter::direct_with_clock(pace, clock) }
    }

    /// Counts a request; if it comes too early, says how long it should have waited, and does not count it.
    pub fn take(&self) -> Option<Duration> {
        let early = self.limiter.check().err()?;
        Some(early.wait_time_from(self.limiter.clock().now()))
    }
}

/// How often a caller may ask, by its quotas. More than can be counted is as good as any number.
fn pace(caller: &Caller) -> Pace {
    let of = |quota| {
        let stated = caller.quotas().get(quota).unwrap_or(u64::MAX);
        NonZeroU32::new(u32::try_from(stated).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN)
    };
    Pace::per_second(of(Quota::Rate)).allow_burst(of(Quota::Burst))
}

/// The clock of the engine, as the limiter reads it.
#[derive(Clone)]
struct Elapsed(Arc<dyn Clock>);

impl Reading for Elapsed {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

/// The rates of all principals; cheap to clone.
#[derive(Clone)]
pub(super) struct Rates {
    clock: Elapsed,
    known: Arc<Mutex<HashMap<PrincipalName, Arc<Rate>>>>,
}

impl Rates {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { clock: Elapsed(Arc::clone(clock)), known: Arc::default() }
    }

    /// The rate of a caller's principal. Under rules that say the same it goes on; others begin anew.
    pub(super) fn of(&self, caller: &Caller) -> Arc<Rate> {
        let pace = pace(caller);
        let mut known = self.known.lock();
        if let Some(rate) = known.get(caller.name()).filter(|rate| rate.pace == pace) {
            return Arc::clone(rate);
        }
        if known.len() >= RATES_MAX {
            known.retain(|_, rate| Arc::strong_count(rate) > 1);
        }
        if known.len() >= RATES_MAX {
            known.clear();
        }
        let rate = Arc::new(Rate::new(pace, self.clock.clone()));
        known.insert(caller.name().clone(), Arc::clone(&rate));
        rate
    }
}

#[cfg(test)]
mod tests {
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
        let rates = Rates::new(&(Arc::clone(&time) as Arc<dyn Clock>));
        let rate = rates.of(&caller("rate = 10\nburst = 3"));
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
        let rates = Rates::new(&(Arc::new(ByHand::default()) as Arc<dyn Clock>));
        let few = caller("rate = 1\nburst = 1");
        assert_eq!(rates.of(&few).take(), None);
        assert!(rates.of(&few).take().is_some(), "by another credential, or newer rules");
        let more = caller("rate = 1\nburst = 2");
        assert_eq!(rates.of(&more).take(), None, "other rules begin anew");
    }
}
