//! Which attempts have no head of an answer yet, and how many were begun: a driver that owns the clock does not
//! move it before both sides agree on what is under way. For tests only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static BEGUN: AtomicU64 = AtomicU64::new(0);
static WAITING: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// How many attempts were begun in this process.
pub fn begun() -> u64 {
    BEGUN.load(Ordering::SeqCst)
}

/// The request ids of those that have neither failed nor the head of an answer.
pub fn waiting() -> Vec<String> {
    locked().clone()
}

fn locked() -> MutexGuard<'static, Vec<String>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attempt that waits for the head of its answer.
pub(crate) struct Waiting(String);

impl Waiting {
    pub(crate) fn begin(request: &reqwest::Request) -> Self {
        let id = request.headers().get("x-request-id");
        let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
        BEGUN.fetch_add(1, Ordering::SeqCst);
        locked().push(id.clone());
        Self(id)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = locked();
        if let Some(place) = waiting.iter().position(|id| *id == self.0) {
            waiting.remove(place);
        }
    }
}
