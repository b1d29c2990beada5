//! Writes: each has a key and a number, and is sent until its outcome is known (CC20 to CC25).

pub(crate) mod commit;
pub(crate) mod delete;
pub(crate) mod options;
pub(crate) mod put;
pub(crate) mod sending;
pub(crate) mod unknown;
pub(crate) mod upstream;

pub use self::commit::{CommitBuilder, Committed};
pub use self::delete::{DeleteBuilder, Deleted};
pub use self::put::{PutBuilder, Written};
pub use self::sending::Receipt;
pub use self::unknown::{OutcomeUnknown, Settled};
pub use self::upstream::{UpstreamBuilder, UpstreamResponse};
