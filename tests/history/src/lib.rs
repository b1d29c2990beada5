//! Recorded histories: what callers asked and were told, and what the ledger held in the end. The
//! checkers judge them without knowing how they came about, so that a simulation, a run against real
//! servers and a saved file are all judged by the same code.
//!
//! - [`History`] is a list of [`Record`]s, one per line in a file.
//! - [`check`] judges one by the versions, tokens and operations that answers name, and returns a
//!   [`Report`]: what is violated, and how much each [`Checker`] looked at.
//! - [`linear`] is a second opinion that looks at no version: a search for an order of the calls that
//!   explains the answers.
//!
//! `cargo run -p fence-history -- check FILE` does the first for a file.

mod check;
pub mod linear;
mod record;
mod report;

pub use check::{HEALED_WITHIN_US, REMEMBERED_US, check};
pub use record::*;
pub use report::*;
