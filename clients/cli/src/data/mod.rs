//! Objects: put, get, list, remove, copy, commit, edit, and their history.

pub mod commit;
pub mod copy;
pub mod edit;
pub mod get;
pub mod history;
pub mod list;
pub mod put;
pub mod remove;
pub mod tree;

use futures::TryStreamExt as _;

use crate::app::App;
use crate::failure::{Failure, usage};

/// All keys that begin with the prefix of a folder.
///
/// # Errors
/// There is none below a folder that has a name, or they cannot be listed.
pub async fn keys_below(app: &App, resource: &str, prefix: &str) -> Result<Vec<String>, Failure> {
    let list = app.client.list(resource).prefix(prefix).stream();
    let keys: Vec<String> = list.map_ok(|entry| entry.key).try_collect().await?;
    match keys.is_empty() && !prefix.is_empty() {
        true => Err(Failure::Absent(format!("there is no object below {resource}/{prefix}"))),
        false => Ok(keys),
    }
}

/// The parts of `RESOURCE/KEY`.
///
/// # Errors
/// There is no slash.
pub fn place(text: &str) -> Result<(&str, &str), Failure> {
    text.split_once('/').ok_or_else(|| usage(format!("{text:?} is not RESOURCE/KEY")))
}
