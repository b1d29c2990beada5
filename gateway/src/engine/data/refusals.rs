//! Final refusals, answered from memory: a storm of late writes must not slow good ones.
//!
//! A token that is void, stale, released or broken on a resource is never admitted there again, so that whoever
//! repeats such a write need not ask the ledger again. Nothing else is kept: an unknown token may be sealed in a
//! moment, and what is frozen, draining or at another version may change.
//!
//! The answer must be what the ledger would say now. So the ledger is asked again after a while, since a token
//! falls further behind; a `released` or `broken` gives way to `stale` with the next seal; and everything is
//! forgotten once the ledger was re-fenced, or may have gone back.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fence_core::ports::Runtime;
use fence_core::{PrincipalName, Refusal, ResourceName, Token};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::writes::{Record, count_as};
use super::{CommitFailure, CommitHead, UploadHead, WriteFailure};
use crate::engine::{Engine, EngineError, metrics};

/// Refusals in each of the two halves of the memory.
const HALF_MAX: usize = 5_000;
/// How long a void or stale token is refused from memory before the ledger is asked how far behind it is by now.
const KEPT: Duration = Duration::from_secs(10);
/// The same of a lock that has ended: another gateway may have granted the next, and this one hears nothing of it.
const ENDED_KEPT: Duration = Duration::from_secs(1);
/// How late a refusal is answered that is repeated; the caller was told before that it is final.
const HOLD: Duration = Duration::from_millis(250);
/// Who asks again within this time is held up.
const STORM: Duration = Duration::from_secs(1);
/// Answers that are held up at once; those beyond go out as fast as they can.
const HELD_MAX: usize = 2_048;
/// Counters of seals; resources share them.
const SLOTS: usize = 1_024;

/// A resource, a token that was refused there, and whom: to others it may be no more than unknown.
type At = (ResourceName, Token, Option<PrincipalName>);

/// What the memory was like when the ledger was asked; what comes back is kept only if it still is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Asked {
    /// How often everything was forgotten.
    forgotten: u64,
    /// How many seals there were, on this resource or on one that shares its counter.
    seals: u64,
    /// When, on the clock of this process.
    at: Duration,
}

#[derive(Debug)]
struct Kept {
    refusal: Refusal,
    asked: Asked,
    /// When it was answered last.
    told_at: Duration,
    /// The request that asks the ledger anew, for all others.
    asker: Option<Box<str>>,
}

/// Two halves: when the young one is full, the old one is dropped. What is asked for moves to the young.
#[derive(Debug, Default)]
struct Memory {
    young: HashMap<At, Kept>,
    old: HashMap<At, Kept>,
    forgotten: u64,
}

impl Memory {
    fn insert(&mut self, at: At, kept: Kept) {
        if self.young.len() >= HALF_MAX && !self.young.contains_key(&at) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(at, kept);
    }

    fn find(&mut self, at: &At) -> Option<&mut Kept> {
        if let Some((at, kept)) = self.old.remove_entry(at) {
            // The young half is the newer one.
            if !self.young.contains_key(&at) {
                self.insert(at, kept);
            }
        }
        self.young.get_mut(at)
    }
}

/// The final refusals that this gateway has seen lately.
pub(in crate::engine) struct Refusals {
    runtime: Runtime,
    memory: Mutex<Memory>,
    /// Whether anything was ever kept. Until then a write need not look.
    is_used: AtomicBool,
    seals: Vec<AtomicU64>,
    held: Semaphore,
}

/// Whether a refusal stays one, whatever happens but a re-fence.
fn is_final(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Void | Refusal::Stale { .. } | Refusal::Released | Refusal::Broken => true,
        Refusal::Unknown
        | Refusal::Foreign
        | Refusal::LockIdMismatch
        | Refusal::Frozen
        | Refusal::Draining
        | Refusal::Protected
        | Refusal::TooManyObjects
        | Refusal::SequenceOutOfOrder
        | Refusal::VersionMismatch => false,
    }
}

impl Refusals {
    /// Nothing is known yet.
    pub(in crate::engine) fn new(runtime: &Runtime) -> Arc<Self> {
        Arc::new(Self {
            runtime: runtime.clone(),
            memory: Mutex::default(),
            is_used: AtomicBool::new(false),
            seals: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            held: Semaphore::new(HELD_MAX),
        })
    }

    /// To be called before the ledger is asked about a write.
    pub(in crate::engine) fn asking(&self, resource: &ResourceName) -> Asked {
        let forgotten = self.memory.lock().forgotten;
        let seals = self.seals(resource).load(Ordering::Acquire);
        Asked { forgotten, seals, at: self.runtime.clock.elapsed() }
    }

    /// Keeps what the ledger said, if it is final.
    pub(in crate::engine) fn keep(
        &self,
        resource: &ResourceName,
        token: Token,
        principal: Option<&PrincipalName>,
        refusal: &Refusal,
        asked: Asked,
    ) {
        if !is_final(refusal) {
            return;
        }
        let told_at = self.runtime.clock.elapsed();
        self.is_used.store(true, Ordering::Release);
        let mut memory = self.memory.lock();
        if memory.forgotten == asked.forgotten {
            let kept = Kept { refusal: refusal.clone(), asked, told_at, asker: None };
            memory.insert((resource.clone(), token, principal.cloned()), kept);
        }
    }

    /// What the ledger would say of a write with this token, if that is known, and whether it was said a moment ago.
    fn find(
        &self,
        resource: &ResourceName,
        token: Token,
        principal: Option<&PrincipalName>,
        request_id: &str,
    ) -> Option<(Refusal, bool)> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        let now = self.runtime.clock.elapsed();
        let seals = self.seals(resource).load(Ordering::Acquire);
        let mut memory = self.memory.lock();
        let kept = memory.find(&(resource.clone(), token, principal.cloned()))?;
        let age = now.saturating_sub(kept.asked.at);
        match kept.refusal {
            Refusal::Released | Refusal::Broken
                if age >= ENDED_KEPT || kept.asked.seals != seals =>
            {
                return None;
            }
            // This request asks for all others, who must not ask at the same moment. A put looks twice, before its body is
            // read and after.
            Refusal::Void | Refusal::Stale { .. } if kept.asker.as_deref() == Some(request_id) => {
                return None;
            }
            Refusal::Void | Refusal::Stale { .. } if age >= KEPT => {
                kept.asked.at = now;
                kept.asker = Some(request_id.into());
                return None;
            }
            _ => {}
        }
        let again = now.saturating_sub(kept.told_at) < STORM;
        kept.told_at = now;
        Some((kept.refusal.clone(), again))
    }

    /// This gateway has sealed a newer token on these resources: what ended the lock before is `stale` now.
    pub(in crate::engine) fn sealed(&self, resources: &[ResourceName]) {
        for resource in resources {
            self.seals(resource).fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The ledger was re-fenced, or may not be what it was: nothing that it said before counts any more, and nothing
    /// that it was asked before.
    pub(in crate::engine) fn forget(&self) {
        let mut memory = self.memory.lock();
        let forgotten = memory.forgotten + 1;
        *memory = Memory { forgotten, ..Memory::default() };
    }

    /// The same if an act was refused because the ledger may have lost commits.
    pub(super) fn learn(&self, error: &EngineError) {
        if matches!(error, EngineError::RefenceRequired(_)) {
            self.forget();
        }
    }

    /// Holds an answer up that repeats the last one, if there is room.
    async fn hold(&self) {
        if let Ok(_held) = self.held.try_acquire() {
            self.runtime.clock.sleep(HOLD).await;
        }
    }

    fn seals(&self, resource: &ResourceName) -> &AtomicU64 {
        let mut hasher = DefaultHasher::new();
        resource.hash(&mut hasher);
        let slot = usize::try_from(hasher.finish() % SLOTS as u64).unwrap_or(0);
        &self.seals[slot]
    }
}

impl Engine {
    /// Refuses a write that was refused for good before, without asking the ledger for more than its idempotency key,
    /// and before a byte of its body has been read. A repeated refusal is answered a little late.
    ///
    /// # Errors
    /// The refusal; what keeps the key from being looked up.
    pub async fn refuse_again(&self, head: &UploadHead) -> Result<(), WriteFailure> {
        let record = Record::of(head);
        self.refuse_known(&record, head.idempotency_key.as_deref(), true).await
    }

    /// The same of any write. With `may_wait`, which requests to upstreams must not, a repeated refusal is answered
    /// late.
    pub(in crate::engine) async fn refuse_known(
        &self,
        record: &Record<'_>,
        key: Option<&str>,
        may_wait: bool,
    ) -> Result<(), WriteFailure> {
        let resources = std::slice::from_ref(record.resource);
        let known = self.known(resources, record, key, may_wait).await;
        let Some(error) = known.transpose() else { return Ok(()) };
        let error = error.map_or_else(|error| error, EngineError::Refused);
        match &error {
            EngineError::Refused(refusal) => self.inner.writes.reject(record, refusal),
            error => self.inner.writes.refusals.learn(error),
        }
        count_as(&Err::<(), _>(&error), false);
        Err(WriteFailure { operation: self.inner.runtime.ids.operation(), error })
    }

    /// The same of a commit: its first resource decides what it is told.
    pub(super) async fn refuse_known_commit(&self, head: &CommitHead) -> Result<(), CommitFailure> {
        let names: Vec<_> = head.resources.keys().cloned().collect();
        let principal = head.permit.principal();
        let key = head.idempotency_key.as_deref();
        let Some(first) = names.first() else { return Ok(()) };
        let record = Record {
            resource: first,
            key: None,
            token: head.token,
            request_id: &head.request_id,
            principal: principal.clone(),
        };
        let known = self.known(&names, &record, key, true).await;
        let Some(error) = known.transpose() else { return Ok(()) };
        let resource = names.into_iter().next();
        let error = error.map_or_else(|error| error, EngineError::Refused);
        if let (EngineError::Refused(refusal), Some(resource)) = (&error, &resource) {
            self.reject_commit(head, resource, None, refusal);
        }
        count_as(&Err::<(), _>(&error), false);
        let operation = self.inner.runtime.ids.operation();
        Err(CommitFailure { operation, error, resource, step: None })
    }

    /// The refusal of a token on the first of these resources, if it is known, and if the key took effect on none of
    /// them: that is looked up each time, since whoever works under a newer token may use the same key.
    async fn known(
        &self,
        resources: &[ResourceName],
        record: &Record<'_>,
        key: Option<&str>,
        may_wait: bool,
    ) -> Result<Option<Refusal>, EngineError> {
        let refusals = &self.inner.writes.refusals;
        let Some(first) = resources.first() else { return Ok(None) };
        let clock = &self.inner.runtime.clock;
        let Record { token, principal, request_id, .. } = record;
        let found = refusals.find(first, *token, principal.as_ref(), request_id);
        let Some((refusal, again)) = found else { return Ok(None) };
        let began = clock.elapsed();
        if let Some(key) = key {
            let lookups = resources.iter().map(|resource| {
                self.inner.writes.lookups.submit((resource.clone(), key.to_owned()))
            });
            for known in join_all(lookups).await {
                if known.map_err(|failure| EngineError::unread(failure, "keys"))? {
                    return Ok(None);
                }
            }
        }
        if may_wait {
            // Without what it is held up for.
            let took = clock.elapsed().saturating_sub(began);
            ::metrics::histogram!(metrics::COMMIT_SECONDS).record(took);
            if again {
                refusals.hold().await;
            }
        }
        ::metrics::counter!(metrics::REFUSED_AGAIN).increment(1);
        Ok(Some(refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::runtime;
    use tokio_util::task::TaskTracker;

    fn name(name: &str) -> ResourceName {
        ResourceName::new(name).expect("a name")
    }

    fn token(number: i64) -> Token {
        Token::new(number).expect("a token")
    }

    fn refusals() -> Arc<Refusals> {
        Refusals::new(&runtime(TaskTracker::new()))
    }

    fn keep(refusals: &Refusals, resource: &str, number: i64, refusal: &Refusal) {
        let asked = refusals.asking(&name(resource));
        refusals.keep(&name(resource), token(number), None, refusal, asked);
    }

    fn found(refusals: &Refusals, resource: &str, number: i64) -> Option<Refusal> {
        found_by(refusals, resource, number, "request")
    }

    fn found_by(
        refusals: &Refusals,
        resource: &str,
        number: i64,
        request: &str,
    ) -> Option<Refusal> {
        refusals.find(&name(resource), token(number), None, request).map(|(refusal, _)| refusal)
    }

    #[test]
    fn only_what_is_final_is_kept() {
        let refusals = refusals();
        let all = [
            Refusal::Void,
            Refusal::Unknown,
            Refusal::Stale { by: None, at: None, grants_behind: Some(1), owner: None },
            Refusal::Released,
            Refusal::Broken,
            Refusal::LockIdMismatch,
            Refusal::Frozen,
            Refusal::Draining,
            Refusal::Protected,
            Refusal::TooManyObjects,
            Refusal::SequenceOutOfOrder,
            Refusal::VersionMismatch,
        ];
        for (number, refusal) in (1..).zip(&all) {
            keep(&refusals, "r", number, refusal);
        }
        let kept = (1..).zip(&all).filter(|(number, _)| found(&refusals, "r", *number).is_some());
        let words: Vec<_> = kept.map(|(_, refusal)| refusal.code().as_str()).collect();
        let stays = ["void", "stale", "released", "broken"].map(|end| format!("fence-token-{end}"));
        assert_eq!(words, stays);
        assert!(found(&refusals, "other", 1).is_none());
    }

    /// A put looks before its body is read and once more after: the second look must not find what the first has put off.
    #[tokio::test(start_paused = true)]
    async fn the_request_that_asks_anew_may_look_twice() {
        let refusals = refusals();
        let stale = Refusal::Stale { by: None, at: None, grants_behind: Some(1), owner: None };
        keep(&refusals, "r", 1, &stale);
        assert!(found_by(&refusals, "r", 1, "one").is_some());
        tokio::time::advance(KEPT).await;
        assert!(found_by(&refusals, "r", 1, "one").is_none());
        assert!(found_by(&refusals, "r", 1, "other").is_some(), "one is enough");
        assert!(found_by(&refusals, "r", 1, "one").is_none());
        keep(&refusals, "r", 1, &stale);
        assert!(found_by(&refusals, "r", 1, "one").is_some());
    }

    #[test]
    fn an_ended_lock_is_asked_for_again_once_something_was_sealed() {
        let refusals = refusals();
        keep(&refusals, "r", 1, &Refusal::Released);
        keep(&refusals, "r", 2, &Refusal::Void);
        let before = refusals.asking(&name("r"));
        refusals.sealed(&[name("r")]);
        assert!(found(&refusals, "r", 1).is_none());
        assert_eq!(found(&refusals, "r", 2), Some(Refusal::Void));
        // Asked before the seal, answered after it.
        refusals.keep(&name("r"), token(1), None, &Refusal::Broken, before);
        assert!(found(&refusals, "r", 1).is_none());
    }

    #[test]
    fn what_was_asked_before_all_was_forgotten_is_not_kept() {
        let refusals = refusals();
        keep(&refusals, "r", 1, &Refusal::Void);
        let before = refusals.asking(&name("r"));
        refusals.learn(&EngineError::LedgerUnavailable("away".into()));
        assert!(found(&refusals, "r", 1).is_some());
        refusals.learn(&EngineError::RefenceRequired("it went back".into()));
        assert!(found(&refusals, "r", 1).is_none());
        refusals.keep(&name("r"), token(1), None, &Refusal::Void, before);
        assert!(found(&refusals, "r", 1).is_none());
    }

    #[test]
    fn it_keeps_a_bounded_number_and_those_that_are_asked_for() {
        let refusals = refusals();
        for number in 1..=4 * HALF_MAX as i64 {
            keep(&refusals, "r", number, &Refusal::Void);
            assert!(found(&refusals, "r", 1).is_some(), "forgotten after {number} others");
        }
        let memory = refusals.memory.lock();
        let size = memory.young.len() + memory.old.len();
        assert!((HALF_MAX..=2 * HALF_MAX).contains(&size), "{size}");
    }
}
