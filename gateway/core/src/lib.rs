//! The rule, the words and the ports of Fencegate, without any I/O.
//!
//! Everything that decides lives here: [`rule`] judges a write, [`acts`] carries out what the
//! ledger does, [`ports`] say what the engine needs from the outside, and [`memory`] is the
//! reference that every real adapter is compared with.

pub mod acts;
pub mod code;
pub mod etag;
pub mod lock;
pub mod memory;
pub mod metadata;
pub mod mutants;
pub mod names;
pub mod ports;
pub mod queue;
pub mod rule;
#[cfg(feature = "openapi")]
pub mod schema;
pub mod token;
pub mod wire;

pub use code::ErrorCode;
pub use etag::EntityTag;
pub use lock::{LockEnd, LockId, LockState, MaxHold, OperationId, Supersession, Ttl};
pub use metadata::Metadata;
pub use names::{NameError, ObjectKey, ResourceName};
pub use rule::Refusal;
pub use token::{Token, TokenError};
