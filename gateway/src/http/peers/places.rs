//! Places in lines of waiters: one principal or peer has at most so many in one line. A waiter that chose its id keeps its place
//! for a while after it left, so it counts for as long.
#![expect(clippy::disallowed_methods, reason = "callers on sockets wait in real time")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::{LockId, ResourceName};
use fencegate_access::Quota;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::time::sleep;
use uuid::Uuid;

use super::{Counted, Holder};

/// How many places of one line each may have whose roles do not say otherwise.
pub const PLACES_MAX: usize = 100;
/// How long a place is kept of a waiter that left and may come back under its id.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// How many calls stand at a place; the same id again has the same place.
type Ids = HashMap<LockId, usize>;

/// The places of all in all lines.
#[derive(Clone, Default)]
pub struct Places(Arc<Mutex<HashMap<(Holder, ResourceName), Ids>>>);

/// A place in the lines of some resources.
pub struct Place(Option<Taken>);

struct Taken {
    of: Places,
    holder: Holder,
    resources: Vec<ResourceName>,
    id: LockId,
    /// For how long it counts once it is given up.
    lingers: Duration,
}

impl Places {
    fn lines(&self) -> MutexGuard<'_, HashMap<(Holder, ResourceName), Ids>> {
        self.0.lock()
    }

    /// Takes a place in each of the lines, or none; `None` if one of them has as many of them as may be.
    /// `proposed` is the id that the caller chose, if it did.
    pub fn take(
        &self,
        counted: &Counted,
        resources: &[ResourceName],
        proposed: Option<LockId>,
    ) -> Option<Place> {
        let lingers = if proposed.is_some() { KEPT_FOR } else { Duration::ZERO };
        let id = proposed.unwrap_or_else(|| LockId(Uuid::new_v4()));
        self.take_for(counted, resources, id, lingers)
    }

    fn take_for(
        &self,
        counted: &Counted,
        resources: &[ResourceName],
        id: LockId,
        lingers: Duration,
    ) -> Option<Place> {
        let Some(holder) = counted.holder() else { return Some(Place(None)) };
        let most = counted.most(Some(Quota::LinePlaces), PLACES_MAX).unwrap_or(usize::MAX);
        let mut lines = self.lines();
        let has_room = |resource: &ResourceName| {
            lines
                .get(&(holder.clone(), resource.clone()))
                .is_none_or(|ids| ids.len() < most || ids.contains_key(&id))
        };
        if !resources.iter().all(has_room) {
            return None;
        }
        for resource in resources {
            let line = (holder.clone(), resource.clone());
            *lines.entry(line).or_default().entry(id).or_default() += 1;
        }
        let (of, resources) = (self.clone(), resources.to_vec());
        Some(Place(Some(Taken { of, holder, resources, id, lingers })))
    }

    fn leave(&self, taken: &Taken) {
        let mut lines = self.lines();
        for resource in &taken.resources {
            let line = (taken.holder.clone(), resource.clone());
            let Some(ids) = lines.get_mut(&line) else { continue };
            if let Some(calls) = ids.get_mut(&taken.id) {
                *calls -= 1;
                if *calls == 0 {
                    ids.remove(&taken.id);
                }
            }
            if ids.is_empty() {
                lines.remove(&line);
            }
        }
    }
}

impl Place {
    /// The waiter got what it waited for: it stands in line no longer.
    pub fn granted(mut self) {
        if let Some(taken) = &mut self.0 {
            taken.lingers = Duration::ZERO;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(taken) = self.0.take() else { return };
        match Handle::try_current() {
            Ok(runtime) if !taken.lingers.is_zero() => {
                runtime.spawn(async move {
                    sleep(taken.lingers).await;
                    taken.of.leave(&taken);
                });
            }
            _ => taken.of.leave(&taken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::peers::tests::{Principals, peers};

    fn id(number: u128) -> LockId {
        LockId(Uuid::from_u128(number))
    }

    #[tokio::test]
    async fn a_peer_has_so_many_places_in_a_line_ghosts_included() {
        let places = Places::default();
        let [one, other] = &peers();
        let [a, b] = ["a", "b"].map(|name| ResourceName::new(name).unwrap());
        let line = [a.clone()];
        let mut held: Vec<_> =
            (1..PLACES_MAX).map(|_| places.take(one, &line, None).unwrap()).collect();
        let kept = Duration::from_millis(200);
        held.push(places.take_for(one, &line, id(7), kept).unwrap());
        assert!(places.take(one, &line, None).is_none(), "the line has enough of this peer");
        assert!(places.take(one, &[b.clone(), a.clone()], None).is_none());
        assert!(places.take(one, &[b], None).is_some(), "nothing was taken in another line");
        assert!(places.take(other, &line, None).is_some());
        assert!(places.take(&Counted::Nobody, &line, None).is_some());
        // The same waiter once more, while it waits, and while its place is kept.
        drop(places.take_for(one, &line, id(7), Duration::ZERO).expect("its own place"));
        drop(held.pop());
        assert!(places.take(one, &line, None).is_none(), "its place is kept");
        drop(places.take_for(one, &line, id(7), Duration::ZERO).expect("its own place"));
        while places.take(one, &line, None).is_none() {
            sleep(kept / 10).await;
        }
        drop(held);
        assert!(places.lines().is_empty());
        places.take(one, &line, Some(id(8))).unwrap().granted();
        assert!(places.lines().is_empty(), "who has the lock stands in no line");
        let few = Principals::default().caller("ann", "line_places = 1");
        let held = places.take(&few, &line, None).unwrap();
        assert!(places.take(&few, &line, None).is_none(), "as its role says");
        drop(held);
    }
}
