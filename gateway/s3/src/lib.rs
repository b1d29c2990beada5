//! The words of S3, as far as the gateway speaks them. Nothing here does I/O: it reads what was sent, says what is wrong
//! with it, and writes what is answered. Which token a request writes under is decided here alone, by its access key
//! ([`key`], I18).

#![forbid(unsafe_code)]

pub mod about;
pub mod address;
pub mod bucket;
pub mod checksum;
pub mod code;
pub mod key;
mod mutants;
pub mod operation;
pub mod sign;
pub mod xml;
