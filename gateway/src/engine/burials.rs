//! How many ids that no lock has may be buried: so many a second, and not many more at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fence_core::ports::Clock;

/// Burials in one second.
pub(super) const BURIALS_PER_SECOND: u32 = 200;

/// A bucket that is filled again as time goes by.
pub(super) struct Burials {
    clock: Arc<dyn Clock>,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    left: f64,
    at: Duration,
}

impl Burials {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let bucket = Bucket { left: f64::from(BURIALS_PER_SECOND), at: clock.elapsed() };
        Self { clock, bucket: Mutex::new(bucket) }
    }

    /// Takes room for one, if there is any.
    pub(super) fn take(&self) -> bool {
        let now = self.clock.elapsed();
        let mut bucket = self.bucket();
        let gone = now.saturating_sub(bucket.at).as_secs_f64();
        let most = f64::from(BURIALS_PER_SECOND);
        bucket.left = (bucket.left + gone * most).min(most);
        bucket.at = now;
        let room = bucket.left >= 1.0;
        if room {
            bucket.left -= 1.0;
        }
        room
    }

    /// Nothing was buried after all.
    pub(super) fn put_back(&self) {
        let mut bucket = self.bucket();
        bucket.left = (bucket.left + 1.0).min(f64::from(BURIALS_PER_SECOND));
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
