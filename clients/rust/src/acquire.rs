//! Takes a lock: again and again with one id, until it is granted or given up (CC14 to CC19).

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::json::{AcquireRequest, LOCK_RESOURCES_MAX};
use fencegate_wire::{LockId, LockState, MaxHold, Metadata, ResourceName, Token, Ttl};
use reqwest::Method;
use serde::Deserialize;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::client::{Client, Inner, builder::check_owner};
use crate::clock::{draw, ms, now_ms, sleep_until_ms};
use crate::error::{Busy, BusyKind, Details, Error};
use crate::guard::held::{Grant, Held};
use crate::guard::{Lock, renewing};
use crate::hooks::Event;
use crate::machine::acquiring::{Acquiring, Next, Patience, Said};
use crate::machine::backoff::{Backoff, portion};
use crate::machine::lease::{Lease, OnUncertain, State, Terms};
use crate::machine::leaving::OnLost;
use crate::names::{self, Resources};
use crate::release::{self, Burial};
use crate::transport::answer::{Foreign, Nothing, Reply, class_of};
use crate::transport::request::{Request, RequestIds};

/// How long to wait for a lock that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// So long; in line, first in first out across all gateways.
    UpTo(Duration),
    /// For ever.
    Forever,
}

/// A lock to be taken; made by [`Client::lock`].
#[must_use = "nothing is locked before `acquire`, `try_acquire` or `run`"]
#[derive(Clone)]
pub struct LockBuilder {
    pub(crate) client: Client,
    resources: Result<Vec<ResourceName>, String>,
    ttl: Option<Duration>,
    is_infinite: bool,
    wait: Option<Wait>,
    owner: Option<String>,
    max_hold: Option<Duration>,
    metadata: Vec<(String, String)>,
    only_if_exists: bool,
    on_uncertain: OnUncertain,
    stall_after: Option<Duration>,
    is_watched: bool,
    is_ordered: bool,
    is_numbered: bool,
    pub(crate) on_lost: OnLost,
}

impl Client {
    /// A lock on a resource, or on up to 32 of them, all or none.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// use fencegate_client::Wait;
    /// use std::time::Duration;
    ///
    /// let both = client.lock(["orders:1", "stock:1"]).wait(Wait::UpTo(Duration::from_secs(30)));
    /// let lock = both.acquire().await?;
    /// assert_eq!(lock.resources().len(), 2);
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, resources: impl Into<Resources>) -> LockBuilder {
        LockBuilder {
            client: self.clone(),
            resources: resources.into().checked(),
            ttl: None,
            is_infinite: false,
            wait: None,
            owner: None,
            max_hold: None,
            metadata: Vec::new(),
            only_if_exists: false,
            on_uncertain: OnUncertain::Stop,
            stall_after: None,
            is_watched: true,
            is_ordered: false,
            is_numbered: true,
            on_lost: OnLost::Fail,
        }
    }
}

impl LockBuilder {
    /// How long it lasts without renewal: `1s` to `24h`; by default the client's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        (self.ttl, self.is_infinite) = (Some(ttl), false);
        self
    }

    /// It lasts until it is released or broken, whatever becomes of this program. It is renewed once before
    /// it is given out.
    pub fn infinite(mut self) -> Self {
        self.is_infinite = true;
        self
    }

    /// How long to wait if somebody else holds it; by default not at all.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
        self
    }

    /// What the holder calls itself; by default as the client does.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// How long it may be held in all, however often it is renewed: `1s` to `30d`.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// A few words on the lock, shown to its holder.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Refuses resources that were never locked before.
    pub fn only_if_exists(mut self) -> Self {
        self.only_if_exists = true;
        self
    }

    /// What the guard does when its deadline has passed without an answer; by default it is lost.
    pub fn on_uncertain(mut self, on_uncertain: OnUncertain) -> Self {
        self.on_uncertain = on_uncertain;
        self
    }

    /// Without a sign of life for so long (a call through the guard, or [`Lock::beat`]), renewals stop and the
    /// guard is lost.
    pub fn stall_after(mut self, stall_after: Duration) -> Self {
        self.stall_after = Some(stall_after);
        self
    }

    /// Does not follow the lock's events, which tell of a loss before the next renewal does.
    pub fn unwatched(mut self) -> Self {
        self.is_watched = false;
        self
    }

    /// One write at a time, in the order of the calls.
    pub fn ordered(mut self) -> Self {
        self.is_ordered = true;
        self
    }

    /// Writes without numbers, for a token that several processes share.
    pub fn unnumbered(mut self) -> Self {
        self.is_numbered = false;
        self
    }

    /// What [`LockBuilder::run`] gives if the lock was lost, but its body ended well; by default the loss.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Looks at names, durations and words without asking the gateway.
    ///
    /// # Errors
    /// [`Error::Misuse`], as [`LockBuilder::acquire`] would give it.
    pub fn check(&self) -> Result<(), Error> {
        Wish::of(self).map(drop)
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// [`Error::Busy`]: somebody else holds it, or the wait is over. [`Error::Unavailable`]: nobody answered
    /// until the deadline; then the id was given up, and nothing is held. [`Error::Misuse`]: a name, a
    /// duration or another word that the gateway would refuse.
    pub async fn acquire(self) -> Result<Lock, Error> {
        let wish = Wish::of(&self)?;
        if self.client.inner.guards.is_held_here(&wish.resources) {
            return Err(Error::misuse(
                "would deadlock: this task holds the lock already, and locks are not re-entrant",
            ));
        }
        Acquisition::begin(self.client.inner.clone(), wish).go().await
    }

    /// Takes the lock, or gives `None` if somebody else holds it.
    ///
    /// # Errors
    /// As [`LockBuilder::acquire`].
    pub async fn try_acquire(mut self) -> Result<Option<Lock>, Error> {
        self.wait = None;
        match self.acquire().await {
            Ok(lock) => Ok(Some(lock)),
            Err(Error::Busy(Busy { kind: BusyKind::LockHeld, .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl IntoFuture for LockBuilder {
    type Output = Result<Lock, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// What is asked for, checked.
struct Wish {
    resources: Vec<ResourceName>,
    owner: String,
    ttl: Ttl,
    max_hold: Option<MaxHold>,
    metadata: Option<Metadata>,
    only_if_exists: bool,
    patience: Patience,
    terms: Terms,
    is_watched: bool,
    is_ordered: bool,
    is_numbered: bool,
}

impl Wish {
    fn of(builder: &LockBuilder) -> Result<Self, Error> {
        let inner = &builder.client.inner;
        let resources = builder.resources.clone().map_err(Error::misuse)?;
        if resources.is_empty() || resources.len() > LOCK_RESOURCES_MAX {
            let text = format!("a lock is on 1 to {LOCK_RESOURCES_MAX} resources");
            return Err(Error::misuse(text));
        }
        let owner = builder.owner.clone().unwrap_or_else(|| inner.owner.clone());
        check_owner(&owner)?;
        let ttl = match (builder.is_infinite, builder.ttl) {
            (true, _) => Ttl::INFINITE,
            (false, None) => inner.ttl,
            (false, Some(ttl)) => Ttl::new(names::whole_ms(ttl)?).map_err(Error::misuse)?,
        };
        let max_hold = builder.max_hold.map(names::whole_ms).transpose()?;
        let max_hold = max_hold.map(MaxHold::new).transpose().map_err(Error::misuse)?;
        let metadata = match &builder.metadata[..] {
            [] => None,
            words => Some(Metadata::new(words.iter().cloned().collect()).map_err(Error::misuse)?),
        };
        if builder.stall_after.is_some_and(|after| after.is_zero()) {
            return Err(Error::misuse("stall_after is more than nothing"));
        }
        let patience = match builder.wait {
            None => Patience::None,
            Some(Wait::UpTo(wait)) if wait.is_zero() => Patience::None,
            Some(Wait::UpTo(wait)) => Patience::UpTo(ms(wait)),
            Some(Wait::Forever) => Patience::Forever,
        };
        let terms = Terms {
            on_uncertain: builder.on_uncertain,
            stall_after_ms: builder.stall_after.map(ms),
            is_renewed: true,
        };
        Ok(Self {
            resources,
            owner,
            ttl,
            max_hold,
            metadata,
            only_if_exists: builder.only_if_exists,
            patience,
            terms,
            is_watched: builder.is_watched,
            is_ordered: builder.is_ordered,
            is_numbered: builder.is_numbered,
        })
    }
}

/// A lock as an acquire needs it: without a token while it is draining.
#[derive(Deserialize)]
struct Granted {
    token: Option<Token>,
    state: Option<fencegate_wire::Word<LockState>>,
}

/// An acquire under way. Dropped, it buries its id, if anything of it may be left (CC18).
struct Acquisition {
    inner: Arc<Inner>,
    wish: Wish,
    id: LockId,
    machine: Acquiring,
    /// How many attempts were made under this id.
    under_id: u32,
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

    fn begin(inner: Arc<Inner>, wish: Wish) -> Self {
        let began_ms = now_ms();
        let until_ms = match wish.patience {
            Patience::None => inner.call_until_ms(),
            Patience::UpTo(wait_ms) => began_ms.saturating_add(wait_ms),
            Patience::Forever => u64::MAX,
        };
        let (id, machine) = (LockId(Uuid::now_v7()), Acquiring::new(wish.patience));
        let runtime = Handle::current();
        Self { inner, wish, id, machine, under_id: 0, began_ms, until_ms, runtime }
    }

    async fn go(mut self) -> Result<Lock, Error> {
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
            self.under_id += 1;
            let request = self.request(wait_ms);
            let id = ids.next();
            let reply = tokio::select! {
                reply = self.inner.transport.attempt(&request, &id, true) => reply,
                () = self.inner.closing.cancelled() => continue,
            };
            if let Reply::Nothing(Nothing { timed_out: true, .. }) = &reply {
                self.inner.note_slowness(&reply).await;
            }
            let heard = Heard::of(reply).await;
            // 2. What it says.
            let next = self.machine.judge(heard.said(), self.under_id == 1);
            // 3. What follows.
            let now = now_ms();
            let left_ms = self.until_ms.saturating_sub(now);
            let pause_ms = match next {
                Next::Take => match self.take(&heard, sent_ms).await {
                    Some(lock) => break Ok(lock),
                    None => self.anew(&mut backoff, left_ms).await,
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
                Next::Anew => self.anew(&mut backoff, left_ms).await,
                Next::Later => Some(1_000 + portion(4_000, draw())),
            };
            let Some(pause_ms) = pause_ms else {
                break Err(heard.error(ids.attempts()));
            };
            if pause_ms > 0 {
                let (attempt, detail) = (ids.attempts(), heard.summary());
                self.inner.hooks.tell(&Event::Retry { call: "acquire", attempt, detail });
                sleep_until_ms(now + pause_ms).await;
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
            writers: Vec::new(),
        };
        Request::new(Method::POST, "/locks").json(&body).waits(wait_ms.unwrap_or(0))
    }

    /// The old id is over: another one. What may be left of the old one is given back first, or the new one
    /// would find it in its way.
    async fn anew(&mut self, backoff: &mut Backoff, left_ms: u64) -> Option<u64> {
        if self.machine.may_be_left() {
            self.machine.forget();
            self.burial().awaited(release::AWAITED).await;
        }
        self.id = LockId(Uuid::now_v7());
        self.machine.forget();
        self.under_id = 0;
        backoff.next(draw(), None, left_ms.max(1)).filter(|_| left_ms > 0)
    }

    /// A guard for the grant; `None`: it is over already, or cannot be proven good (CC19).
    async fn take(&mut self, heard: &Heard, sent_ms: u64) -> Option<Lock> {
        let Heard::Granted(lock) = heard else { return None };
        let wish = &self.wish;
        let now = now_ms();
        let times = renewing::times(lock);
        let lease = Lease::granted(now, sent_ms, times, wish.terms, draw());
        let is_late = lease.deadline_ms().is_some_and(|deadline_ms| deadline_ms <= now);
        // A guard that would be over at once is first renewed: its clock begins with that.
        let first = match is_late {
            true => Lease::granted(now, now, (Some(60_000), times.1), wish.terms, draw()),
            false => lease,
        };
        let grant = Grant {
            id: self.id,
            token: lock.token,
            resources: lock.resources.clone(),
            owner: wish.owner.clone(),
            is_ours: true,
            is_numbered: wish.is_numbered,
            is_ordered: wish.is_ordered,
            lease: first,
        };
        let held = Held::new(self.inner.clone(), grant);
        if is_late || lock.ttl_ms.is_none() {
            let renewed = renewing::renew_now(&held, None).await;
            let is_held = held.state() == State::Held;
            if renewed.is_err() || !is_held {
                // Its id is buried by whoever asked for it.
                return None;
            }
        }
        self.machine.forget();
        let (resources, waited) =
            (held.resources.clone(), crate::client::calling::since(self.began_ms));
        self.inner.hooks.tell(&Event::Acquired { resources, waited });
        Some(Lock::new(held, self.wish.is_watched))
    }
}

/// What came of an attempt.
enum Heard {
    Granted(Box<fencegate_wire::json::Lock>),
    /// The lock is ours, but its token is not in force yet.
    Draining,
    /// Anything else.
    Reply(Box<Reply>),
}

impl Heard {
    async fn of(reply: Reply) -> Self {
        let Reply::Done(answer) = reply else { return Self::Reply(Box::new(reply)) };
        let value: serde_json::Value = match answer.json().await {
            Ok(value) => value,
            Err(reply) => return Self::Reply(Box::new(reply)),
        };
        let read = || {
            let seen: Granted = serde_json::from_value(value.clone())?;
            if seen.token.is_none() || seen.state.is_some_and(|state| state == LockState::Draining)
            {
                return Ok(Self::Draining);
            }
            serde_json::from_value(value).map(|lock| Self::Granted(Box::new(lock)))
        };
        read().unwrap_or_else(|error: serde_json::Error| {
            let detail = format!("no lock in the answer: {error}");
            // As a gateway in between that answers nonsense: again, elsewhere perhaps.
            let foreign = Foreign { status: 502, detail, retry_after_ms: None };
            Self::Reply(Box::new(Reply::Foreign(foreign)))
        })
    }

    fn said(&self) -> Said<'_> {
        let reply = match self {
            Self::Granted(_) => return Said::Granted,
            Self::Draining => return Said::Draining,
            Self::Reply(reply) => reply,
        };
        match &**reply {
            Reply::Problem(problem) => Said::Problem {
                code: &problem.code,
                class: class_of(problem),
                retry_after_ms: problem.retry_after_ms.map(|ms| ms.max(0).unsigned_abs()),
            },
            Reply::Foreign(foreign) => Said::Foreign { status: foreign.status },
            Reply::Nothing(nothing) if !nothing.was_sent => Said::Unsent,
            Reply::Nothing(_) | Reply::Done(_) => Said::Unanswered,
            Reply::Unsendable(_) => Said::Unsendable,
        }
    }

    fn summary(&self) -> String {
        match self {
            Self::Granted(_) => "granted, but over already".to_owned(),
            Self::Draining => DRAINING.to_owned(),
            Self::Reply(reply) => reply.summary(),
        }
    }

    fn error(self, attempts: u32) -> Error {
        match self {
            Self::Draining => Error::Busy(Busy::local(BusyKind::Draining, DRAINING)),
            Self::Reply(reply) => reply.error(attempts),
            Self::Granted(_) => {
                Error::Unavailable(Details::local("the lock was over before its answer came"))
            }
        }
    }
}

const DRAINING: &str = "the lock is not in force yet: effects of older tokens are under way";
