//! How often each principal may ask at this gateway, whichever credentials it shows: by GCRA, a bucket that leaks without a
//! timer.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use fence_core::PrincipalName;
use fence_core::ports::Clock;
use fencegate_access::{Caller, Quotas};
use governor::clock::Clock as Reading;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;

/// Principals whose rates are kept. Beyond that those are forgotten that nobody has a connection of; at worst all are, and
/// each begins anew.
const RATES_MAX: usize = 65_536;

/// The rate of one principal.
pub struct Rate {
    rate: u32,
    burst: u32,
    limiter: RateLimiter<NotKeyed, InMemoryState, Elapsed, NoOpMiddleware<Nanos>>,
}

impl Rate {
    fn new(quotas: &Quotas, clock: Elapsed) -> Self {
        let Quotas { rate, burst, .. } = *quotas;
        let at_least_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(at_least_one(rate)).allow_burst(at_least_one(burst));
        Self { rate, burst, limiter: RateLimiter::direct_with_clock(quota, clock) }
    }

    /// Counts a request; if it comes too early, says how long it should have waited, and does not count it.
    pub fn take(&self) -> Option<Duration> {
        let early = self.limiter.check().err()?;
        Some(early.wait_time_from(self.limiter.clock().now()))
    }
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
        let quotas = caller.quotas();
        let mut known = self.known.lock();
        let is_same = |rate: &&Arc<Rate>| (rate.rate, rate.burst) == (quotas.rate, quotas.burst);
        if let Some(rate) = known.get(caller.name()).filter(is_same) {
            return Arc::clone(rate);
        }
        if known.len() >= RATES_MAX {
            known.retain(|_, rate| Arc::strong_count(rate) > 1);
        }
        if known.len() >= RATES_MAX {
            known.clear();
        }
        let rate = Arc::new(Rate::new(quotas, self.clock.clone()));
        known.insert(caller.name().clone(), Arc::clone(&rate));
        rate
    }
}
