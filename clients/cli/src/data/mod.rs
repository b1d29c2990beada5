//! Objects: put, get, list, remove, copy, commit, edit, and their history.

pub mod commit;
pub mod copy;
pub mod edit;
pub mod get;
pub mod history;
pub mod list;
pub mod put;
pub mod remove;

use crate::failure::{Failure, usage};

/// The parts of `RESOURCE/KEY`.
///
/// # Errors
/// There is no slash.
pub fn place(text: &str) -> Result<(&str, &str), Failure> {
    text.split_once('/').ok_or_else(|| usage(format!("{text:?} is not RESOURCE/KEY")))
}
