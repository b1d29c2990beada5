//! How fast a queue empties, and so whether it is worth joining: an item that cannot come back in time is
//! turned away before anything of it is sent, so that its caller knows for certain that it was not applied.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What was seen of the last batches. One task notes it, every caller reads it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The time that one item takes while more wait than fit into a batch, in nanoseconds; 0 while none do. What a
    /// batch takes that had room for more says nothing of that.
    item_ns: AtomicU64,
    /// The time that a batch takes, in nanoseconds.
    batch_ns: AtomicU64,
}

impl Pace {
    /// A batch of this many items took so long, and was full or had room for others. One without any items took
    /// none of the ledger's time: the queue was emptied into lanes, or by callers who had left.
    pub(super) fn note(&self, items: usize, took: Duration, is_full: bool) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        match u64::try_from(items).unwrap_or(u64::MAX) {
            0 => self.item_ns.store(0, Ordering::Relaxed),
            items if is_full => {
                smooth(&self.batch_ns, took);
                smooth(&self.item_ns, took / items);
            }
            _ => {
                smooth(&self.batch_ns, took);
                self.item_ns.store(0, Ordering::Relaxed);
            }
        }
    }

    /// How long it takes until somebody has an answer who joins behind this many.
    pub(super) fn behind(&self, items: usize) -> Duration {
        let item = Duration::from_nanos(self.item_ns.load(Ordering::Relaxed));
        item.saturating_mul(u32::try_from(items).unwrap_or(u32::MAX))
    }

    /// How long a batch takes.
    pub(super) fn batch(&self) -> Duration {
        Duration::from_nanos(self.batch_ns.load(Ordering::Relaxed))
    }
}

/// Of the last few values, the newest counting most.
fn smooth(value: &AtomicU64, next: u64) {
    let last = value.load(Ordering::Relaxed);
    let smoothed = if last == 0 { next } else { last - last / 4 + next / 4 };
    value.store(smoothed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn nobody_waits_behind_a_queue_that_was_emptied() {
        let pace = Pace::default();
        assert_eq!(pace.behind(1000), Duration::ZERO);
        pace.note(1, 10 * MS, false);
        assert_eq!((pace.behind(1000), pace.batch()), (Duration::ZERO, 10 * MS));
    }

    #[test]
    fn a_queue_that_does_not_empty_tells_how_long_it_takes() {
        let pace = Pace::default();
        (0..20).for_each(|_| pace.note(64, 128 * MS, true));
        let behind = pace.behind(640);
        assert!((1270 * MS..1290 * MS).contains(&behind), "{behind:?}");
        // It was emptied.
        pace.note(3, MS, false);
        assert_eq!(pace.behind(640), Duration::ZERO);
    }

    /// All that waited moved to lanes, say: nothing tells that those who come now would have to wait.
    #[test]
    fn a_batch_without_items_says_that_the_queue_was_emptied() {
        let pace = Pace::default();
        pace.note(64, 64_000 * MS, true);
        pace.note(0, Duration::ZERO, true);
        assert_eq!(pace.behind(1000), Duration::ZERO);
    }
}
