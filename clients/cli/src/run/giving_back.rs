//! The end of a lock whose command has ended: given back while somebody hears it, and never waited for long.

use std::time::Duration;

use fencegate_client::Lock;

use crate::terminal::say;

/// Time in which a gateway is to confirm that a lock is given back.
const CONFIRMED: Duration = Duration::from_secs(2);
/// The same of one that has just not answered: it is told once, in case it hears that.
const UNHEARD: Duration = Duration::from_millis(500);

/// Gives a lock back, and tells whether that was heard. Without a word from a gateway it stays until its ttl is over, which
/// is said.
pub async fn give_back(lock: &Lock, was_heard: bool) -> bool {
    let within = if was_heard { CONFIRMED } else { UNHEARD };
    let was_good = lock.check().is_ok();
    let is_back = tokio::time::timeout(within, lock.release()).await.unwrap_or(false);
    if was_good && !is_back {
        let names: Vec<_> = lock.resources().iter().map(|name| name.as_str()).collect();
        say(&format!(
            "no gateway has heard that the lock on {} is given back: it stays until its ttl is over",
            names.join(" ")
        ));
    }
    is_back
}
