//! The numbers of a guard's writes (CC23), and which of them overlapped.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Gives each write a rising number, and knows which writes are under way.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// Numbers of writes of which a copy may still land.
    open: BTreeSet<u64>,
    /// Rises with each write that begins or ends.
    moment: u64,
    under_way: u64,
    /// The moment at which the last write ended.
    last_end: u64,
}

/// One write, from its first attempt to its answer.
#[derive(Debug)]
pub(crate) struct UnderWay {
    numbers: Arc<Numbers>,
    began: u64,
    overlapped: bool,
}

impl Numbers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next number.
    pub(crate) fn next(&self) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.open.insert(number);
        number
    }

    /// No copy of the write with this number will land any more, or it has landed.
    pub(crate) fn settled(&self, number: u64) {
        self.lock().open.remove(&number);
    }

    /// Whether a write with a lower number is under way, or its outcome is unknown.
    pub(crate) fn is_earlier_open(&self, number: u64) -> bool {
        self.lock().open.first().is_some_and(|first| *first < number)
    }

    /// A write begins.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        let mut state = self.lock();
        state.moment += 1;
        state.under_way += 1;
        UnderWay { numbers: self.clone(), began: state.moment, overlapped: state.under_way > 1 }
    }

    /// Waits until no write is under way.
    pub(crate) async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.lock().under_way == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl UnderWay {
    /// Whether another write of the guard was under way at some time since this one began.
    pub(crate) fn overlapped(&self) -> bool {
        let state = self.numbers.lock();
        self.overlapped || state.under_way > 1 || state.last_end > self.began
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.numbers.lock();
        state.moment += 1;
        state.last_end = state.moment;
        state.under_way -= 1;
        drop(state);
        self.numbers.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_overlap_if_both_were_under_way_at_some_time() {
        let numbers = Arc::new(Numbers::default());
        let first = numbers.begin();
        assert!(!first.overlapped());
        let second = numbers.begin();
        assert!(first.overlapped() && second.overlapped());
        drop(first);
        assert!(second.overlapped(), "it ended while this one was under way");
        drop(second);
        let third = numbers.begin();
        assert!(!third.overlapped(), "all others had ended before it began");
        drop(numbers.begin());
        assert!(third.overlapped(), "another came and went");
    }
}
