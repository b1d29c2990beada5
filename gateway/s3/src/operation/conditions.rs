//! `If-*`: what a read, a copy or a write demands of an object.

use fencegate_wire::EntityTag;
use fencegate_wire::etag::ObjectCondition;
use http::HeaderMap;
use jiff::Timestamp;

use super::values::header;
use crate::code::{S3Code, S3Error};

/// The most tags of one header.
const TAGS_MAX: usize = 32;

/// Tags that a header names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    /// `*`
    Any,
    /// Whether each is weak, and the tag if it is one that the gateway could have given out.
    Listed(Vec<(bool, Option<EntityTag>)>),
}

/// The conditions of a read, or of a copy on its source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    matching: Option<Tags>,
    none_matching: Option<Tags>,
    modified_since: Option<Timestamp>,
    unmodified_since: Option<Timestamp>,
}

/// What conditions make of an object that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionsVerdict {
    /// They hold.
    Holds,
    /// The caller has the object already: 304 for a read, 412 for a copy.
    NotModified,
    /// It is not the object that the caller demands: 412.
    Failed,
}

impl Conditions {
    /// Those of a read.
    ///
    /// # Errors
    /// `InvalidArgument` for a tag or time that cannot be read: a condition that is overlooked would be one that holds.
    pub fn of_read(headers: &HeaderMap) -> Result<Self, S3Error> {
        Self::read(
            headers,
            ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"],
        )
    }

    /// Those of a copy on its source.
    ///
    /// # Errors
    /// As [`of_read`](Self::of_read).
    pub fn of_copy_source(headers: &HeaderMap) -> Result<Self, S3Error> {
        Self::read(
            headers,
            [
                "x-amz-copy-source-if-match",
                "x-amz-copy-source-if-none-match",
                "x-amz-copy-source-if-modified-since",
                "x-amz-copy-source-if-unmodified-since",
            ],
        )
    }

    fn read(
        headers: &HeaderMap,
        [matching, none, modified, unmodified]: [&'static str; 4],
    ) -> Result<Self, S3Error> {
        Ok(Self {
            matching: tags(headers, matching)?,
            none_matching: tags(headers, none)?,
            modified_since: time(headers, modified)?,
            unmodified_since: time(headers, unmodified)?,
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares with an object's tag and the time of its last change.
    ///
    /// A tag decides alone where there is one, and the time of the same kind is not looked at: S3 has it so, and HTTP.
    /// Tags are compared strongly for what must match and weakly for what must not; times to the second, as HTTP can
    /// tell no more.
    pub fn judge(&self, tag: EntityTag, last_modified: Timestamp) -> ConditionsVerdict {
        let newer_than = |since: Timestamp| last_modified.as_second() > since.as_second();
        let failed = match (&self.matching, self.unmodified_since) {
            (Some(Tags::Any), _) | (None, None) => false,
            (Some(Tags::Listed(tags)), _) => !tags.contains(&(false, Some(tag))),
            (None, Some(since)) => newer_than(since),
        };
        if failed {
            return ConditionsVerdict::Failed;
        }
        let known = match (&self.none_matching, self.modified_since) {
            (Some(Tags::Any), _) => true,
            (Some(Tags::Listed(tags)), _) => tags.iter().any(|(_, listed)| *listed == Some(tag)),
            (None, Some(since)) => !newer_than(since),
            (None, None) => false,
        };
        if known { ConditionsVerdict::NotModified } else { ConditionsVerdict::Holds }
    }
}

/// The condition of a write on the object that it replaces or deletes: `If-Match` with tags or `*`, or `If-None-Match: *`.
///
/// # Errors
/// `NotImplemented` for `If-None-Match` with tags, and for conditions on times; `InvalidRequest` for both at once;
/// `InvalidArgument` for a tag that cannot be read.
pub fn write_condition(headers: &HeaderMap) -> Result<Option<ObjectCondition>, S3Error> {
    for name in ["if-modified-since", "if-unmodified-since"] {
        if headers.contains_key(name) {
            return Err(
                S3Error::not_implemented("conditions on times for a write").with("Header", name)
            );
        }
    }
    match (tags(headers, "if-match")?, tags(headers, "if-none-match")?) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(S3Error::new(
            S3Code::InvalidRequest,
            "A write has If-Match or If-None-Match, not both.",
        )),
        (Some(Tags::Any), None) => Ok(Some(ObjectCondition::Exists)),
        (None, Some(Tags::Any)) => Ok(Some(ObjectCondition::Absent)),
        (Some(Tags::Listed(tags)), None) => {
            let strong = tags.into_iter().filter(|(weak, _)| !weak).filter_map(|(_, tag)| tag);
            Ok(Some(ObjectCondition::OneOf(strong.collect())))
        }
        (None, Some(Tags::Listed(_))) => {
            Err(S3Error::not_implemented("If-None-Match with tags for a write")
                .with("Header", "If-None-Match"))
        }
    }
}

/// The condition of one object in a list of deletions: its tag, or `*`.
pub(crate) fn condition_of_tag(tag: &str) -> Option<ObjectCondition> {
    match parse_tags(tag)? {
        Tags::Any => Some(ObjectCondition::Exists),
        Tags::Listed(tags) => {
            let strong = tags.into_iter().filter(|(weak, _)| !weak).filter_map(|(_, tag)| tag);
            Some(ObjectCondition::OneOf(strong.collect()))
        }
    }
}

fn tags(headers: &HeaderMap, name: &'static str) -> Result<Option<Tags>, S3Error> {
    let Some(text) = header(headers, name)? else { return Ok(None) };
    let why = "This is * or at most 32 entity tags, parted by commas.";
    parse_tags(text).map(Some).ok_or_else(|| S3Error::argument(name, text, why))
}

/// Tags in quotes, or without: many callers take the quotes off a tag before they keep it, and S3 takes both.
fn parse_tags(text: &str) -> Option<Tags> {
    let mut text = text.trim_ascii();
    if text == "*" {
        return Some(Tags::Any);
    }
    let mut tags = Vec::new();
    while tags.len() < TAGS_MAX {
        let (weak, bare) = text.strip_prefix("W/").map_or((false, text), |bare| (true, bare));
        let (tag, rest) = match bare.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => bare.split_at(bare.find(',').unwrap_or(bare.len())),
        };
        let tag = tag.trim_ascii();
        if tag.is_empty() || tag.contains(['"', '*', ' ']) {
            return None;
        }
        tags.push((weak, EntityTag::parse(&format!("\"{tag}\""))));
        text = match rest.trim_ascii_start() {
            "" => return Some(Tags::Listed(tags)),
            rest => rest.strip_prefix(',')?.trim_ascii_start(),
        };
    }
    None
}

fn time(headers: &HeaderMap, name: &'static str) -> Result<Option<Timestamp>, S3Error> {
    let Some(text) = header(headers, name)? else { return Ok(None) };
    let why = "This is a time, as in: Wed, 21 Oct 2015 07:28:00 GMT";
    http_time(text).map(Some).ok_or_else(|| S3Error::argument(name, text, why))
}

/// The form of HTTP, or that of ISO 8601, which some callers use for copies.
pub(super) fn http_time(text: &str) -> Option<Timestamp> {
    static HTTP: jiff::fmt::rfc2822::DateTimeParser = jiff::fmt::rfc2822::DateTimeParser::new();
    HTTP.parse_timestamp(text).ok().or_else(|| text.parse().ok())
}
