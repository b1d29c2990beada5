//! Hands a lock over to another process, without a moment in which nobody holds it (CC50).

use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fencegate_wire::json;
use fencegate_wire::{LockId, ResourceName, Token};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::fence::without_renewals;
use super::successor::Successor;
use crate::class::LossReason;
use crate::client::Client;
use crate::clock::{draw, now_ms};
use crate::error::Error;
use crate::guard::held::{Grant, Held};
use crate::guard::{Lock, renewing};
use crate::machine::lease::{Input, Lease, OnUncertain, Terms};
use crate::release::{self, Burial};
use crate::transport::request::Request;

/// A lock on its way to its successor. Whoever reads it can take the lock: treat it as a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// The id of the successor's lock.
    pub id: LockId,
    /// Its token.
    pub token: Token,
    /// What it covers.
    pub resources: Vec<ResourceName>,
    /// What the successor is called.
    pub owner: String,
    /// The principal whose it is, where rules of access are in force: nobody else can take it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

impl From<json::Lock> for Handoff {
    fn from(lock: json::Lock) -> Self {
        let json::Lock { id, token, resources, owner, principal, .. } = lock;
        Self { id, token, resources, owner, principal }
    }
}

impl std::fmt::Debug for Handoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handoff").field("resources", &self.resources).finish_non_exhaustive()
    }
}

/// What the text begins with.
const PREFIX: &str = "fence1:";

impl Handoff {
    /// One line of text, for a message.
    pub fn to_text(&self) -> String {
        // INVARIANT: names and numbers always serialize.
        let json = serde_json::to_vec(self).expect("a handoff is JSON");
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }

    /// Reads that line.
    ///
    /// # Errors
    /// [`Error::Misuse`]: it is no such line.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        let wrong = || Error::misuse("a handoff is one line that begins with fence1:");
        let coded = text.trim().strip_prefix(PREFIX).ok_or_else(wrong)?;
        let json = URL_SAFE_NO_PAD.decode(coded).map_err(|_| wrong())?;
        let handoff: Self = serde_json::from_slice(&json).map_err(|_| wrong())?;
        let most = json::LOCK_RESOURCES_MAX;
        let good = (1..=most).contains(&handoff.resources.len());
        good.then_some(handoff).ok_or_else(wrong)
    }
}

impl Lock {
    /// Hands the lock to a successor: of this name, or also of another principal ([`Successor::principal`]). This guard
    /// ends with that, without a signal; if the transfer fails, the guard goes on as before.
    ///
    /// # Errors
    /// [`Error::LockLost`]; [`Error::Denied`]: it may not be handed to that principal. [`Error::Unavailable`]: nobody
    /// answered in time. What was handed over by a call of which nobody heard is given back in the background, or
    /// runs out by itself if it is another principal's; this guard is lost then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// use fencegate_client::Handoff;
    ///
    /// let lock = client.lock("batch:7").acquire().await?;
    /// let message = lock.transfer("second-stage").await?.to_text();
    /// let lock = client.adopt(&Handoff::from_text(&message)?).acquire().await?;
    /// lock.put("state.txt", "second stage").await?;
    /// # Ok(()) }
    /// ```
    pub async fn transfer(&self, to: impl Into<Successor>) -> Result<Handoff, Error> {
        let id = LockId(Uuid::now_v7());
        let request = to.into().request(id)?;
        let held = &self.held;
        held.check()?;
        // 1. No renewal beside it, which would hear of the successor; no news of it either.
        let _alone = held.renewing.clone().lock_owned().await;
        held.begin_transfer(true);
        let mut successor = Unclaimed { held, id, is_due: false };
        // 2. What is under way under the old token ends first, or it bounces.
        let _late = tokio::time::timeout(release::AWAITED, held.numbers.all_ended()).await;
        // 3. The call, always with the same id: until it is answered, the successor's lock may exist.
        successor.is_due = true;
        let path = format!("/locks/{}/transfer", held.id);
        let request = Request::new(Method::POST, path).json(&request);
        let inner = &held.inner;
        let handed: Result<json::Lock, Error> =
            inner.json("transfer", &request, inner.call_until_ms()).await;
        match handed {
            Ok(lock) => {
                successor.is_due = false;
                held.learn(Input::Lost(LossReason::Transferred));
                held.ended(LossReason::Transferred);
                Ok(lock.into())
            }
            // A gateway refused the only attempt: there is no successor, and this guard is as it was.
            Err(error) => {
                let attempts = error.details().map_or(0, |details| details.attempts);
                let is_definite = attempts <= 1
                    && error.code().is_some()
                    && !matches!(error, Error::Unavailable(_) | Error::GatewayFault(_));
                successor.is_due = !is_definite;
                let lost = error.code().and_then(LossReason::of);
                drop(successor);
                if let Some(reason) = lost {
                    held.learn(Input::Lost(reason));
                }
                Err(error)
            }
        }
    }
}

/// The lock of a successor that nobody knows of: given back, if it exists.
struct Unclaimed<'a> {
    held: &'a Arc<Held>,
    id: LockId,
    is_due: bool,
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        self.held.begin_transfer(false);
        if self.is_due {
            let burial = Burial { id: self.id, ..self.held.burial() };
            let (guard, runtime) = (Arc::downgrade(self.held), burial.runtime.clone());
            self.held.inner.background.spawn_on(give_up(guard, burial), &runtime);
        }
    }
}

/// Gives a successor's lock back, and lets the guard know whether it is still good.
async fn give_up(guard: Weak<Held>, burial: Burial) {
    burial.awaited(Duration::from_secs(60)).await;
    if let Some(held) = guard.upgrade() {
        let _known = renewing::renew_now(&held, None).await;
    }
}

/// A lock to be taken up from its predecessor; made by [`Client::adopt`].
#[must_use = "nothing is taken up before `acquire`"]
#[derive(Debug, Clone)]
pub struct AdoptBuilder {
    client: Client,
    handoff: Handoff,
    is_numbered: bool,
    on_uncertain: OnUncertain,
}

impl Client {
    /// Takes up a lock that was handed over.
    pub fn adopt(&self, handoff: &Handoff) -> AdoptBuilder {
        let (client, handoff) = (self.clone(), handoff.clone());
        AdoptBuilder { client, handoff, is_numbered: false, on_uncertain: OnUncertain::Stop }
    }
}

impl AdoptBuilder {
    /// Writes have numbers, from 1: only if nobody else writes, or has written, under this token (CC40). Of a lock with
    /// writers they have none.
    pub fn numbered(mut self) -> Self {
        self.is_numbered = true;
        self
    }

    /// What the guard does when its deadline has passed without an answer; by default it is lost.
    pub fn on_uncertain(mut self, on_uncertain: OnUncertain) -> Self {
        self.on_uncertain = on_uncertain;
        self
    }

    /// Renews it at once, which shows that it is good, and keeps it renewed.
    ///
    /// # Errors
    /// [`Error::LockLost`]: it is over. [`Error::NotFound`]: there is no such lock, or it is another principal's.
    pub async fn acquire(self) -> Result<Lock, Error> {
        let (inner, handoff) = (self.client.inner.clone(), self.handoff);
        let request = Request::new(Method::POST, format!("/locks/{}/renew", handoff.id));
        let request = request.json(&json::RenewRequest { ttl: None });
        let sent_ms = now_ms();
        let lock: json::Lock = inner.json("adopt", &request, inner.call_until_ms()).await?;
        let (on_uncertain, stall_after_ms, is_renewed) = (self.on_uncertain, None, true);
        let terms = Terms { on_uncertain, stall_after_ms, is_renewed };
        let (now, times) = (now_ms(), renewing::times(&lock));
        let lease = Lease::granted(now, sent_ms, times, terms, draw());
        // Of several attempts the answered one may have been sent long after the first.
        let is_proven = lease.can_begin(now, 0);
        let lease = match is_proven {
            true => lease,
            false => Lease::unproven(now, times.1, terms, draw()),
        };
        let plain = without_renewals(
            handoff.id,
            handoff.token,
            lock.resources,
            handoff.owner,
            self.is_numbered && lock.writers.is_empty(),
        );
        let (principal, writers) = (lock.principal, lock.writers);
        let grant = Grant { is_ours: true, lease, principal, writers, ..plain };
        let held = Held::new(inner, grant);
        if !is_proven {
            renewing::renew_first(&held, times.0, 0).await?;
        }
        held.check()?;
        Ok(Lock::new(held, true))
    }
}
