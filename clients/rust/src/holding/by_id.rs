//! Locks by their ids alone: for tools that take a lock in one process and end it in another.

use std::time::Duration;

use fencegate_wire::json::{
    self, ContainerCredentials, ProcessCredentials, RenewRequest, S3Access,
};
use fencegate_wire::{LockId, Ttl};
use reqwest::{Method, StatusCode};
use uuid::Uuid;

use super::handoff::Handoff;
use super::successor::Successor;
use crate::class::LossReason;
use crate::client::Client;
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
        let (owner, principal) = (held.owner.clone(), held.principal.clone());
        Handoff { id, token, resources, owner, principal }
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

    /// What S3 tools write with under a lock, by its id: always the same key, as long as the lock lasts. There is no key
    /// for whoever has a resource *now*: it would give a late writer the token of its successor.
    ///
    /// # Errors
    /// [`Error::LockLost`]: it has ended, and nothing is written with its key any more. [`Error::NotFound`]: there is no
    /// such lock, it is another principal's, none of its resources lies in a bucket, or the gateway speaks no S3.
    pub async fn s3_access(&self, id: LockId) -> Result<S3Access, Error> {
        let request = Request::get(format!("/locks/{id}/s3"));
        self.inner.json("s3_access", &request, self.inner.call_until_ms()).await
    }

    /// The same as the AWS tools read it from a `credential_process`.
    ///
    /// # Errors
    /// As [`Client::s3_access`].
    pub async fn s3_process_credentials(&self, id: LockId) -> Result<ProcessCredentials, Error> {
        let request = Request::get(format!("/locks/{id}/s3?as=process"));
        self.inner.json("s3_access", &request, self.inner.call_until_ms()).await
    }

    /// The same as the AWS tools read it from an address of container credentials.
    ///
    /// # Errors
    /// As [`Client::s3_access`].
    pub async fn s3_container_credentials(
        &self,
        id: LockId,
    ) -> Result<ContainerCredentials, Error> {
        let request = Request::get(format!("/locks/{id}/s3?as=container"));
        self.inner.json("s3_access", &request, self.inner.call_until_ms()).await
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

    /// Hands a lock over to a successor, under a new id and token: the old ones are dead from now on. Gives the
    /// successor's lock.
    ///
    /// # Errors
    /// [`Error::LockLost`], [`Error::NotFound`]; [`Error::Misuse`]: a name is none. [`Error::Denied`]: it may not be
    /// handed to that principal. [`Error::Unavailable`]: it may have been handed over or not; the successor's lock, if
    /// there is one, is given back, or runs out by itself if it is another principal's.
    pub async fn transfer_lock(
        &self,
        id: LockId,
        to: impl Into<Successor>,
    ) -> Result<json::Lock, Error> {
        // The same id in all attempts: at most one successor comes of them.
        let successor = LockId(Uuid::now_v7());
        let request = to.into().request(successor)?;
        let request = Request::new(Method::POST, format!("/locks/{id}/transfer")).json(&request);
        let handed: Result<json::Lock, Error> =
            self.inner.json("transfer_lock", &request, self.inner.call_until_ms()).await;
        if handed.is_err() {
            // Nobody knows of a successor that may be there: it is given back, or runs out by itself.
            let _tried = self.release_lock(successor).await;
        }
        handed
    }
}
