//! An acquire under way: its attempts, its guard, and its burial if it comes to nothing.

use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::LockId;
use fencegate_wire::json::AcquireRequest;
use reqwest::Method;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::heard::Heard;
use super::wish::Wish;
use crate::client::Inner;
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::error::{Details, Error};
use crate::guard::held::{Grant, Held};
use crate::guard::{Lock, renewing};
use crate::hooks::Event;
use crate::machine::acquiring::{Acquiring, Next, Patience};
use crate::machine::backoff::{Backoff, portion};
use crate::machine::lease::Lease;
use crate::release::{self, Burial};
use crate::transport::answer::{Nothing, Reply};
use crate::transport::request::{Request, RequestIds};

/// An acquire under way. Dropped, it buries its id, if anything of it may be left (CC18).
pub(super) struct Acquisition {
    inner: Arc<Inner>,
    wish: Wish,
    id: LockId,
    machine: Acquiring,
    began_ms: u64,
    until_ms: u64,
    /// Where a burial goes on, wherever the acquire is dropped.
    runtime: Handle,
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if self.machine.may_be_left() {
            self.burial().in_background();
        }
    }
}

impl Acquisition {
    fn burial(&self) -> Burial {
        let ttl = self.wish.ttl;
        Burial {
            inner: self.inner.clone(),
            id: self.id,
            resources: self.wish.resources.clone(),
            ttl_ms: (!ttl.is_infinite()).then(|| ttl.as_ms().unsigned_abs()),
            runtime: self.runtime.clone(),
        }
    }

    pub(super) fn begin(inner: Arc<Inner>, wish: Wish) -> Self {
        let began_ms = now_ms();
        let until_ms = match wish.patience {
            Patience::None => inner.call_until_ms(),
            Patience::UpTo(wait_ms) => began_ms.saturating_add(wait_ms),
            Patience::Forever => u64::MAX,
        };
        let (id, machine) = (LockId(Uuid::now_v7()), Acquiring::new(wish.patience));
        let runtime = Handle::current();
        Self { inner, wish, id, machine, began_ms, until_ms, runtime }
    }

    pub(super) async fn go(mut self) -> Result<Lock, Error> {
        let (mut ids, mut backoff) = (RequestIds::new(), Backoff::default());
        let result = loop {
            if self.inner.closing.is_cancelled() {
                break Err(Error::Unavailable(Details::local("the client was closed")));
            }
            // 1. One attempt, under the id of this acquire.
            let left_ms = self.until_ms.saturating_sub(now_ms());
            let wait_ms = self.machine.wait_ms(left_ms);
            let sent_ms = now_ms();
            self.machine.sent();
            let request = self.request(wait_ms);
            let id = ids.next();
            let reply = tokio::select! {
                reply = self.inner.transport.attempt(&request, &id) => reply,
                () = self.inner.closing.cancelled() => continue,
            };
            if let Reply::Nothing(Nothing { timed_out: true, .. }) = &reply {
                self.inner.note_slowness(&reply).await;
            }
            let heard = Heard::of(reply).await;
            // 2. What it says.
            let next = self.machine.judge(heard.said());
            // 3. What follows.
            let now = now_ms();
            let left_ms = self.until_ms.saturating_sub(now);
            let pause_ms = match next {
                Next::Take => match self.take(&heard, sent_ms).await {
                    Some(lock) => break Ok(lock),
                    None if self.machine.wasted() == Next::Anew => self.anew(&mut backoff).await,
                    None => None,
                },
                // A gateway that did not wait as it was asked to is not asked at once.
                Next::WaitOn if now < sent_ms + wait_ms.unwrap_or(0) / 2 => {
                    backoff.next(draw(), None, left_ms)
                }
                Next::WaitOn => {
                    backoff = Backoff::default();
                    (left_ms > 0).then_some(0)
                }
                Next::Again { floor_ms } if self.inner.retries => {
                    backoff.next(draw(), floor_ms, left_ms).filter(|pause_ms| *pause_ms < left_ms)
                }
                Next::Again { .. } | Next::GiveUp => None,
                Next::Anew => self.anew(&mut backoff).await,
                Next::Later => Some(1_000 + portion(4_000, draw())),
            };
            let Some(pause_ms) = pause_ms else {
                break Err(heard.error(ids.attempts()));
            };
            if pause_ms > 0 {
                let (attempt, detail) = (ids.attempts(), heard.summary());
                self.inner.hooks.tell(&Event::Retry { call: "acquire", attempt, detail });
                sleep_until_ms(now_ms() + pause_ms).await;
            }
        };
        self.inner.called("acquire", self.began_ms, ids.attempts(), result.as_ref().err());
        if result.is_err() && self.machine.may_be_left() {
            // Waits for the burial, so that whoever is told that nothing is held can rely on it.
            self.machine.forget();
            self.burial().awaited(release::AWAITED).await;
        }
        result
    }

    fn request(&self, wait_ms: Option<u64>) -> Request {
        let wish = &self.wish;
        let (resource, resources) = match &wish.resources[..] {
            [only] => (Some(only.clone()), None),
            many => (None, Some(many.to_vec())),
        };
        let body = AcquireRequest {
            resource,
            resources,
            ttl: Some(wish.ttl),
            max_hold: wish.max_hold,
            metadata: wish.metadata.clone(),
            only_if_exists: wish.only_if_exists,
            owner: wish.owner.clone(),
            id: Some(self.id),
            wait: wait_ms.map(Duration::from_millis),
            writers: wish.writers.clone(),
        };
        Request::new(Method::POST, "/locks").json(&body).waits(wait_ms.unwrap_or(0))
    }

    /// The old id is over: another one. What may be left of the old one is given back first, or the new one
    /// would find it in its way.
    async fn anew(&mut self, backoff: &mut Backoff) -> Option<u64> {
        if self.machine.may_be_left() {
            self.machine.forget();
            self.burial().awaited(release::AWAITED).await;
        }
        self.id = LockId(Uuid::now_v7());
        self.machine.forget();
        backoff.next(draw(), None, self.until_ms.saturating_sub(now_ms()))
    }

    /// A guard for the grant, whose time begins with the grant and not with the wait before it; `None`: it is over
    /// already, or too little of it is left (CC19).
    async fn take(&mut self, heard: &Heard, sent_ms: u64) -> Option<Lock> {
        let Heard::Granted(lock) = heard else { return None };
        let wish = &self.wish;
        let now = now_ms();
        let times = renewing::times(lock);
        let lease = Lease::granted(now, sent_ms, times, wish.terms, draw());
        // Nobody knows when in the wait it was granted: where that matters, its clock begins with a renewal.
        let is_proven = times.1.is_some() && lease.can_begin(now, wish.grace_ms);
        let lease = match is_proven {
            true => lease,
            false => Lease::unproven(now, times.1, wish.terms, draw()),
        };
        let grant = Grant {
            id: self.id,
            token: lock.token,
            resources: lock.resources.clone(),
            owner: wish.owner.clone(),
            principal: lock.principal.clone(),
            writers: lock.writers.clone(),
            s3: lock.s3.clone(),
            is_ours: true,
            is_numbered: wish.is_numbered,
            is_ordered: wish.is_ordered,
            lease,
        };
        let held = Held::new(self.inner.clone(), grant);
        // A client that is closed may have ended all guards before this one was among them. Its id is buried.
        if self.inner.closing.is_cancelled() {
            return None;
        }
        if !is_proven {
            // Otherwise its id is buried by whoever asked for it.
            renewing::renew_first(&held, times.0, wish.grace_ms).await.ok()?;
        }
        self.machine.forget();
        let (resources, waited) =
            (held.resources.clone(), crate::client::calling::since(self.began_ms));
        self.inner.hooks.tell(&Event::Acquired { resources, waited });
        Some(Lock::new(held, self.wish.is_watched))
    }
}
