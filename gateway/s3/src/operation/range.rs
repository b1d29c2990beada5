//! `Range` and `If-Range`: one range of bytes.

use fencegate_wire::EntityTag;
use http::HeaderMap;
use jiff::Timestamp;

use super::conditions::http_time;
use super::values::header;
use crate::code::{S3Code, S3Error};

/// A range of bytes that a read asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteRange {
    asked: Asked,
    /// The range counts only for this object; else all of it is sent.
    only_if: Option<OnlyIf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Between(u64, u64),
    From(u64),
    Last(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OnlyIf {
    Tag(EntityTag),
    Time(Timestamp),
    /// Nothing of ours: it never matches.
    Foreign,
}

/// Which bytes of an object to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// All of them: 200.
    Whole,
    /// From `first` to `last`, both included: 206.
    Part {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: u64,
    },
}

impl ByteRange {
    /// Reads the headers. A range of another unit, of several parts or in another form is none, as HTTP asks.
    ///
    /// # Errors
    /// `InvalidArgument` for a header that stands there twice.
    pub fn read(headers: &HeaderMap) -> Result<Option<Self>, S3Error> {
        let Some(asked) = header(headers, "range")?.and_then(Asked::parse) else { return Ok(None) };
        let only_if = header(headers, "if-range")?.map(|text| match EntityTag::parse(text) {
            Some(tag) => OnlyIf::Tag(tag),
            None => http_time(text).map_or(OnlyIf::Foreign, OnlyIf::Time),
        });
        Ok(Some(Self { asked, only_if }))
    }

    /// Selects bytes of an object.
    ///
    /// # Errors
    /// `InvalidRange` if none of its bytes are in the range.
    pub fn select(
        &self,
        tag: EntityTag,
        last_modified: Timestamp,
        bytes: u64,
    ) -> Result<Selection, S3Error> {
        let counts = match &self.only_if {
            None => true,
            Some(OnlyIf::Tag(known)) => *known == tag,
            Some(OnlyIf::Time(known)) => known.as_second() == last_modified.as_second(),
            Some(OnlyIf::Foreign) => false,
        };
        if !counts {
            return Ok(Selection::Whole);
        }
        self.asked.within(bytes).ok_or_else(|| {
            S3Error::from(S3Code::InvalidRange)
                .with("RangeRequested", self.asked.to_string())
                .with("ActualObjectSize", bytes.to_string())
        })
    }
}

impl Asked {
    fn parse(text: &str) -> Option<Self> {
        let (unit, range) = text.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = range.trim().split_once('-')?;
        match (first, last) {
            ("", last) => Some(Self::Last(position(last)?)),
            (first, "") => Some(Self::From(position(first)?)),
            (first, last) => {
                let (first, last) = (position(first)?, position(last)?);
                (first <= last).then_some(Self::Between(first, last))
            }
        }
    }

    fn within(self, bytes: u64) -> Option<Selection> {
        let end = bytes.checked_sub(1)?;
        let (first, last) = match self {
            Self::Between(first, last) => (first, last.min(end)),
            Self::From(first) => (first, end),
            Self::Last(0) => return None,
            Self::Last(count) => (bytes.saturating_sub(count), end),
        };
        (first <= last).then_some(Selection::Part { first, last })
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Between(first, last) => write!(f, "bytes={first}-{last}"),
            Self::From(first) => write!(f, "bytes={first}-"),
            Self::Last(count) => write!(f, "bytes=-{count}"),
        }
    }
}

/// Digits; what is above 2^64 lies outside every object all the same.
fn position(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().unwrap_or(u64::MAX))
}
