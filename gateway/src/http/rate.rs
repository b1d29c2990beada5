//! The least rate at which bytes must move, so that a slow peer or store does not keep a place from others.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::state::Limits;

/// The windows over which the least rate is taken, and what the first has beyond that.
const WINDOW: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(10);

/// What the other side must send, or take.
pub(super) struct Least {
    /// So many bytes within each window.
    quota: u64,
    window: Duration,
    /// How many of them have moved.
    moved: u64,
    /// How long the rest may be waited for. While nobody waits for the other side, no time passes.
    left: Duration,
}

impl Least {
    /// So many bytes in each second, taken over half a minute; `None` for any.
    pub(super) fn of(bytes_per_second: u64) -> Option<Self> {
        let quota = bytes_per_second.saturating_mul(WINDOW.as_secs());
        (quota > 0).then(|| Self::within(quota, WINDOW, GRACE))
    }

    /// So many bytes within each window, the first of which is longer.
    pub(super) fn within(quota: u64, window: Duration, grace: Duration) -> Self {
        Self { quota, window, moved: 0, left: grace + window }
    }

    /// For how long the other side may be waited for now.
    pub(super) fn left(&self) -> Duration {
        self.left
    }

    /// So much has moved after so long a wait. A window that is full begins anew.
    pub(super) fn note(&mut self, bytes: usize, waited: Duration) {
        self.moved = self.moved.saturating_add(bytes as u64);
        self.left = self.left.saturating_sub(waited);
        if self.moved >= self.quota {
            (self.moved, self.left) = (0, self.window);
        }
    }
}

/// The times within which bytes must move while this side waits for the other one.
pub struct Pace {
    /// Longest stall, if there is a limit beside the least rate.
    idle: Option<Duration>,
    end: Instant,
    rate_min: u64,
    least: Option<Least>,
}

impl Pace {
    /// Of a body that may stall so long, and take so long in all.
    pub(super) fn within(idle: Duration, whole: Duration) -> Self {
        Self { idle: Some(idle), end: Instant::now() + whole, rate_min: 0, least: None }
    }

    /// Of an upload from now on: it may take long in all, but not come too slowly.
    pub(super) fn upload(&mut self, limits: &Limits) {
        *self = Self { idle: self.idle, ..Self::copy(limits) };
    }

    /// Of bytes that go from store to store: as long in all as an upload, and as fast. How long a store is silent in between
    /// is its client's to limit.
    pub fn copy(limits: &Limits) -> Self {
        let rate_min = limits.upload_rate_min;
        let end = Instant::now() + limits.upload_timeout;
        Self { idle: None, end, rate_min, least: Least::of(rate_min) }
    }

    /// Waits for the other side; `None` if that takes too long.
    pub async fn wait<T>(&mut self, step: impl Future<Output = T>) -> Option<T> {
        let began = Instant::now();
        let left = self.least.as_ref().map(Least::left);
        let pause = self.idle.into_iter().chain(left).map(|pause| began + pause);
        let done = timeout_at(pause.fold(self.end, Instant::min), step).await.ok()?;
        if let Some(least) = &mut self.least {
            least.note(0, began.elapsed());
        }
        Some(done)
    }

    /// So many bytes have moved.
    pub fn moved(&mut self, bytes: usize) {
        if let Some(least) = &mut self.least {
            least.note(bytes, Duration::ZERO);
        }
    }

    /// Waits for the last step, in which as many as all these bytes may still move; `None` if that takes too long.
    pub async fn wait_for_all<T>(self, bytes: u64, step: impl Future<Output = T>) -> Option<T> {
        let seconds = bytes.checked_div(self.rate_min).map(Duration::from_secs);
        let pause = seconds.map(|all| all.saturating_add(GRACE + WINDOW));
        let pause = pause.and_then(|pause| Instant::now().checked_add(pause));
        let until = pause.map_or(self.end, |pause| pause.min(self.end));
        timeout_at(until, step).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::timeout;

    use super::*;

    fn limits(upload_rate_min: u64) -> Limits {
        Limits { upload_rate_min, upload_timeout: Duration::from_secs(3600), ..Limits::default() }
    }

    async fn after(seconds: u64) {
        drop(timeout(Duration::from_secs(seconds), pending::<()>()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_waits_while_bytes_move_and_no_longer() {
        let (mut pace, began) = (Pace::copy(&limits(1000)), Instant::now());
        for _ in 0..10 {
            assert!(pace.wait(after(29)).await.is_some());
            pace.moved(30_000);
        }
        // Of both sides together.
        assert!(pace.wait(after(20)).await.is_some());
        assert!(pace.wait(pending::<()>()).await.is_none());
        assert_eq!(began.elapsed().as_secs(), 10 * 29 + 30);
    }

    #[tokio::test(start_paused = true)]
    async fn any_rate_is_good_for_a_copy_until_its_time_is_over() {
        let (mut pace, began) = (Pace::copy(&limits(0)), Instant::now());
        assert!(pace.wait(after(3000)).await.is_some());
        assert!(pace.wait(pending::<()>()).await.is_none());
        assert_eq!(began.elapsed().as_secs(), 3600);
        assert!(pace.wait_for_all(1 << 40, pending::<()>()).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_step_may_take_as_long_as_all_bytes() {
        let began = Instant::now();
        assert!(Pace::copy(&limits(1000)).wait_for_all(60_000, pending::<()>()).await.is_none());
        assert_eq!(began.elapsed().as_secs(), 40 + 60);
        let whole = Pace::copy(&limits(1)).wait_for_all(u64::MAX, pending::<()>()).await;
        assert!(whole.is_none());
        assert_eq!(began.elapsed().as_secs(), 100 + 3600);
        assert!(Pace::copy(&limits(1)).wait_for_all(0, ready(())).await.is_some());
    }

    #[test]
    fn a_window_that_is_full_begins_anew() {
        assert!(Least::of(0).is_none());
        let mut least = Least::of(16 * 1024).unwrap();
        least.note(0, Duration::from_secs(39));
        assert_eq!(least.left(), Duration::from_secs(1));
        least.note(16 * 1024 * 30, Duration::ZERO);
        assert_eq!(least.left(), WINDOW);
        least.note(16 * 1024 * 30 - 1, Duration::from_secs(31));
        assert_eq!(least.left(), Duration::ZERO);
    }
}
