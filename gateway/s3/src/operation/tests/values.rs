//! Limits, conditions, ranges and tokens.

use fencegate_wire::EntityTag;
use fencegate_wire::etag::ObjectCondition;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use proptest::prelude::*;

use super::super::{
    ByteRange, Conditions, ConditionsVerdict, Operation, Selection, continuation_token,
    read_continuation_token, write_condition,
};
use super::{code, read};
use crate::code::S3Code;

const TAG: EntityTag = EntityTag { generation: 0, version: 3 };

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    map
}

#[test]
fn pages_have_limits() {
    let max = |text: &str| match read("GET", &format!("/lake?max-keys={text}"), "").unwrap() {
        Operation::ListObjects(list) => list.scope.max_items,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [max("0"), max("1"), max("1000"), max("1001"), max("2147483647")],
        [0, 1, 1000, 1000, 1000]
    );
    for bad in ["-1", "2147483648", "99999999999999999999", "blah", "", "1e3"] {
        assert_eq!(
            code("GET", &format!("/lake?max-keys={bad}"), ""),
            S3Code::InvalidArgument,
            "{bad}"
        );
    }
    assert_eq!(code("GET", "/lake?encoding-type=base64", ""), S3Code::InvalidArgument);
    assert_eq!(code("GET", "/lake?list-type=3", ""), S3Code::InvalidArgument);
    assert_eq!(code("GET", "/?max-buckets=0", ""), S3Code::InvalidArgument);
    assert_eq!(code("GET", "/lake?prefix=a%00", ""), S3Code::InvalidArgument);
    assert_eq!(
        code("GET", &format!("/lake?marker={}", "m".repeat(1025)), ""),
        S3Code::InvalidArgument
    );
    let Operation::ListParts(parts) =
        read("GET", "/lake/k?uploadId=U&part-number-marker=99999", "").unwrap()
    else {
        panic!()
    };
    assert_eq!((parts.max_parts, parts.after), (1000, 10_000));
    // Empty is none.
    let Operation::ListObjectsV2(list) =
        read("GET", "/lake?list-type=2&delimiter=&start-after=", "").unwrap()
    else {
        panic!()
    };
    assert_eq!((list.scope.delimiter.as_deref(), list.after()), (None, None));
}

#[test]
fn reads_have_limits() {
    assert_eq!(code("GET", "/lake/k?partNumber=1", "range: bytes=0-1"), S3Code::InvalidRequest);
    assert_eq!(code("GET", "/lake/k?partNumber=0", ""), S3Code::InvalidArgument);
    assert_eq!(code("GET", "/lake/k?response-content-type=a%0Ab", ""), S3Code::InvalidArgument);
    for bad in ["17", "g0-v01", "x", "", "%22g0-v1%22"] {
        assert_eq!(
            code("GET", &format!("/lake/k?versionId={bad}"), ""),
            S3Code::InvalidArgument,
            "{bad}"
        );
    }
    let Operation::GetObject(get) = read("GET", "/lake/k?versionId=g0-v3", "").unwrap() else {
        panic!()
    };
    assert_eq!(get.version, Some(TAG));
    assert!(get.conditions.is_empty() && !get.with_checksum);
    assert_eq!(code("GET", "/lake/k?attributes", ""), S3Code::InvalidArgument);
    assert_eq!(
        code("GET", "/lake/k?attributes", "x-amz-object-attributes: ETag,Colour"),
        S3Code::InvalidArgument
    );
}

#[test]
fn a_tag_decides_alone_and_a_time_only_without_one() {
    let written: Timestamp = "2026-01-01T00:00:00.9Z".parse().unwrap();
    let (before, at, after) = (
        "Wed, 31 Dec 2025 23:59:59 GMT",
        "Thu, 01 Jan 2026 00:00:00 GMT",
        "Thu, 01 Jan 2026 00:00:01 GMT",
    );
    let (ours, other) = ("\"g0-v3\"", "\"g0-v2\"");
    use ConditionsVerdict::{Failed, Holds, NotModified};
    for (lines, expected) in [
        (vec![], Holds),
        (vec![("if-match", ours)], Holds),
        (vec![("if-match", "g0-v3")], Holds),
        (vec![("if-match", "\"x\", \"g0-v3\"")], Holds),
        (vec![("if-match", "*")], Holds),
        (vec![("if-match", other)], Failed),
        (vec![("if-match", "W/\"g0-v3\"")], Failed),
        (vec![("if-match", "\"d41d8cd98f00b204e9800998ecf8427e\"")], Failed),
        (vec![("if-none-match", ours)], NotModified),
        (vec![("if-none-match", "W/\"g0-v3\"")], NotModified),
        (vec![("if-none-match", "*")], NotModified),
        (vec![("if-none-match", other)], Holds),
        (vec![("if-modified-since", before)], Holds),
        (vec![("if-modified-since", at)], NotModified),
        (vec![("if-modified-since", after)], NotModified),
        (vec![("if-unmodified-since", before)], Failed),
        (vec![("if-unmodified-since", at)], Holds),
        (vec![("if-unmodified-since", "2025-12-31T00:00:00Z")], Failed),
        // The four combinations that S3 describes.
        (vec![("if-match", ours), ("if-unmodified-since", before)], Holds),
        (vec![("if-match", other), ("if-unmodified-since", after)], Failed),
        (vec![("if-none-match", ours), ("if-modified-since", before)], NotModified),
        (vec![("if-none-match", other), ("if-modified-since", after)], Holds),
        // What is demanded comes before what is known.
        (vec![("if-match", other), ("if-none-match", ours)], Failed),
    ] {
        let verdict = Conditions::of_read(&headers(&lines)).unwrap().judge(TAG, written);
        assert_eq!(verdict, expected, "{lines:?}");
    }
}

#[test]
fn conditions_that_cannot_be_read_are_refused() {
    for bad in ["", "\"a", "\"a\" \"b\"", "a b", "\"a\",", ",", "*, \"a\"", "a\"b\""] {
        let error = Conditions::of_read(&headers(&[("if-match", bad)])).unwrap_err();
        assert_eq!(error.code, S3Code::InvalidArgument, "{bad}");
    }
    let many = vec!["\"a\""; 33].join(",");
    assert!(Conditions::of_read(&headers(&[("if-match", &many)])).is_err());
    assert!(Conditions::of_read(&headers(&[("if-match", &many[4..])])).is_ok());
    assert!(
        Conditions::of_read(&headers(&[("if-match", "\"a\""), ("if-match", "\"b\"")])).is_err()
    );
    assert!(Conditions::of_read(&headers(&[("if-modified-since", "yesterday")])).is_err());
}

#[test]
fn a_write_has_one_condition() {
    let of = |lines: &[(&'static str, &str)]| {
        write_condition(&headers(lines)).map_err(|error| error.code)
    };
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(of(&[("if-none-match", "*")]), Ok(Some(ObjectCondition::Absent)));
    assert_eq!(of(&[("if-match", "*")]), Ok(Some(ObjectCondition::Exists)));
    assert_eq!(of(&[("if-match", "g0-v3")]), Ok(Some(ObjectCondition::OneOf(vec![TAG]))));
    // A tag that is none of ours names no object, and never holds.
    assert_eq!(
        of(&[("if-match", "\"abc\", W/\"g0-v3\"")]),
        Ok(Some(ObjectCondition::OneOf(vec![])))
    );
    assert_eq!(of(&[("if-none-match", "\"g0-v3\"")]), Err(S3Code::NotImplemented));
    assert_eq!(of(&[("if-none-match", "*"), ("if-match", "*")]), Err(S3Code::InvalidRequest));
}

fn select(lines: &[(&'static str, &str)], bytes: u64) -> Result<Option<Selection>, S3Code> {
    let written = "2026-01-01T00:00:00.9Z".parse().unwrap();
    let range = ByteRange::read(&headers(lines)).map_err(|error| error.code)?;
    range.map(|range| range.select(TAG, written, bytes)).transpose().map_err(|error| error.code)
}

#[test]
fn one_range_of_bytes_is_honoured() {
    let of = |range: &str, bytes| select(&[("range", range)], bytes);
    let part = |first, last| Ok(Some(Selection::Part { first, last }));
    assert_eq!(of("bytes=0-3", 10), part(0, 3));
    assert_eq!(of("bytes=4-", 10), part(4, 9));
    assert_eq!(of("bytes=-4", 10), part(6, 9));
    assert_eq!(of("bytes=-40", 10), part(0, 9));
    assert_eq!(of("Bytes = 5-99999999999999999999999", 10), part(5, 9));
    for outside in ["bytes=10-", "bytes=40-50", "bytes=-0", "bytes=99999999999999999999999-"] {
        assert_eq!(of(outside, 10), Err(S3Code::InvalidRange), "{outside}");
    }
    for empty in ["bytes=0-", "bytes=0-0", "bytes=-5"] {
        assert_eq!(of(empty, 0), Err(S3Code::InvalidRange), "{empty}");
    }
    for none in ["bytes=3-1", "bytes=0-1,3-4", "bytes=a-b", "lines=0-1", "bytes=", "bytes=-", "0-1"]
    {
        assert_eq!(of(none, 10), Ok(None), "{none}");
    }
}

#[test]
fn a_range_may_hang_on_the_object_being_the_same() {
    let part = Ok(Some(Selection::Part { first: 0, last: 1 }));
    for (known, expected) in [
        ("\"g0-v3\"", part),
        ("\"g0-v2\"", Ok(Some(Selection::Whole))),
        ("W/\"g0-v3\"", Ok(Some(Selection::Whole))),
        ("Thu, 01 Jan 2026 00:00:00 GMT", part),
        ("Thu, 01 Jan 2026 00:00:01 GMT", Ok(Some(Selection::Whole))),
        ("nonsense", Ok(Some(Selection::Whole))),
    ] {
        assert_eq!(select(&[("range", "bytes=0-1"), ("if-range", known)], 10), expected, "{known}");
    }
}

#[test]
fn tokens_that_were_not_made_here_are_refused() {
    assert_eq!(continuation_token("a"), "1YQ");
    for bad in [
        "",
        "1",
        "YQ",
        "2YQ",
        "1YQ==",
        "1YR",
        "1 YQ",
        "1AA",
        "1_w",
        &format!("1{}", "YWFh".repeat(342)),
    ] {
        assert_eq!(
            read_continuation_token(bad).unwrap_err().code,
            S3Code::InvalidArgument,
            "{bad}"
        );
        let target = format!("/lake?list-type=2&continuation-token={}", bad.replace(' ', "%20"));
        assert_eq!(code("GET", &target, ""), S3Code::InvalidArgument, "{bad}");
    }
}

proptest! {
    #[test]
    fn a_token_says_where_to_go_on(after in "[^\0]{1,250}") {
        let token = continuation_token(&after);
        prop_assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        prop_assert_eq!(read_continuation_token(&token).unwrap(), after);
    }

    #[test]
    fn a_token_is_read_in_one_spelling(token in "[12A-Za-z0-9_=-]{0,12}") {
        if let Ok(after) = read_continuation_token(&token) {
            prop_assert_eq!(continuation_token(&after), token);
        }
    }

    #[test]
    fn a_part_always_lies_inside(range in "bytes=[0-9]{0,3}-[0-9]{0,3}", bytes in 0..500u64) {
        if let Ok(Some(Selection::Part { first, last })) = select(&[("range", &range)], bytes) {
            prop_assert!(first <= last && last < bytes);
        }
    }
}
