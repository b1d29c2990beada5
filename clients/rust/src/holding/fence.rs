//! A fence for a lock that is kept elsewhere (CC51): writes of earlier holders bounce.

use std::sync::Arc;

use fencegate_wire::json::{self, FenceRequest, Order};
use fencegate_wire::{LockId, ResourceName, Token};
use reqwest::Method;
use uuid::Uuid;

use crate::client::Client;
use crate::client::builder::check_owner;
use crate::clock::now_ms;
use crate::encoding::path;
use crate::error::Error;
use crate::guard::held::{Grant, Held};
use crate::guard::writing::writes;
use crate::machine::lease::{Lease, Terms};
use crate::names;
use crate::transport::request::Request;

/// The token of a lock of one's own. It is not renewed: it is good until somebody raises the fence again.
#[derive(Debug)]
pub struct Fence {
    pub(crate) held: Arc<Held>,
    pub(super) version: Option<i64>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("resources", &self.resources).finish_non_exhaustive()
    }
}

/// A fence to be raised; made by [`Client::fence`].
#[must_use = "nothing is fenced before `set`"]
#[derive(Clone)]
pub struct FenceBuilder {
    client: Client,
    resource: String,
    order: Option<i64>,
    id: Option<LockId>,
    force: bool,
    owner: Option<String>,
}

impl std::fmt::Debug for FenceBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FenceBuilder").field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl Client {
    /// A fence for the holder of a lock that is kept elsewhere: in Redis, Consul, Kubernetes, a database.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// let number_of_my_lock = 42; // such as INCR in the script that takes a lock in Redis
    /// let fence = client.fence("invoices:2026").order(number_of_my_lock).set().await?;
    /// fence.put("total.txt", "110").await?;
    /// # Ok(()) }
    /// ```
    pub fn fence(&self, resource: impl Into<String>) -> FenceBuilder {
        let (client, resource) = (self.clone(), resource.into());
        FenceBuilder { client, resource, order: None, id: None, force: false, owner: None }
    }
}

impl FenceBuilder {
    /// The number that the lock gave, growing with each holder, from 1. One that does not rise changes
    /// nothing: [`Error::LockLost`]. Without it the last caller wins.
    pub fn order(mut self, order: i64) -> Self {
        self.order = Some(order);
        self
    }

    /// An id to repeat the call with, if the process may start anew in between; by default a new one. Writes have
    /// no numbers then: those of the process before would be in the way.
    pub fn id(mut self, id: LockId) -> Self {
        self.id = Some(id);
        self
    }

    /// Fences off the holder of a live lock of the gateway, too.
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// What the holder calls itself; by default as the client does.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Raises the fence.
    ///
    /// # Errors
    /// [`Error::LockLost`] with `order_stale`: a later holder was here. [`Error::Busy`]: a live lock of the
    /// gateway is in the way. [`Error::Unavailable`], [`Error::Misuse`].
    pub async fn set(self) -> Result<Fence, Error> {
        let inner = self.client.inner.clone();
        let resource = names::resource(&self.resource)?;
        if self.order.is_some_and(|order| order < 1) {
            return Err(Error::misuse("an order is a number from 1 to 2^63-1"));
        }
        let owner = self.owner.unwrap_or_else(|| inner.owner.clone());
        check_owner(&owner)?;
        let id = self.id.unwrap_or_else(|| LockId(Uuid::now_v7()));
        let request = FenceRequest {
            id,
            order: self.order.map(Order),
            force: self.force,
            owner: owner.clone(),
        };
        let path = format!("{}/fence", path::resource(&resource));
        let request = Request::new(Method::POST, path).json(&request);
        let set: json::Fence = inner.json("fence", &request, inner.call_until_ms()).await?;
        let grant = without_renewals(id, set.token, vec![resource], owner, self.id.is_none());
        Ok(Fence { held: Held::new(inner, grant), version: Some(set.version) })
    }
}

/// A guard that is not ours to renew or to give back.
pub(super) fn without_renewals(
    id: LockId,
    token: Token,
    resources: Vec<ResourceName>,
    owner: String,
    is_numbered: bool,
) -> Grant {
    let now = now_ms();
    let lease = Lease::granted(now, now, (None, None), Terms::default(), 0.5);
    let (is_ours, is_ordered) = (false, false);
    let (principal, writers, s3) = (None, Vec::new(), None);
    Grant {
        id,
        token,
        resources,
        owner,
        principal,
        writers,
        s3,
        is_ours,
        is_numbered,
        is_ordered,
        lease,
    }
}

impl Fence {
    /// The fence token, for systems that check it themselves.
    pub fn token(&self) -> Token {
        self.held.token
    }

    /// The id that the fence was set with: the key to it.
    pub fn id(&self) -> LockId {
        self.held.id
    }

    /// The version of the resource when the fence was set; `None` for a token that was lent.
    pub fn version(&self) -> Option<i64> {
        self.version
    }

    /// The resource.
    pub fn resource(&self) -> &ResourceName {
        &self.held.resources[0]
    }

    /// That no gateway has said that a later holder is here. The gateway judges anew with each write.
    ///
    /// # Errors
    /// [`Error::LockLost`].
    pub fn check(&self) -> Result<(), Error> {
        self.held.check()
    }
}

writes!(Fence);
