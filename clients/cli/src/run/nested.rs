//! A command within a run: it would wait for itself if it waited for a lock that the run around it holds.

use fencegate_client::Client;
use fencegate_client::wire::{LockId, LockState};

use super::marks;
use crate::failure::{Failure, usage};

/// Refuses resources that a run around this one holds, of which the environment names the locks. A lock that has ended is
/// in nobody's way, and neither is one of another gateway; what cannot be asked is waited for as ever.
///
/// # Errors
/// Refuses a wait for oneself.
pub async fn check(client: &Client, resources: &[String]) -> Result<(), Failure> {
    for id in marks::runs().iter().filter_map(|run| LockId::parse(run).ok()) {
        let Ok(outer) = client.lock_record(id).await else { continue };
        let states = [LockState::Leased, LockState::Breaking, LockState::Draining];
        let is_held = states.into_iter().any(|state| outer.state == state);
        let both =
            outer.resources.iter().find(|held| resources.iter().any(|it| it == held.as_str()));
        if let Some(name) = both.filter(|_| is_held) {
            return Err(usage(format!(
                "would deadlock: the run that this command is part of holds {name}, and locks are not re-entrant"
            )));
        }
    }
    Ok(())
}
