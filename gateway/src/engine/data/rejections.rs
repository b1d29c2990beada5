//! The operator's record of refused writes, kept off the hot path.
//!
//! A storm of stale writes must not slow good ones: refusals go into a bounded queue, a task stores
//! them in batches at its own pace, and what does not fit is counted and dropped. Those with unknown tokens, which
//! anybody can make up, go another way: they are only counted by resource, so that they push nothing else out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Ledger, REFENCE_JUMP, Reached, Rejection, Runtime};
use fence_core::{ErrorCode, ResourceName};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::engine::metrics::{REJECTIONS_DROPPED, TOKENS_AHEAD};

/// Refusals that may wait to be stored.
const QUEUE_MAX: usize = 1024;
/// Refusals stored in one statement.
const BATCH_MAX: usize = 256;
/// Resources of which refusals with unknown tokens may wait to be stored.
const COUNTED_MAX: usize = 256;
/// How long the task rests between statements, so that a storm costs the ledger little.
const REST: Duration = Duration::from_millis(200);

/// Takes refusals without ever waiting.
#[derive(Clone)]
pub(super) struct Rejections {
    single: mpsc::Sender<Rejection>,
    counted: Arc<Counted>,
}

/// Refusals with unknown tokens that wait to be stored: of each resource the first, with the number of them.
#[derive(Default)]
struct Counted {
    by_resource: Mutex<BTreeMap<ResourceName, Rejection>>,
    bell: Notify,
}

impl Counted {
    /// Counts one more; `false` if there is no room.
    fn keep(&self, rejection: Rejection) -> bool {
        let mut counted = self.by_resource.lock();
        if let Some(first) = counted.get_mut(&rejection.resource) {
            first.times += rejection.times;
            return true;
        }
        let has_room = counted.len() < COUNTED_MAX;
        if has_room {
            counted.insert(rejection.resource.clone(), rejection);
            self.bell.notify_one();
        }
        has_room
    }

    fn take(&self) -> impl Iterator<Item = Rejection> + use<> {
        let mut counted = self.by_resource.lock();
        std::mem::take(&mut *counted).into_values()
    }
}

impl Rejections {
    /// Starts the task that stores them.
    pub(super) fn start(
        ledger: Arc<dyn Ledger>,
        runtime: &Runtime,
        closing: CancellationToken,
    ) -> Self {
        let (single, waiting) = mpsc::channel(QUEUE_MAX);
        let counted = Arc::new(Counted::default());
        let task = store(ledger, runtime.clone(), waiting, Arc::clone(&counted), closing);
        runtime.spawn.spawn_lasting("rejections", Box::pin(task));
        Self { single, counted }
    }

    /// Keeps a refusal, if there is room.
    pub(super) fn keep(&self, rejection: Rejection) {
        let is_kept = match rejection.minute() {
            Some(_) => self.counted.keep(rejection),
            None => self.single.try_send(rejection).is_ok(),
        };
        if !is_kept {
            ::metrics::counter!(REJECTIONS_DROPPED).increment(1);
        }
    }
}

async fn store(
    ledger: Arc<dyn Ledger>,
    runtime: Runtime,
    mut waiting: mpsc::Receiver<Rejection>,
    counted: Arc<Counted>,
    closing: CancellationToken,
) {
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            count = waiting.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
            () = counted.bell.notified() => {}
            () = closing.cancelled() => {
                waiting.close();
                waiting.recv_many(&mut batch, BATCH_MAX).await;
            }
        }
        batch.extend(counted.take());
        if batch.is_empty() {
            if waiting.is_closed() {
                return;
            }
            continue;
        }
        tell_ahead(&*ledger, runtime.clock.now(), &batch).await;
        name_owners(&*ledger, &mut batch).await;
        let count: u64 = batch.iter().map(|one| one.times.unsigned_abs()).sum();
        if let Err(error) = ledger.record_rejections(batch.into()).await {
            tracing::warn!(%error, count, "refused writes could not be recorded");
            ::metrics::counter!(REJECTIONS_DROPPED).increment(count);
        }
        if !closing.is_cancelled() {
            runtime.clock.sleep(REST).await;
        }
    }
}

/// Adds whose lock it was that had been released or broken, which the refusal does not know, as long as no other has followed.
async fn name_owners(ledger: &dyn Ledger, batch: &mut [Rejection]) {
    let ended = [ErrorCode::FenceTokenReleased.as_str(), ErrorCode::FenceTokenBroken.as_str()];
    let is_ended = |one: &Rejection| one.owner.is_none() && ended.contains(&one.reason.as_str());
    let names: Vec<ResourceName> =
        batch.iter().filter(|one| is_ended(one)).map(|one| one.resource.clone()).collect();
    if names.is_empty() {
        return;
    }
    let Ok(views) = ledger.views(&names).await else { return };
    for (one, view) in batch.iter_mut().filter(|one| is_ended(one)).zip(views) {
        one.owner = view.filter(|view| Some(view.token) == one.token).map(|view| view.owner);
    }
}

/// Counts unknown tokens that are above all that were ever sealed: somebody makes them up, or the ledger went back and
/// their holders have them from before. One to which no re-fence can have led by now is made up.
async fn tell_ahead(ledger: &dyn Ledger, now: Timestamp, batch: &[Rejection]) {
    let unknown = ErrorCode::FenceTokenUnknown.as_str();
    if batch.iter().all(|one| one.reason != unknown) {
        return;
    }
    // Read after they were refused: what was given out before counts.
    let Ok(place) = ledger.place(None).await else { return };
    let possible = place.highest + 1..=Reached::by(now).token.max(place.highest) + 2 * REFENCE_JUMP;
    let is_ahead = |one: &&Rejection| {
        one.reason == unknown && one.token.is_some_and(|token| possible.contains(&token.get()))
    };
    let ahead: Vec<_> = batch.iter().filter(is_ahead).collect();
    if let Some(first) = ahead.first() {
        let count = ahead.iter().map(|one| one.times.unsigned_abs()).sum();
        tracing::warn!(
            resource = %first.resource,
            count,
            "a token is above all that were ever granted: it was made up, or the ledger went back"
        );
        ::metrics::counter!(TOKENS_AHEAD).increment(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(resource: &str, reason: ErrorCode) -> Rejection {
        Rejection {
            at: jiff::Timestamp::UNIX_EPOCH,
            resource: ResourceName::new(resource).expect("a name"),
            key: None,
            reason: reason.as_str().into(),
            token: None,
            grants_behind: None,
            superseded_ms: None,
            owner: None,
            request_id: "test".into(),
            times: 1,
        }
    }

    #[test]
    fn made_up_tokens_take_no_room_from_others_and_little_of_their_own() {
        let (single, mut waiting) = mpsc::channel(1);
        let rejections = Rejections { single, counted: Arc::default() };
        for _ in 0..1_000 {
            rejections.keep(refused("r", ErrorCode::FenceTokenUnknown));
        }
        rejections.keep(refused("r", ErrorCode::FenceTokenStale));
        assert_eq!(waiting.try_recv().expect("it had room").reason, "fence-token-stale");
        for number in 0..1_000 {
            rejections.keep(refused(&format!("made-up-{number}"), ErrorCode::FenceTokenUnknown));
        }
        let counted: Vec<_> = rejections.counted.take().collect();
        assert_eq!(counted.len(), COUNTED_MAX);
        assert!(counted.iter().any(|one| one.resource.as_str() == "r" && one.times == 1_000));
    }
}
