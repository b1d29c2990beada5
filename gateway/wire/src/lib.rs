//! The words of Fencegate's API, its error codes, and its requests and answers as JSON: what gateway
//! and clients share. Nothing here does I/O or decides anything.

pub mod audit;
pub mod code;
pub mod etag;
pub mod json;
pub mod lock;
pub mod metadata;
pub mod names;
pub mod principal;
#[cfg(feature = "openapi")]
pub mod schema;
pub mod shown;
pub mod token;
pub mod trace;
mod word;

pub use audit::AuditAction;
pub use code::ErrorCode;
pub use etag::EntityTag;
pub use lock::{GrantEnd, LockEnd, LockId, LockState, MaxHold, OperationId, Supersession, Ttl};
pub use metadata::Metadata;
pub use names::{NameError, ObjectKey, ResourceName};
pub use principal::{PrincipalName, PrincipalNameError, WriterName};
pub use token::{Token, TokenError};
pub use word::Word;
