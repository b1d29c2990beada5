//! What is in a bucket, in S3's order: by whole keys, across all resources of the bucket.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::act::LedgerError;
use crate::etag::EntityTag;

/// Which part of a bucket is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingPage {
    /// The bucket's name.
    pub bucket: String,
    /// How many leading segments of a key name its resource.
    pub depth: u8,
    /// Only keys that begin so.
    pub prefix: String,
    /// Keys that have this behind the prefix are told as one, up to its end.
    pub delimiter: Option<String>,
    /// Only keys from here on, itself included.
    pub from: String,
    /// At most so many of both kinds.
    pub limit: usize,
}

/// What is found in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListingItem {
    /// An object.
    Object {
        /// Its whole key.
        key: String,
        /// Its tag.
        tag: EntityTag,
        /// Its number of bytes.
        size: i64,
        /// When it was written.
        written_at: Timestamp,
        /// What S3 tells of it, as JSON.
        about: Option<Arc<str>>,
        /// Of how many parts it consists, if it was uploaded in parts.
        parts: Option<i32>,
    },
    /// What several keys begin with, up to the end of the delimiter.
    Prefix(String),
}

impl ListingItem {
    /// The key, or the beginning of keys.
    pub fn text(&self) -> &str {
        match self {
            Self::Object { key, .. } => key,
            Self::Prefix(prefix) => prefix,
        }
    }

    /// Where a list goes on after it; `None` if nothing can come after it.
    pub fn next(&self) -> Option<String> {
        match self {
            Self::Object { key, .. } => Some(after_key(key)),
            Self::Prefix(prefix) => after_all(prefix),
        }
    }
}

/// The first text after this one, in the order of bytes: no key has NUL.
pub fn after_key(key: &str) -> String {
    format!("{key}\u{1}")
}

/// The first text after all that begin so, in the order of bytes; `None` if there is none.
pub fn after_all(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        if let Some(next) = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32) {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

/// The side of the ledger that lists buckets.
#[async_trait]
pub trait Listing: Send + Sync {
    /// What is there, in the order of bytes of whole keys. Each piece of it is of one moment; the page may be of several.
    async fn list_page(&self, page: ListingPage) -> Result<Vec<ListingItem>, LedgerError>;
}
