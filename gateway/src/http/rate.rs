//! The least rate at which bytes must move, so that a slow peer does not keep a place from others.

use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

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
