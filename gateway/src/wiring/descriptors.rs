//! File descriptors: each connection takes one, and so do the ledger, the mint, the store and the log.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are kept for everything but connections.
const RESERVE: u64 = 256;

/// Raises this process's limit as far as it may, and says how many connections there is room for, at most as many
/// as are wanted, beside others.
pub(super) fn connections(wanted: usize, others: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let descriptors = getrlimit(Resource::Nofile).current;
    let room = room(descriptors, wanted, others);
    if room < wanted {
        tracing::warn!(
            connections_max = wanted,
            "only {room} connections are taken: this process may open {} files, of which {RESERVE} are kept; \
             raise its limit (LimitNOFILE, ulimit -n)",
            descriptors.unwrap_or(u64::MAX)
        );
    }
    room
}

/// How many connections there is room for beside those, at most as many again: no more than a reserve for the moment.
pub(super) fn beside(connections: usize, others: usize) -> usize {
    room(getrlimit(Resource::Nofile).current, 2 * connections, others) - connections
}

/// How many connections so many descriptors have room for, beside others; without a limit, all that are wanted.
fn room(descriptors: Option<u64>, wanted: usize, others: usize) -> usize {
    let Some(descriptors) = descriptors else { return wanted };
    // With hardly any at all, half of them.
    let room = descriptors.saturating_sub(RESERVE + others as u64).max(descriptors / 2).max(1);
    wanted.min(usize::try_from(room).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn descriptors_are_kept_for_what_is_no_connection() {
        for (descriptors, wanted, taken) in [
            (None, 10_000, 10_000),
            (Some(1_048_576), 10_000, 10_000),
            (Some(4096), 10_000, 3840),
            (Some(300), 10_000, 150),
            (Some(1), 10, 1),
        ] {
            assert_eq!(room(descriptors, wanted, 0), taken, "{descriptors:?}");
        }
        assert_eq!(room(Some(4096), 10_000, 64), 3776);
    }
}
