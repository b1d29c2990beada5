//! `Range` and `If-Range`: one range of bytes; everything else gets the whole object.

use axum::http::{HeaderMap, header};
use fence_core::EntityTag;

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
    /// None of the object's bytes are in the range: 416.
    Outside,
}

/// Selects bytes of an object with this tag and size.
///
/// A range of another unit, of several parts or in another form is ignored, as HTTP asks. With
/// `If-Range` the range counts only if the tag is the very same.
pub fn select(headers: &HeaderMap, tag: EntityTag, size: u64) -> Selection {
    let mut lines = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (lines.next(), lines.next()) else {
        return Selection::Whole;
    };
    if let Some(known) = headers.get(header::IF_RANGE)
        && known.to_str().ok().and_then(EntityTag::parse) != Some(tag)
    {
        return Selection::Whole;
    }
    range.to_str().ok().and_then(parse).map_or(Selection::Whole, |asked| asked.within(size))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    From(u64, Option<u64>),
    Last(u64),
}

fn parse(text: &str) -> Option<Asked> {
    let (unit, range) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    match (first, last) {
        ("", last) => Some(Asked::Last(number(last)?)),
        (first, "") => Some(Asked::From(number(first)?, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Asked::From(first, Some(last)))
        }
    }
}

/// Digits; what is above 2^64 lies outside every object all the same.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

impl Asked {
    fn within(self, size: u64) -> Selection {
        let (first, last) = match self {
            Self::From(first, last) => (first, last.unwrap_or(u64::MAX)),
            Self::Last(0) => return Selection::Outside,
            Self::Last(count) => (size.saturating_sub(count), u64::MAX),
        };
        if first >= size {
            return Selection::Outside;
        }
        Selection::Part { first, last: last.min(size - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    const TAG: EntityTag = EntityTag { generation: 0, version: 3 };

    fn of(range: &str, size: u64) -> Selection {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_str(range).unwrap());
        select(&headers, TAG, size)
    }

    #[test]
    fn one_range_of_bytes_is_honoured() {
        assert_eq!(of("bytes=0-3", 10), Selection::Part { first: 0, last: 3 });
        assert_eq!(of("bytes=4-", 10), Selection::Part { first: 4, last: 9 });
        assert_eq!(of("bytes=-4", 10), Selection::Part { first: 6, last: 9 });
        assert_eq!(of("bytes=-40", 10), Selection::Part { first: 0, last: 9 });
        assert_eq!(
            of("bytes=5-99999999999999999999999", 10),
            Selection::Part { first: 5, last: 9 }
        );
    }

    #[test]
    fn a_range_outside_is_not_satisfiable() {
        for range in ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(of(range, 10), Selection::Outside, "{range}");
        }
        assert_eq!(of("bytes=0-", 0), Selection::Outside);
    }

    #[test]
    fn other_forms_are_ignored() {
        for range in
            ["bytes=3-1", "bytes=0-1,3-4", "bytes=a-b", "lines=0-1", "bytes=", "bytes=-", "0-1"]
        {
            assert_eq!(of(range, 10), Selection::Whole, "{range}");
        }
    }

    #[test]
    fn if_range_needs_the_very_same_tag() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-1"));
        for (known, expected) in [
            ("\"g0-v3\"", Selection::Part { first: 0, last: 1 }),
            ("\"g0-v2\"", Selection::Whole),
            ("W/\"g0-v3\"", Selection::Whole),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Selection::Whole),
        ] {
            headers.insert(header::IF_RANGE, HeaderValue::from_static(known));
            assert_eq!(select(&headers, TAG, 10), expected, "{known}");
        }
    }

    proptest! {
        #[test]
        fn a_part_always_lies_inside(range in "bytes=[0-9]{0,3}-[0-9]{0,3}", size in 0..500u64) {
            if let Selection::Part { first, last } = of(&range, size) {
                prop_assert!(first <= last && last < size);
            }
        }
    }
}
