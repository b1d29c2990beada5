//! Gives locks back, and buries ids whose grant may still be on its way (CC18, CC43).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::{ErrorCode, LockId, ResourceName};
use futures::FutureExt as _;
use reqwest::Method;
use tokio::runtime::Handle;

use crate::client::Inner;
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::hooks::Event;
use crate::machine::backoff::Backoff;
use crate::transport::answer::Reply;
use crate::transport::nothing;
use crate::transport::request::{Request, RequestIds};

/// How long the holder waits for its release to be answered.
pub(crate) const AWAITED: Duration = Duration::from_secs(5);
/// A lock that was not given back is over this long after its ttl, at the latest.
const AFTER_TTL_MS: u64 = 60_000;
/// The longest pause between two attempts that nobody waits for.
const PAUSE_MS: u64 = 30_000;

/// An id to be given back, whether or not a lock was granted under it.
#[derive(Clone)]
pub(crate) struct Burial {
    pub(crate) inner: Arc<Inner>,
    pub(crate) id: LockId,
    pub(crate) resources: Vec<ResourceName>,
    /// When the lock is over by itself; `None`: never, so that nobody ever stops asking.
    pub(crate) ttl_ms: Option<u64>,
    /// Where it goes on, whoever lets go of it: the guard may be dropped in a thread without a runtime.
    pub(crate) runtime: Handle,
}

impl Burial {
    /// Gives it back, and waits for that up to `within`; then it goes on in the background, so that a caller that
    /// is dropped changes nothing.
    ///
    /// Gives `true` once it is answered: nothing of the id will ever take effect any more.
    pub(crate) async fn awaited(self, within: Duration) -> bool {
        let (inner, runtime) = (self.inner.clone(), self.runtime.clone());
        let going_on = inner.background.spawn_on(self.until_answered(), &runtime);
        matches!(tokio::time::timeout(within, going_on).await, Ok(Ok(true)))
    }

    /// The same, without waiting.
    pub(crate) fn in_background(self) {
        let (inner, runtime) = (self.inner.clone(), self.runtime.clone());
        drop(inner.background.spawn_on(self.until_answered(), &runtime));
    }

    /// Asks until a 2xx says that the id is over, or a gateway that the lock is not ours.
    async fn until_answered(self) -> bool {
        let inner = &self.inner;
        let (began_ms, mut ids, mut backoff) = (now_ms(), RequestIds::new(), Backoff::default());
        let until_ms = self.ttl_ms.map(|ttl_ms| began_ms.saturating_add(ttl_ms + AFTER_TTL_MS));
        loop {
            let reply = self.attempt(&ids.next()).await;
            if matches!(reply, Reply::Done(_)) {
                return true;
            }
            if ids.attempts() == 1 {
                let (resources, detail) = (self.resources.clone(), reply.summary());
                inner.hooks.tell(&Event::ReleaseFailed { resources, detail });
            }
            // Another principal's, such as a successor's: it is not ours to give back, and never will be.
            if reply.is_problem(ErrorCode::LockNotFound) {
                return false;
            }
            let now = now_ms();
            if until_ms.is_some_and(|until_ms| until_ms <= now) || inner.closed.is_cancelled() {
                return false;
            }
            // The longer nobody answers, the less often is asked.
            let pause_ms = backoff.next(draw(), reply.floor_ms(), PAUSE_MS).unwrap_or(PAUSE_MS);
            let patient_ms = ((now - began_ms) / 8).min(PAUSE_MS);
            tokio::select! {
                () = sleep_until_ms(now + pause_ms.max(patient_ms).max(10)) => {}
                () = inner.closed.cancelled() => return false,
            }
        }
    }

    /// One attempt. A credential that panics is an attempt that failed.
    async fn attempt(&self, id: &str) -> Reply {
        let request = Request::new(Method::DELETE, format!("/locks/{}", self.id));
        let attempt = self.inner.transport.attempt(&request, id);
        let attempt = AssertUnwindSafe(attempt).catch_unwind().await;
        attempt.unwrap_or_else(|_| Reply::Nothing(nothing(false, false, "a panic")))
    }
}
