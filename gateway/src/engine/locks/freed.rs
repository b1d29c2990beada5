//! Resources that were released through this gateway a moment ago, while nobody waited for them. Most likely they
//! are still free, so the next grant skips the look.
//!
//! This is only a hint. The seal decides: if there is a holder, the seal finds it as the look would have, and only
//! a number is lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ResourceName;
use fence_core::ports::Clock;
use parking_lot::{Mutex, MutexGuard};

/// How long a hint is good for, at least, and at most twice as long: other gateways grant, too.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// The most hints of one such time. More are not worth their memory.
const HINTS_MAX: usize = 10_000;

/// Where releases leave their hints, and grants take them.
pub(super) struct Freed {
    clock: Arc<dyn Clock>,
    hints: Mutex<Hints>,
}

#[derive(Default)]
struct Hints {
    /// When `new` was begun.
    began: Duration,
    new: HashSet<ResourceName>,
    old: HashSet<ResourceName>,
}

impl Freed {
    /// No hint yet.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, hints: Mutex::default() }
    }

    /// These were given back.
    pub(super) fn note<'a>(&self, resources: impl Iterator<Item = &'a ResourceName>) {
        self.hints().note(resources);
    }

    /// Whether all of these were given back a moment ago. A hint is taken once: whoever asks next looks.
    pub(super) fn take(&self, resources: &[ResourceName]) -> bool {
        self.hints().take(resources)
    }

    fn hints(&self) -> MutexGuard<'_, Hints> {
        let now = self.clock.elapsed();
        let mut hints = self.hints.lock();
        hints.age(now);
        hints
    }
}

impl Hints {
    /// Forgets what is too old by now.
    fn age(&mut self, now: Duration) {
        let age = now.saturating_sub(self.began);
        if age >= 2 * GOOD_FOR {
            *self = Self { began: now, ..Self::default() };
        } else if age >= GOOD_FOR {
            self.old = std::mem::take(&mut self.new);
            self.began += GOOD_FOR;
        }
    }

    fn note<'a>(&mut self, resources: impl Iterator<Item = &'a ResourceName>) {
        let room = HINTS_MAX.saturating_sub(self.new.len());
        self.new.extend(resources.take(room).cloned());
    }

    fn take(&mut self, resources: &[ResourceName]) -> bool {
        let mut all = true;
        for resource in resources {
            // Out of both.
            all &= self.new.remove(resource) | self.old.remove(resource);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<ResourceName> {
        (0..count).map(|n| ResourceName::new(format!("r{n}")).expect("a name")).collect()
    }

    #[test]
    fn a_hint_is_taken_once() {
        let mut hints = Hints::default();
        let names = names(3);
        hints.note(names[..2].iter());
        assert!(hints.take(&names[..1]));
        assert!(!hints.take(&names[..1]), "taken");
        assert!(!hints.take(&names), "one of them only");
        assert!(!hints.take(&names[1..2]), "taken with the others");
    }

    #[test]
    fn a_hint_is_good_for_a_second_or_two() {
        let names = names(1);
        for (begun_ms, later_ms, good) in
            [(0, 0, true), (0, 999, true), (500, 1000, true), (999, 1999, true), (0, 2000, false)]
        {
            let mut hints = Hints::default();
            hints.age(Duration::from_millis(begun_ms));
            hints.note(names.iter());
            hints.age(Duration::from_millis(later_ms));
            assert_eq!(hints.take(&names), good, "{begun_ms} to {later_ms}");
        }
        // However often it is asked for meanwhile.
        let mut hints = Hints::default();
        hints.note(names.iter());
        [1900, 2800].into_iter().for_each(|ms| hints.age(Duration::from_millis(ms)));
        assert!(!hints.take(&names));
    }

    #[test]
    fn hints_are_bounded() {
        let mut hints = Hints::default();
        let names = names(HINTS_MAX + 10);
        hints.note(names.iter());
        assert_eq!(hints.new.len(), HINTS_MAX);
    }
}
