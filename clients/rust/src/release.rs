//! Gives locks back, and buries ids whose grant may still be on its way (CC18, CC43).

use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::{LockId, ResourceName};
use reqwest::Method;

use crate::client::Inner;
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::hooks::Event;
use crate::machine::backoff::Backoff;
use crate::transport::answer::Reply;
use crate::transport::request::{Request, RequestIds};

/// How long the holder waits for its release to be answered.
pub(crate) const AWAITED: Duration = Duration::from_secs(5);
/// For how long it goes on after that. A lock with a ttl is over by then, whatever became of the release.
const GOES_ON_MS: u64 = 15 * 60_000;
/// The longest pause between two attempts that nobody waits for.
const PAUSE_MS: u64 = 30_000;

/// Gives the lock back. Until a gateway has answered, or for as long as the caller waits: then in the
/// background, so that a caller that is dropped changes nothing.
///
/// Gives `true` once it is answered: nothing of the id will ever take effect any more.
pub(crate) async fn release(
    inner: &Arc<Inner>,
    id: LockId,
    resources: Vec<ResourceName>,
    within: Duration,
) -> bool {
    let going_on = inner.background.spawn(until_answered(inner.clone(), id, resources));
    matches!(tokio::time::timeout(within, going_on).await, Ok(Ok(true)))
}

/// The same, without waiting. Outside of a runtime nothing is sent: the lock runs out by itself.
pub(crate) fn in_background(inner: &Arc<Inner>, id: LockId, resources: Vec<ResourceName>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let task = until_answered(inner.clone(), id, resources);
        inner.background.spawn_on(task, &runtime);
    }
}

/// Asks until a 2xx says that the id is over.
async fn until_answered(inner: Arc<Inner>, id: LockId, resources: Vec<ResourceName>) -> bool {
    let request = Request::new(Method::DELETE, format!("/locks/{id}"));
    let (began_ms, mut ids, mut backoff) = (now_ms(), RequestIds::new(), Backoff::default());
    let mut tells = true;
    loop {
        let id = ids.next();
        let attempt = inner.transport.attempt(&request, &id, true);
        let reply = tokio::select! {
            reply = attempt => reply,
            () = inner.closed.cancelled() => return false,
        };
        if matches!(reply, Reply::Done(_)) {
            return true;
        }
        if std::mem::take(&mut tells) {
            let (resources, detail) = (resources.clone(), reply.summary());
            inner.hooks.tell(&Event::ReleaseFailed { resources, detail });
        }
        let now = now_ms();
        if now >= began_ms + GOES_ON_MS {
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
