//! What all parts of the client know of one guard: its token, its clock, its signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencegate_wire::json::{Problem, S3Access};
use fencegate_wire::{LockId, ResourceName, Token};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::numbers::Numbers;
use crate::class::LossReason;
use crate::client::Inner;
use crate::client::calling::since;
use crate::clock::{draw, now_ms};
use crate::error::{Details, Error, LockLost};
use crate::hooks::Event;
use crate::machine::lease::{Effects, Input, Lease, State, Warning};
use crate::release::Burial;

/// One guard.
pub(crate) struct Held {
    pub(crate) inner: Arc<Inner>,
    pub(crate) id: LockId,
    pub(crate) token: Token,
    pub(crate) resources: Vec<ResourceName>,
    pub(crate) owner: String,
    /// Whose it is, as the gateway said; `None` without rules of access, and of a token that was lent.
    pub(crate) principal: Option<String>,
    /// Who else may write under it, as the gateway said.
    pub(crate) writers: Vec<String>,
    /// What S3 tools write with under it, as the answer said that granted it. No later answer changes it (CC14b).
    pub(crate) s3: Option<S3Access>,
    pub(crate) granted_ms: u64,
    /// In which task it was taken.
    pub(crate) task: Option<tokio::task::Id>,
    /// Whether the lock is ours to give back. Not so for a fence, or one that was lent.
    pub(crate) is_ours: bool,
    /// Whether writes have numbers (CC23). Not so if several processes share the token.
    pub(crate) is_numbered: bool,
    pub(crate) numbers: Arc<Numbers>,
    /// With it, one write at a time.
    pub(crate) in_order: Option<tokio::sync::Mutex<()>>,
    /// Held by whoever renews it: answers never overtake each other.
    pub(crate) renewing: Arc<tokio::sync::Mutex<()>>,
    /// For the keeper: something has changed.
    pub(crate) changed: Arc<Notify>,
    pub(crate) lease: Mutex<Lease>,
    /// The runtime in which it was taken, where its release goes on.
    runtime: Handle,
    /// Whether a gateway has confirmed its release.
    pub(crate) is_buried: AtomicBool,
    has_ended: AtomicBool,
    /// Whether a transfer is under way: what is heard of a successor is no loss.
    transfers: AtomicBool,
    lost: Mutex<Option<LockLost>>,
    /// Why an operator breaks it, in the operator's words, as heard last.
    words: Mutex<Option<String>>,
    pub(crate) signal: CancellationToken,
}

/// What a guard is made of.
pub(crate) struct Grant {
    pub(crate) id: LockId,
    pub(crate) token: Token,
    pub(crate) resources: Vec<ResourceName>,
    pub(crate) owner: String,
    pub(crate) principal: Option<String>,
    pub(crate) writers: Vec<String>,
    pub(crate) s3: Option<S3Access>,
    pub(crate) is_ours: bool,
    pub(crate) is_numbered: bool,
    pub(crate) is_ordered: bool,
    pub(crate) lease: Lease,
}

impl Held {
    pub(crate) fn new(inner: Arc<Inner>, grant: Grant) -> Arc<Self> {
        let held = Arc::new(Self {
            inner,
            id: grant.id,
            token: grant.token,
            resources: grant.resources,
            owner: grant.owner,
            principal: grant.principal,
            writers: grant.writers,
            s3: grant.s3,
            granted_ms: now_ms(),
            task: tokio::task::try_id(),
            is_ours: grant.is_ours,
            is_numbered: grant.is_numbered,
            numbers: Arc::default(),
            in_order: grant.is_ordered.then(tokio::sync::Mutex::default),
            renewing: Arc::default(),
            changed: Arc::default(),
            lease: Mutex::new(grant.lease),
            runtime: Handle::current(),
            is_buried: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            transfers: AtomicBool::new(false),
            lost: Mutex::default(),
            words: Mutex::default(),
            signal: CancellationToken::new(),
        });
        held.inner.guards.add(&held);
        held
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state as of now.
    pub(crate) fn state(&self) -> State {
        self.look();
        self.lease().state()
    }

    /// Reads the lease.
    pub(crate) fn with_lease<T>(&self, read: impl FnOnce(&Lease) -> T) -> T {
        read(&self.lease())
    }

    /// Changes the lease without learning anything.
    pub(crate) fn change_lease(&self, change: impl FnOnce(&mut Lease)) {
        change(&mut self.lease());
        self.changed.notify_one();
    }

    /// Compares the clock with the deadline.
    pub(crate) fn look(&self) {
        let effects = self.lease().tick(now_ms());
        self.carry_out(effects, None);
    }

    /// Something was learnt.
    pub(crate) fn learn(&self, input: Input) {
        self.learn_because(input, None);
    }

    /// A transfer begins, or has failed.
    pub(crate) fn begin_transfer(&self, begins: bool) {
        self.transfers.store(begins, Ordering::SeqCst);
    }

    /// An operator breaks it, or has, for this reason.
    pub(crate) fn heard_why(&self, words: Option<&str>) {
        if let Some(words) = words {
            *self.words.lock().unwrap_or_else(PoisonError::into_inner) = Some(words.to_owned());
        }
    }

    /// Why an operator breaks it, in the operator's words, as heard last.
    pub(crate) fn words(&self) -> Option<String> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn learn_because(&self, input: Input, problem: Option<&Problem>) {
        let is_successor =
            input == Input::Lost(LossReason::Superseded) && self.transfers.load(Ordering::SeqCst);
        if is_successor {
            return;
        }
        let effects = self.lease().on(now_ms(), input, draw());
        // A sign of life only puts off what the keeper waits for: it need not look.
        let wakes = input != Input::Beat || effects != Effects::default();
        self.carry_out(effects, problem);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// A gateway refused something of this guard: is it over?
    pub(crate) fn refused(&self, problem: &Problem) {
        self.heard_why(problem.reason.as_deref());
        if let Some(reason) = LossReason::of(&problem.code) {
            self.learn_because(Input::Lost(reason), Some(problem));
        }
    }

    /// A write may be begun (CC21).
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.state() {
            State::Held | State::Uncertain => Ok(()),
            State::Lost(reason) => Err(Error::LockLost(self.loss(reason))),
            State::Released => Err(Error::lost(LossReason::Released)),
        }
    }

    /// Why it was lost, with what the gateway said of it.
    pub(crate) fn loss(&self, reason: LossReason) -> LockLost {
        let known = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known.unwrap_or(LockLost::local(reason, None))
    }

    /// Why it was lost; `None`: it was not.
    pub(crate) fn lost_reason(&self) -> Option<LossReason> {
        match self.state() {
            State::Lost(reason) => Some(reason),
            State::Held | State::Uncertain | State::Released => None,
        }
    }

    fn carry_out(&self, effects: Effects, problem: Option<&Problem>) {
        let resources = || self.resources.clone();
        for warning in effects.warnings {
            let span = Duration::from_millis;
            self.inner.hooks.tell(&match warning {
                Warning::Expiring { left_ms } => {
                    Event::Expiring { resources: resources(), left: span(left_ms) }
                }
                Warning::Breaking { left_ms } => {
                    Event::Breaking { resources: resources(), left: span(left_ms) }
                }
                Warning::Revived { lapsed_ms } => {
                    Event::Revived { resources: resources(), lapsed: span(lapsed_ms) }
                }
            });
        }
        let Some(reason) = effects.signal else { return };
        let loss = LockLost {
            reason,
            superseded_by: problem.and_then(|problem| problem.superseded_by.clone()),
            superseded_at: problem.and_then(|problem| problem.superseded_at),
            operator_reason: self.words().filter(|_| reason == LossReason::Broken),
            details: problem.map(|problem| Details::of_problem(problem, 1)),
        };
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(loss);
        self.signal.cancel();
        self.ended(reason);
        // Where it may still be there, the gateway is told that it is over, so that others can have it and late
        // copies of writes bounce (CC46).
        if self.is_ours && !reason.is_dead_everywhere(self.resources.len()) {
            self.burial().in_background();
        }
    }

    /// How its lock is given back.
    pub(crate) fn burial(&self) -> Burial {
        Burial {
            inner: self.inner.clone(),
            id: self.id,
            resources: self.resources.clone(),
            ttl_ms: self.with_lease(Lease::ttl_ms),
            runtime: self.runtime.clone(),
        }
    }

    /// The guard is over: no renewals, and the hooks are told, once.
    pub(crate) fn ended(&self, reason: LossReason) {
        self.inner.guards.remove(self);
        if self.has_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        let held = since(self.granted_ms);
        let resources = self.resources.clone();
        self.inner.hooks.tell(&Event::Ended { resources, reason, held });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.guards.remove(self);
    }
}
