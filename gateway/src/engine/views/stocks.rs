//! Whether what a principal has in the ledger leaves room for what it asks for.

use std::sync::Arc;

use fence_core::ports::ReadItem;
use fence_core::{LockId, ObjectKey, ResourceName};
use fencegate_access::Quota;

use crate::engine::access::{Asks, Known};
use crate::engine::{Engine, EngineError};

/// An object's resource and key.
type Place<'a> = (&'a ResourceName, &'a ObjectKey);

/// What is asked for.
pub enum More<'a> {
    /// A lock, perhaps under an id of the caller's.
    Lock(&'a [ResourceName], Option<LockId>),
    /// A fence without a lock.
    Fence(&'a ResourceName),
    /// Objects of so many bytes, perhaps under an idempotency key.
    Objects(&'a [Place<'a>], u64, Option<&'a str>),
}

impl Engine {
    /// Refuses what goes beyond a quota. What the last count has room for is admitted. Otherwise the ledger is asked for a count
    /// that is a second old at most, and whether it is anything new at all: what was granted or written before is not refused
    /// when it is asked for again, nor is an object in place of another.
    ///
    /// # Errors
    /// `QuotaExhausted`; what keeps the ledger from being asked.
    pub async fn has_room(&self, asks: &Asks, more: More<'_>) -> Result<(), EngineError> {
        if asks.with_known(|known| !may_be_full(known, &more)).unwrap_or(true) {
            return Ok(());
        }
        let Some(known) = asks.known() else { return Ok(()) };
        // Who has not asked for a while was not counted for as long.
        let (ledger, name) = (Arc::clone(&self.inner.ledger), known.caller.name().clone());
        let stocks = self.call(async move { ledger.stocks(&[name]).await }).await?;
        known.holdings.has(stocks.into_values().next().unwrap_or_default());
        match more {
            More::Lock(resources, id) => {
                if let Some(full) = full(&known, Quota::Locks, 1)
                    && !self.is_lock(id, asks).await?
                {
                    return Err(full);
                }
                self.has_room_for_names(&known, resources, id.map(|id| (id, asks))).await
            }
            More::Fence(resource) => {
                self.has_room_for_names(&known, std::slice::from_ref(resource), None).await
            }
            More::Objects(objects, bytes, key) => {
                let full = match full(&known, Quota::Bytes, bytes) {
                    Some(full) => Some(full),
                    None => match full(&known, Quota::Keys, 1) {
                        Some(full) if self.has_new(objects).await? => Some(full),
                        _ => None,
                    },
                };
                match full {
                    Some(full) if !self.is_written(objects, key).await? => Err(full),
                    _ => Ok(()),
                }
            }
        }
    }

    async fn has_room_for_names(
        &self,
        known: &Known,
        names: &[ResourceName],
        lock: Option<(LockId, &Asks)>,
    ) -> Result<(), EngineError> {
        let Some(full) = full(known, Quota::NewResources, 1) else { return Ok(()) };
        let (ledger, names) = (Arc::clone(&self.inner.ledger), names.to_vec());
        let views = self.call(async move { ledger.views(&names).await }).await?;
        let is_again = match lock {
            Some((id, asks)) => self.is_lock(Some(id), asks).await?,
            None => false,
        };
        if is_again || views.iter().all(Option::is_some) { Ok(()) } else { Err(full) }
    }

    /// Whether there is such a lock of the caller's, or it waits for it.
    async fn is_lock(&self, id: Option<LockId>, asks: &Asks) -> Result<bool, EngineError> {
        let Some(id) = id else { return Ok(false) };
        match self.lock(id, &asks.permit()).await {
            Ok(_) | Err(EngineError::LockWaiting { .. }) => Ok(true),
            Err(EngineError::LockNotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether one of these objects is not there.
    async fn has_new(&self, objects: &[Place<'_>]) -> Result<bool, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let item = |&(resource, key): &Place<'_>| ReadItem {
            resource: ResourceName::clone(resource),
            key: ObjectKey::clone(key),
            version: None,
        };
        let items: Arc<[ReadItem]> = objects.iter().map(item).collect();
        let found = self.call(async move { ledger.read(items).await }).await?;
        Ok(found.iter().any(|verdict| verdict.object.is_none()))
    }

    /// Whether a write with this idempotency key took effect on one of their resources.
    async fn is_written(
        &self,
        objects: &[Place<'_>],
        key: Option<&str>,
    ) -> Result<bool, EngineError> {
        let Some(key) = key else { return Ok(false) };
        let ledger = Arc::clone(&self.inner.ledger);
        let keys: Vec<_> =
            objects.iter().map(|(at, _)| (ResourceName::clone(at), key.to_owned())).collect();
        let known = self.call(async move { ledger.known_keys(&keys).await }).await?;
        Ok(known.contains(&true))
    }
}

/// How much a principal may have and how much it has, if it has no room for so much more.
fn lacks_room(known: &Known, quota: Quota, more: u64) -> Option<(u64, i64)> {
    let most = known.caller.quotas().get(quota)?;
    let has = known.holdings.stock(quota);
    (has.max(0).unsigned_abs().saturating_add(more) > most).then_some((most, has))
}

/// The refusal for that.
fn full(known: &Known, quota: Quota, more: u64) -> Option<EngineError> {
    let (most, has) = lacks_room(known, quota, more)?;
    let principal = known.caller.name().clone();
    Some(EngineError::QuotaExhausted { principal, quota: quota.as_str(), most, has })
}

/// Whether it has to be looked at more closely: nearly nobody is at a quota.
fn may_be_full(known: &Known, more: &More<'_>) -> bool {
    let is_full = |quota, more| lacks_room(known, quota, more).is_some();
    match more {
        More::Lock(..) => is_full(Quota::Locks, 1) || is_full(Quota::NewResources, 1),
        More::Fence(_) => is_full(Quota::NewResources, 1),
        More::Objects(_, bytes, _) => is_full(Quota::Keys, 1) || is_full(Quota::Bytes, *bytes),
    }
}
