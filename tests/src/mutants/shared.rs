//! Mutants that more than one kind of test must notice: a forced schedule, and random ones. They are of the rule, of the
//! lock, of burials and of what a rerun finds.

use super::{Edit, Mutant};

/// The fences are locked.
pub const LOCK: &str = "got := acts.lock_fences(p_resources, p_wait_ms);";
/// The same, but so that it keeps no seal out.
pub const LOCK_FOR_KEY_SHARE: &str = "SELECT coalesce(array_agg(l.resource), '{}') INTO got FROM (
    SELECT f.resource FROM fencegate.fences f WHERE f.resource = ANY (p_resources)
    ORDER BY f.resource FOR KEY SHARE) l;";
/// A fence that somebody else has locked is not decided on.
pub const BUSY: &str = "f.resource IS NOT NULL AND f.resource <> ALL (p_got)";
/// A rerun that is refused is buried.
pub const RERUN: &str = "AND item.attempt > 0";

/// All of them.
pub const ALL: &[Mutant] = &[
    OLDER_TOKEN_ADMITTED,
    RELEASED_ADMITTED,
    WRITE_FOR_KEY_SHARE,
    SKIPPED_IS_LOCKED,
    REFUSED_RERUN_NOT_BURIED,
    GIVEN_UP_NOT_BURIED,
    KNOWN_ID_NEVER,
];

/// Of the rule.
pub const OLDER_TOKEN_ADMITTED: Mutant = Mutant {
    name: "older-token-admitted",
    what: "a token below the one sealed last is admitted",
    edits: &[Edit { function: "judge", from: "WHEN p_token < f_token THEN 'older'", to: "" }],
};

/// Of the rule.
pub const RELEASED_ADMITTED: Mutant = Mutant {
    name: "released-admitted",
    what: "whether the lock was released or broken is not looked at",
    edits: &[Edit {
        function: "judge",
        from: "WHEN f_hold NOT IN ('held', 'draining') THEN f_hold",
        to: "",
    }],
};

/// Of the lock.
pub const WRITE_FOR_KEY_SHARE: Mutant = Mutant {
    name: "write-for-key-share",
    what: "a write locks the fence FOR KEY SHARE, which keeps no seal out",
    edits: &[Edit { function: "write", from: LOCK, to: LOCK_FOR_KEY_SHARE }],
};

/// Of the lock.
pub const SKIPPED_IS_LOCKED: Mutant = Mutant {
    name: "skipped-is-locked",
    what: "a fence whose row was skipped is judged by what it showed",
    edits: &[Edit { function: "judged", from: BUSY, to: "false" }],
};

/// Of burials.
pub const REFUSED_RERUN_NOT_BURIED: Mutant = Mutant {
    name: "refused-rerun-not-buried",
    what: "a rerun that is refused does not bury its id",
    edits: &[Edit { function: "refuse", from: RERUN, to: "AND item.attempt > 1" }],
};

/// Of burials.
pub const GIVEN_UP_NOT_BURIED: Mutant = Mutant {
    name: "given-up-not-buried",
    what: "a write that is given up does not bury its id",
    edits: &[Edit { function: "refuse", from: RERUN, to: "AND item.attempt = 1" }],
};

/// Of what a rerun finds.
pub const KNOWN_ID_NEVER: Mutant = Mutant {
    name: "known-id-never",
    what: "an operation that took effect is not looked up, so its rerun is refused",
    edits: &[Edit {
        function: "judged_further",
        from: "WHERE r.attempt IS NOT NULL AND o.id",
        to: "WHERE false AND o.id",
    }],
};
