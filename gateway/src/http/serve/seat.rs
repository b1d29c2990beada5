//! Whose connection it is: known only once somebody has asked on it.

use std::sync::Arc;

use fencegate_access::Quota;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::engine::access::{Holdings, Known};
use crate::http::peers::{Counted, Held, Shares};
use crate::http::problem::Problem;

/// Whose share of the connections a connection counts against, beside that of its address: the principal's that has asked
/// on it last.
#[derive(Clone)]
pub struct Seat(Arc<Seated>);

struct Seated {
    shares: Shares,
    by: Mutex<Option<(Arc<Holdings>, Held)>>,
    /// Its place among the connections that are served, or among those that wait to hear that they are not.
    place: Mutex<OwnedSemaphorePermit>,
    outside: Arc<Semaphore>,
}

impl Seat {
    /// Of a connection that has this place.
    pub(super) fn among(
        shares: Shares,
        place: OwnedSemaphorePermit,
        outside: Arc<Semaphore>,
    ) -> Self {
        let place = Mutex::new(place);
        Self(Arc::new(Seated { shares, by: Mutex::default(), place, outside }))
    }

    /// Gives the place of a connection that is refused to others, if there is room for it to wait elsewhere: whoever opens
    /// many has to wait for each before it opens the next. Says whether there is.
    pub fn waits_outside(&self) -> bool {
        let outside = Arc::clone(&self.0.outside).try_acquire_owned();
        outside.map(|place| *self.0.place.lock() = place).is_ok()
    }

    /// The connection is this caller's from now on.
    ///
    /// # Errors
    /// `rate-limited`: its principal has as many as may be.
    pub fn take(&self, known: &Arc<Known>) -> Result<(), Problem> {
        let mut by = self.0.by.lock();
        if by.as_ref().is_some_and(|(whose, _)| Arc::ptr_eq(whose, &known.holdings)) {
            return Ok(());
        }
        let counted = Counted::Principal(Arc::clone(known));
        let held = self.0.shares.take(&counted, 1).ok_or_else(|| {
            let why = "as many connections are open as may be";
            counted.refused(Quota::Connections.as_str(), why).and_close()
        })?;
        *by = Some((Arc::clone(&known.holdings), held));
        Ok(())
    }
}
