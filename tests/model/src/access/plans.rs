//! What two principals do in the models of access, and the rules that come into force meanwhile.

use super::{Act, Lock, Plan, Request, Says, Writers};

/// Everybody may do everything.
pub const ALLOW: Says = Says { denied: None, in_role: None };
/// The second is in the role, too.
pub const IN_ROLE: Says = Says { in_role: Some(1), ..ALLOW };
/// The first may do nothing.
pub const DENY_FIRST: Says = Says { denied: Some(0), ..ALLOW };
/// The second may do nothing.
pub const DENY_SECOND: Says = Says { denied: Some(1), ..ALLOW };

const fn lock_of(principal: u8, writers: Writers) -> Lock {
    Lock { principal, writers, from: None }
}

const fn asks(by: u8, through: u8, act: Act) -> Request {
    Request { by, through, act }
}

/// A lock that is handed over, and all that its new and its old holder must not do.
pub const WRITERS: Plan = Plan {
    locks: &[
        lock_of(0, Writers::Named(1)),
        Lock { from: Some(0), ..lock_of(1, Writers::None) },
        Lock { from: Some(0), ..lock_of(1, Writers::None) },
    ],
    requests: &[
        asks(0, 0, Act::Seal(0)),
        asks(0, 0, Act::Write(0)),
        asks(0, 0, Act::Seal(1)),
        asks(0, 0, Act::Write(1)),
        asks(1, 1, Act::Write(0)),
        asks(1, 1, Act::Renew(0)),
        asks(1, 1, Act::Reenter(0)),
        asks(1, 1, Act::Seal(2)),
        asks(1, 1, Act::Release(0)),
    ],
};

/// A lock with a writer, and one of that writer.
pub const RULES: Plan = Plan {
    locks: &[lock_of(0, Writers::Named(1)), lock_of(1, Writers::None)],
    requests: &[
        asks(0, 0, Act::Seal(0)),
        asks(0, 1, Act::Write(0)),
        asks(0, 0, Act::Renew(0)),
        asks(1, 1, Act::Write(0)),
        asks(1, 1, Act::Seal(1)),
    ],
};

/// A lock whose writers have a role.
pub const ROLES: Plan = Plan {
    locks: &[lock_of(0, Writers::InRole)],
    requests: &[
        asks(0, 0, Act::Seal(0)),
        asks(0, 0, Act::Write(0)),
        asks(1, 0, Act::Write(0)),
        asks(1, 1, Act::Write(0)),
    ],
};

/// A lock of each.
pub const EACH: Plan = Plan {
    locks: &[lock_of(0, Writers::None), lock_of(1, Writers::None)],
    requests: &[
        asks(0, 0, Act::Seal(0)),
        asks(0, 0, Act::Write(0)),
        asks(1, 1, Act::Seal(1)),
        asks(1, 1, Act::Write(1)),
    ],
};
