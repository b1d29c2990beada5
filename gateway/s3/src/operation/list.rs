//! Parameters of the lists of buckets and objects.

use super::values::{key_text, limit};
use super::{Query, read_continuation_token};
use crate::bucket::BucketName;
use crate::code::S3Error;

/// The most items of a page.
pub const PAGE_MAX: u16 = 1000;
/// The most buckets of a page.
pub const BUCKETS_PAGE_MAX: u16 = 10_000;

/// `GET /`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListBuckets {
    /// Only names that begin so.
    pub prefix: Option<String>,
    /// The most buckets of the answer; `None`: all.
    pub max_buckets: Option<u16>,
    /// Only names after this one.
    pub after: Option<String>,
}

/// Which keys of a bucket a list is about, and how they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListScope {
    /// The bucket.
    pub bucket: BucketName,
    /// Only keys that begin so; may be empty.
    pub prefix: String,
    /// Keys that have this after the prefix are told as one common prefix, up to and with the delimiter. Never empty.
    pub delimiter: Option<String>,
    /// The most keys and common prefixes of a page together, 0 to 1,000.
    pub max_items: u16,
    /// Whether keys in the answer are encoded as in a URL, for XML cannot carry them all.
    pub url_encoded: bool,
}

/// The older form of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListObjects {
    /// Which keys.
    pub scope: ListScope,
    /// Only keys after this; if it is a common prefix of this very list, only those after all that begin so.
    pub marker: Option<String>,
}

/// The newer form of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListObjectsV2 {
    /// Which keys.
    pub scope: ListScope,
    /// Only keys after this, as the caller asks. See [`after`](Self::after).
    pub start_after: Option<String>,
    /// The token of the page before, as it was sent: the answer repeats it.
    pub continuation_token: Option<String>,
    /// What the token says: only keys after this. See [`after`](Self::after).
    pub continue_after: Option<String>,
    /// Whether each key is told with its owner.
    pub fetch_owner: bool,
}

impl ListObjectsV2 {
    /// After which key the list begins; if it is a common prefix of this very list, after all keys that begin so. A token
    /// counts for more than the start.
    pub fn after(&self) -> Option<&str> {
        self.continue_after.as_deref().or(self.start_after.as_deref())
    }
}

impl ListBuckets {
    pub(super) fn read(query: &Query) -> Result<Self, S3Error> {
        let token = query.filled("continuation-token");
        let max_buckets = query.get("max-buckets");
        let max_buckets = max_buckets
            .map(|text| limit("max-buckets", Some(text), BUCKETS_PAGE_MAX))
            .transpose()?;
        if max_buckets == Some(0) {
            return Err(S3Error::argument("max-buckets", "0", "This must be 1 or more."));
        }
        let after = token.map(read_continuation_token).transpose()?;
        Ok(Self { prefix: key_text(query, "prefix")?, max_buckets, after })
    }
}

impl ListScope {
    pub(super) fn read(
        bucket: BucketName,
        query: &Query,
        max: &'static str,
    ) -> Result<Self, S3Error> {
        Ok(Self {
            bucket,
            prefix: key_text(query, "prefix")?.unwrap_or_default(),
            delimiter: key_text(query, "delimiter")?,
            max_items: limit(max, query.get(max), PAGE_MAX)?,
            url_encoded: url_encoded(query)?,
        })
    }
}

impl ListObjects {
    pub(super) fn read(bucket: BucketName, query: &Query) -> Result<Self, S3Error> {
        let scope = ListScope::read(bucket, query, "max-keys")?;
        Ok(Self { scope, marker: key_text(query, "marker")? })
    }
}

impl ListObjectsV2 {
    pub(super) fn read(bucket: BucketName, query: &Query) -> Result<Self, S3Error> {
        let scope = ListScope::read(bucket, query, "max-keys")?;
        // An empty token is refused, as S3 does: a caller that lost its place would begin anew.
        let token = query.get("continuation-token");
        Ok(Self {
            scope,
            start_after: key_text(query, "start-after")?,
            continuation_token: token.map(str::to_owned),
            continue_after: token.map(read_continuation_token).transpose()?,
            fetch_owner: query
                .get("fetch-owner")
                .is_some_and(|text| text.eq_ignore_ascii_case("true")),
        })
    }
}

/// Whether `encoding-type` asks for keys as in a URL.
pub(super) fn url_encoded(query: &Query) -> Result<bool, S3Error> {
    match query.filled("encoding-type") {
        None => Ok(false),
        Some(url) if url.eq_ignore_ascii_case("url") => Ok(true),
        Some(other) => Err(S3Error::argument(
            "encoding-type",
            other,
            "Invalid Encoding Method specified in Request.",
        )),
    }
}
