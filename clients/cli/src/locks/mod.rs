//! Locks: taken and given back by hand, looked at, and fences of other locks.

pub mod fence;
pub mod hold;
pub mod look;
pub mod show;
pub mod top;

use fencegate_client::wire::LockId;

use crate::failure::{Failure, usage};

/// The lock that is meant: by its id, or that of `fence run`.
///
/// # Errors
/// There is none, or it is no id.
pub fn meant(id: Option<&str>) -> Result<LockId, Failure> {
    let known = std::env::var("FENCE_LOCK_ID").ok().filter(|id| !id.is_empty());
    let id = id.map(str::to_owned).or(known);
    let id = id.ok_or_else(|| usage("which lock? Give its id, or set FENCE_LOCK_ID"))?;
    LockId::parse(&id).map_err(|error| usage(format!("{id:?} is not the id of a lock: {error}")))
}
