//! Whose connection it is: known only once somebody has asked on it.

use std::sync::Arc;

use fence_core::PrincipalName;
use fencegate_access::{Caller, Quota};
use parking_lot::Mutex;

use crate::http::peers::{Counted, Held, Shares};
use crate::http::problem::Problem;

/// Whose share of the connections a connection counts against, beside that of its address: the principal's that has asked
/// on it last.
#[derive(Clone)]
pub struct Seat(Arc<Seated>);

struct Seated {
    shares: Shares,
    by: Mutex<Option<(PrincipalName, Held)>>,
}

impl Seat {
    pub(super) fn among(shares: Shares) -> Self {
        Self(Arc::new(Seated { shares, by: Mutex::default() }))
    }

    /// The connection is this caller's from now on.
    ///
    /// # Errors
    /// `rate-limited`: its principal has as many as may be.
    pub fn take(&self, caller: &Arc<Caller>) -> Result<(), Problem> {
        let mut by = self.0.by.lock();
        if by.as_ref().is_some_and(|(name, _)| name == caller.name()) {
            return Ok(());
        }
        let counted = Counted::Principal(Arc::clone(caller));
        let held = self.0.shares.take(&counted, 1).ok_or_else(|| {
            let why = "as many connections are open as may be";
            counted.refused(Quota::Connections.as_str(), why).and_close()
        })?;
        *by = Some((caller.name().clone(), held));
        Ok(())
    }
}
