//! How many attempts were begun, and how many of them have no head of an answer yet: a driver that owns the
//! clock does not move it before both sides agree on what is under way. For tests only.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

static BEGUN: AtomicU64 = AtomicU64::new(0);
static WAITING: AtomicI64 = AtomicI64::new(0);

/// How many attempts were begun in this process.
pub fn begun() -> u64 {
    BEGUN.load(Ordering::SeqCst)
}

/// How many have neither failed nor the head of an answer.
pub fn waiting() -> i64 {
    WAITING.load(Ordering::SeqCst)
}

/// An attempt that waits for the head of its answer.
pub(crate) struct Waiting;

impl Waiting {
    pub(crate) fn begin() -> Self {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        WAITING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::SeqCst);
    }
}
