//! Lists of buckets in the ledger in memory.

use async_trait::async_trait;

use super::MemoryLedger;
use super::state::State;
use crate::listing::{Run, Shelf, list, path};
use crate::names::ResourceName;
use crate::ports::{LedgerError, Listing, ListingItem, ListingPage, Object, Payload};

/// The ledger at one moment.
struct Rows(State);

#[async_trait]
impl Shelf for Rows {
    async fn objects(&mut self, run: &Run) -> Result<Vec<Object>, LedgerError> {
        let few =
            |key: &str| run.slashes.is_none_or(|many| key.matches('/').count() < usize::from(many));
        let below = |key: &str| run.below.as_deref().is_none_or(|below| key < below);
        let objects = self.0.rows.objects.values().map(|row| &row.object);
        let of_it = self.0.rows.objects.keys().zip(objects);
        let found = of_it.filter(|((resource, key), _)| {
            let key = key.as_str();
            resource.as_str() == run.resource && key >= &*run.from && below(key) && few(key)
        });
        let bare = |object: &Object| Object { payload: Payload::NONE, ..object.clone() };
        Ok(found.map(|(_, object)| bare(object)).take(run.limit).collect())
    }

    async fn resource(&mut self, after: &str) -> Result<Option<ResourceName>, LedgerError> {
        let fences = self.0.rows.fences.iter().filter(|(_, fence)| fence.objects > 0);
        let places = fences.map(|(name, _)| (path(name.as_str()), name.clone()));
        let behind =
            places.filter(|(place, name)| place.as_str() > after && name.as_str().contains(':'));
        Ok(behind.min().map(|(_, name)| name))
    }
}

#[async_trait]
impl Listing for MemoryLedger {
    async fn list_page(&self, page: ListingPage) -> Result<Vec<ListingItem>, LedgerError> {
        let mut rows = Rows(self.state().clone());
        list(&mut rows, &page).await
    }
}
