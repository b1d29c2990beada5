//! Traces that ended locks leave in the mint, for people; removed with later mints.

use std::collections::VecDeque;
use std::sync::Arc;

use fence_core::ports::Ended;
use parking_lot::Mutex;

/// Locks that have ended and whose traces in the mint may go with a later mint.
#[derive(Clone, Default)]
pub(super) struct Traces(Arc<Mutex<VecDeque<Ended>>>);

impl Traces {
    /// Traces beyond this many are left behind: nobody decides on them.
    const MAX: usize = 10_000;
    /// How many go with one mint.
    const PER_MINT: usize = 27;

    /// Remembers traces to remove.
    pub(super) fn add(&self, ended: impl IntoIterator<Item = Ended>) {
        let mut traces = self.0.lock();
        let room = Self::MAX.saturating_sub(traces.len());
        traces.extend(ended.into_iter().take(room));
    }

    /// Takes as many as go with one mint.
    pub(super) fn take(&self) -> Vec<Ended> {
        let mut traces = self.0.lock();
        let count = traces.len().min(Self::PER_MINT);
        traces.drain(..count).collect()
    }
}
