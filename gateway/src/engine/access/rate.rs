//! How often each principal may ask at this gateway, whichever credentials it shows: by GCRA, a bucket that leaks without a
//! timer.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::Clock;
use fencegate_access::{Caller, Quota};
use governor::clock::Clock as Reading;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota as Pace, RateLimiter};

/// The rate of one principal.
pub struct Rate {
    pace: Pace,
    limiter: RateLimiter<NotKeyed, InMemoryState, Elapsed, NoOpMiddleware<Nanos>>,
}

impl Rate {
    /// As the quotas of this caller say.
    pub fn of(caller: &Caller, clock: &Arc<dyn Clock>) -> Self {
        let (pace, clock) = (pace(caller), Elapsed(Arc::clone(clock)));
        Self { pace, limiter: RateLimiter::direct_with_clock(pace, clock) }
    }

    /// Whether the quotas of this caller say the same.
    pub(super) fn is_of(&self, caller: &Caller) -> bool {
        self.pace == pace(caller)
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
