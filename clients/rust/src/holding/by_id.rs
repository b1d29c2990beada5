//! Locks by their ids alone: for tools that take a lock in one process and end it in another.

use std::time::Duration;

use fencegate_wire::json::{self, RenewRequest, TransferRequest};
use fencegate_wire::{LockId, Ttl};
use reqwest::{Method, StatusCode};
use uuid::Uuid;

use super::handoff::Handoff;
use crate::class::LossReason;
use crate::client::Client;
use crate::client::builder::check_owner;
use crate::error::Error;
use crate::guard::Lock;
use crate::machine::lease::Input;
use crate::names;
use crate::transport::request::Request;

impl Lock {
    /// Leaves the lock to whoever has the handoff: it is neither renewed any more nor given back, and the guard is
    /// over. Under its old id and token; [`Lock::transfer`] makes new ones.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// let left = client.lock("batch:7").acquire().await?.leave();
    /// assert_eq!(client.locks().all().await?.len(), 1);
    /// assert!(client.release_lock(left.id).await?);
    /// # Ok(()) }
    /// ```
    pub fn leave(self) -> Handoff {
        let held = &self.held;
        held.learn(Input::Lost(LossReason::Transferred));
        held.ended(LossReason::Transferred);
        let (id, token, resources) = (held.id, held.token, held.resources.clone());
        Handoff { id, token, resources, owner: held.owner.clone() }
    }
}

impl Client {
    /// What the gateway knows of a lock.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Unavailable`].
    pub async fn lock_record(&self, id: LockId) -> Result<json::Lock, Error> {
        let request = Request::get(format!("/locks/{id}"));
        self.inner.json("lock_record", &request, self.inner.call_until_ms()).await
    }

    /// Renews a lock once. With a ttl it lasts for that long from now on, and keeps it.
    ///
    /// # Errors
    /// [`Error::LockLost`]; [`Error::NotFound`]; [`Error::Misuse`]: the ttl is out of its bounds.
    pub async fn renew_lock(&self, id: LockId, ttl: Option<Duration>) -> Result<json::Lock, Error> {
        let ttl = ttl.map(names::whole_ms).transpose()?;
        let ttl = ttl.map(Ttl::new).transpose().map_err(Error::misuse)?;
        let request = Request::new(Method::POST, format!("/locks/{id}/renew"));
        let request = request.json(&RenewRequest { ttl });
        self.inner.json("renew_lock", &request, self.inner.call_until_ms()).await
    }

    /// Gives a lock back. `false`: the gateway has never heard of it, and whatever comes under this id is refused
    /// from now on.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: it may be held still.
    pub async fn release_lock(&self, id: LockId) -> Result<bool, Error> {
        let request = Request::new(Method::DELETE, format!("/locks/{id}"));
        let answer = self.inner.call("release_lock", &request, self.inner.call_until_ms()).await?;
        Ok(answer.status == StatusCode::NO_CONTENT)
    }

    /// Hands a lock over to a successor, under a new id and token: the old ones are dead from now on.
    ///
    /// # Errors
    /// [`Error::LockLost`], [`Error::NotFound`]; [`Error::Misuse`]: the owner is none. [`Error::Unavailable`]: it may
    /// have been handed over or not; the successor's lock, if there is one, is given back.
    pub async fn transfer_lock(&self, id: LockId, owner: &str) -> Result<Handoff, Error> {
        check_owner(owner)?;
        // The same id in all attempts: at most one successor comes of them.
        let successor = LockId(Uuid::now_v7());
        let request =
            TransferRequest { owner: owner.to_owned(), id: Some(successor), principal: None };
        let request = Request::new(Method::POST, format!("/locks/{id}/transfer")).json(&request);
        let handed = self.inner.json("transfer_lock", &request, self.inner.call_until_ms()).await;
        let handed: json::Lock = match handed {
            Ok(lock) => lock,
            Err(error) => {
                // Nobody knows of a successor that may be there: it is given back, or runs out by itself.
                let _tried = self.release_lock(successor).await;
                return Err(error);
            }
        };
        let (id, token, resources) = (handed.id, handed.token, handed.resources);
        Ok(Handoff { id, token, resources, owner: handed.owner })
    }
}
