//! Takes a lock: again and again with one id, until it is granted or given up (CC14 to CC19).

mod asking;
mod heard;
mod wish;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use fencegate_wire::ResourceName;

use self::asking::Acquisition;
use self::wish::Wish;
use crate::client::Client;
use crate::error::{Busy, BusyKind, Error};
use crate::guard::Lock;
use crate::machine::lease::OnUncertain;
use crate::machine::leaving::OnLost;
use crate::names::Resources;

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
    writers: Vec<String>,
    only_if_exists: bool,
    on_uncertain: OnUncertain,
    stall_after: Option<Duration>,
    grace: Duration,
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
            writers: Vec::new(),
            only_if_exists: false,
            on_uncertain: OnUncertain::Stop,
            stall_after: None,
            grace: Duration::ZERO,
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

    /// Somebody who may write under the token of this lock, too, with a credential of their own: a principal, or
    /// `role:NAME` for all who have a role; at most 16 of them. They cannot renew it, give it back or hand it over.
    /// Where rules of access are in force, for holders who may `delegate`. Writes of this guard have no numbers then,
    /// as with [`LockBuilder::unnumbered`]: numbers order the writes of one process.
    pub fn writer(mut self, name: impl Into<String>) -> Self {
        self.writers.push(name.into());
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

    /// How long before the deadline the work has to begin to end; by default no time at all. A lock of which less than
    /// that and two round trips are left is given back rather than given out.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
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
    /// until the deadline, or answers take too long for the ttl; then the id was given up, and nothing is held.
    /// [`Error::Misuse`]: a name, a
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
