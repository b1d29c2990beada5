//! AWS Signature Version 4 as S3 has it: who signed a request, and whether it is still what was signed.
//!
//! In two steps, because the secret is found by the id in between: [`Shown::of`] reads what a request shows, and
//! [`Shown::verify`] compares. [`Signer`] is the other side, for tests and for our own tools. Both write the same
//! canonical request.

mod canonical;
pub mod chunked;
mod error;
mod header;
mod make;
mod payload;
mod query;
mod scope;
mod secret;
mod shown;
mod time;

pub use error::SignError;
pub use make::Signer;
pub use payload::PayloadHash;
pub use secret::SigningKey;
pub use shown::{Shown, Verified};

use http::{HeaderMap, Method};

/// What of a request is signed, as it came over the wire.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path before anything is decoded or tidied, such as `/bucket/a%20b//c`.
    pub raw_path: &'a str,
    /// What follows the `?`, not decoded; empty if there is none.
    pub raw_query: &'a str,
    /// The header lines.
    pub headers: &'a HeaderMap,
}
