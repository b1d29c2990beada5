//! The guard: a lock in hand. Writes exist here only, so that none can be made without a token.

pub(crate) mod held;
pub(crate) mod keeper;
pub(crate) mod numbers;
pub(crate) mod registry;
pub(crate) mod renewing;
mod watching;
pub(crate) mod writing;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fencegate_wire::json::S3Access;
use fencegate_wire::{LockId, ResourceName, Token, Ttl};
use tokio_util::sync::CancellationToken;

use self::held::Held;
use crate::clock::now_ms;
use crate::error::{Error, LockLost};
use crate::machine::lease::{Input, State};
use crate::names;
use crate::release;

/// In what state a guard is.
pub use crate::machine::lease::State as LockState;

/// A lock in hand. It renews itself until it is dropped, released or lost.
///
/// Dropped, it is given back in the background; [`Lock::release`] waits until it is.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
/// let lock = client.lock("invoices:2026").acquire().await?;
/// lock.put("total.txt", "total: 110").await?;
/// lock.release().await;
/// # Ok(()) }
/// ```
#[must_use = "a lock is given back when it is dropped"]
pub struct Lock {
    pub(crate) held: Arc<Held>,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("resources", &self.held.resources).finish_non_exhaustive()
    }
}

impl Lock {
    pub(crate) fn new(held: Arc<Held>, is_watched: bool) -> Self {
        keeper::keep(&held, is_watched);
        Self { held }
    }

    /// What it covers, in byte order.
    pub fn resources(&self) -> &[ResourceName] {
        &self.held.resources
    }

    /// The fence token, for systems that check it themselves.
    pub fn token(&self) -> Token {
        self.held.token
    }

    /// The lock's id: the key to it. Keep it to yourself.
    pub fn id(&self) -> LockId {
        self.held.id
    }

    /// What the holder calls itself.
    pub fn owner(&self) -> &str {
        &self.held.owner
    }

    /// The principal whose it is, where rules of access are in force: the token is good for it and its writers alone.
    pub fn principal(&self) -> Option<&str> {
        self.held.principal.as_deref()
    }

    /// Who else may write under its token: principals, and roles as `role:NAME`.
    pub fn writers(&self) -> &[String] {
        &self.held.writers
    }

    /// What S3 tools write with under this lock: an endpoint and a key that names the lock's token, for ever and no
    /// other. So a client of S3 that was built from it is as fenced as the guard, and a new lock needs a new one. It is
    /// what the gateway said when it granted the lock: `None` if none of its resources lies in a bucket, or if the lock
    /// was taken up from its predecessor ([`Client::s3_access`](crate::Client::s3_access) asks for its key).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// let lock = client.lock("lake:orders").acquire().await?;
    /// if let Some(s3) = lock.s3() {
    ///     // With the crate object_store:
    ///     //   AmazonS3Builder::new()
    ///     //       .with_endpoint(&s3.endpoint)
    ///     //       .with_allow_http(s3.endpoint.starts_with("http:"))
    ///     //       .with_region(&s3.region)
    ///     //       .with_access_key_id(&s3.access_key_id)
    ///     //       .with_secret_access_key(&s3.secret_access_key)
    ///     //       .with_bucket_name("lake")
    ///     println!("{} speaks S3", s3.endpoint);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn s3(&self) -> Option<&S3Access> {
        self.held.s3.as_ref()
    }

    /// The headers that show the lock to a gateway: `X-Fence-Token` and `X-Lock-Id`.
    pub fn headers(&self) -> [(&'static str, String); 2] {
        [("x-fence-token", self.held.token.to_string()), ("x-lock-id", self.held.id.to_string())]
    }

    /// In what state it is, by the client's clock.
    pub fn state(&self) -> LockState {
        self.held.state()
    }

    /// Until the deadline, by the client's clock; `None`: it does not expire. Zero once it has passed.
    pub fn remaining(&self) -> Option<Duration> {
        let deadline_ms = self.held.with_lease(|lease| lease.deadline_ms());
        deadline_ms.map(|at_ms| Duration::from_millis(at_ms.saturating_sub(now_ms())))
    }

    /// Until an operator's break takes effect, if one is due.
    pub fn breaks_in(&self) -> Option<Duration> {
        let breaks_ms = self.held.with_lease(|lease| lease.breaks_ms());
        breaks_ms.map(|at_ms| Duration::from_millis(at_ms.saturating_sub(now_ms())))
    }

    /// Why an operator breaks it, or has, in the operator's words; `None`: none does, or the words have not been heard.
    pub fn breaks_because(&self) -> Option<String> {
        self.held.words()
    }

    /// Waits until the lock is lost, and says why. Never ends for a lock that is released.
    pub async fn lost(&self) -> LockLost {
        self.held.signal.cancelled().await;
        let reason = self.held.lost_reason().unwrap_or(crate::LossReason::Gone);
        self.held.loss(reason)
    }

    /// A token that is cancelled when the lock is lost, for work in tasks of its own.
    pub fn cancellation(&self) -> CancellationToken {
        // A child: whoever cancels it changes nothing about the lock.
        self.held.signal.child_token()
    }

    /// That the lock is still held, by all that is known here. The gateway judges anew with each write.
    ///
    /// # Errors
    /// [`Error::LockLost`].
    pub fn check(&self) -> Result<(), Error> {
        self.held.check()
    }

    /// A sign of life: with `stall_after` renewals stop when none came for so long.
    pub fn beat(&self) {
        self.held.learn(Input::Beat);
    }

    /// Renews it now, for instance before something that takes long. Renewals go on by themselves.
    ///
    /// # Errors
    /// [`Error::LockLost`], or [`Error::Unavailable`] if nobody answered in time.
    pub async fn renew(&self) -> Result<(), Error> {
        renewing::renew_now(&self.held, None).await
    }

    /// Renews it with another ttl, `1s` to `24h`, which it keeps.
    ///
    /// # Errors
    /// As [`Lock::renew`], or [`Error::Misuse`]: the ttl is out of its bounds.
    pub async fn renew_for(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = Ttl::new(names::whole_ms(ttl)?).map_err(Error::misuse)?;
        renewing::renew_now(&self.held, Some(ttl)).await
    }

    /// Gives it back: waits for writes that are under way, then up to 5 s in all for the gateway's answer; if
    /// there is none, it goes on in the background. Never fails: a lock that is lost needs no release.
    ///
    /// Gives `true` if a gateway has confirmed it: no copy of any write of this lock takes effect any more.
    pub async fn release(&self) -> bool {
        give_back(&self.held).await
    }
}

/// Ends a guard and gives its lock back.
pub(crate) async fn give_back(held: &Arc<Held>) -> bool {
    let began_ms = now_ms();
    // 1. No renewals any more, and no new writes.
    let before = held.state();
    held.learn(Input::Release);
    match before {
        _ if !held.is_ours => return true,
        State::Lost(reason) if reason.is_dead_everywhere(held.resources.len()) => return true,
        State::Lost(_) => return bury(held, release::AWAITED).await,
        // A second release waits for the same as the first, and for what that could not: that a gateway confirms it.
        State::Released => {}
        State::Held | State::Uncertain => held.ended(crate::LossReason::Released),
    }
    // 2. From here on the release goes out even if nobody waits for it any more.
    let mut due = Due { held, is_due: true };
    // 3. What is under way is waited for (CC43).
    let _late = tokio::time::timeout(release::AWAITED, held.numbers.all_ended()).await;
    // 4. The rest of the time is the gateway's.
    let spent = crate::client::calling::since(began_ms);
    let within = release::AWAITED.saturating_sub(spent).max(Duration::from_millis(100));
    due.is_due = false;
    bury(held, within).await
}

/// Ends a guard as if it were released, whatever state it is in, and has the gateway confirm it.
pub(crate) async fn bury(held: &Arc<Held>, within: Duration) -> bool {
    if matches!(held.state(), State::Held | State::Uncertain) {
        held.learn(Input::Release);
        held.ended(crate::LossReason::Released);
    }
    let is_buried = held.is_buried.load(Ordering::SeqCst) || held.burial().awaited(within).await;
    held.is_buried.store(is_buried, Ordering::SeqCst);
    is_buried
}

/// Releases in the background if it is dropped too early.
struct Due<'a> {
    held: &'a Held,
    is_due: bool,
}

impl Drop for Due<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.held.burial().in_background();
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !matches!(self.held.state(), State::Held | State::Uncertain) {
            return;
        }
        self.held.learn(Input::Release);
        self.held.ended(crate::LossReason::Released);
        if self.held.is_ours {
            self.held.burial().in_background();
        }
    }
}
