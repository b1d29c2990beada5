//! The plans and bounds of the models.

use super::{Bounds, CompletePlan, PartPlan, Plan};

const fn part(client: u8, upload: u8, number: i32) -> PartPlan {
    PartPlan { client, upload, number }
}

const fn complete(client: u8, upload: u8, all: bool) -> CompletePlan {
    CompletePlan { client, upload, all }
}

const NONE: Bounds =
    Bounds { grants: 2, ticks: 0, rollbacks: 0, reads: 0, given_up: 0, deletes: 0, repeats: 0 };

/// One upload, which its holder and its successor go on with, complete, abort and lose.
pub const ENDS: (Plan, Bounds) = (
    Plan {
        uploads: 1,
        parts: &[part(0, 0, 1), part(1, 0, 1), part(0, 0, 2)],
        completes: &[complete(0, 0, true), complete(1, 0, false)],
        abort: Some(0),
    },
    Bounds { given_up: 1, repeats: 1, ..NONE },
);

/// One object in parts takes the place of another, or goes, while somebody reads it.
pub const READERS: (Plan, Bounds) = (
    Plan {
        uploads: 2,
        parts: &[part(0, 0, 1), part(0, 0, 2), part(1, 1, 1)],
        completes: &[complete(0, 0, true), complete(1, 1, true)],
        abort: None,
    },
    Bounds { ticks: 4, reads: 1, deletes: 1, ..NONE },
);

/// The ledger goes back while an upload goes on.
pub const ROLLED_BACK: (Plan, Bounds) = (
    Plan {
        uploads: 1,
        parts: &[part(0, 0, 1), part(0, 0, 1)],
        completes: &[complete(1, 0, true)],
        abort: None,
    },
    Bounds { ticks: 2, rollbacks: 1, given_up: 1, ..NONE },
);
