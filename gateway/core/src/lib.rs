//! The rule, the words and the ports of Fencegate, without any I/O.
//!
//! Everything that decides lives here: [`rule`] judges a write, [`acts`] carries out what the
//! ledger does, [`ports`] say what the engine needs from the outside, and [`memory`] is the
//! reference that every real adapter is compared with.

pub mod acts;
pub mod listing;
pub mod memory;
pub mod mutants;
pub mod ports;
pub mod queue;
pub mod rule;

/// Requests and answers as JSON.
pub use fencegate_wire::json as wire;
#[cfg(feature = "openapi")]
pub use fencegate_wire::schema;
pub use fencegate_wire::{
    EntityTag, ErrorCode, GrantEnd, LockEnd, LockId, LockState, MaxHold, Metadata, NameError,
    ObjectKey, OperationId, PrincipalName, ResourceName, Supersession, Token, TokenError, Ttl,
    Word, WriterName,
};
pub use fencegate_wire::{
    code, each_code, etag, lock, metadata, names, principal, shown, token, trace,
};
pub use rule::Refusal;
