//! The headers of reads and writes: lines `name: value`, then an empty line and a body.

use axum::http::{Extensions, HeaderMap, HeaderValue, header};
use fence_core::EntityTag;
use fence_core::etag::ObjectCondition;
use fencegate::http::extract::{
    Digests, FenceHeaders, ReadAnswer, ReadConditions, Selection, WriteConditions, select,
};
use sha2::{Digest as _, Sha256};

use crate::header_lines;

/// Headers are taken as they print, and never in two ways.
pub fn headers(input: &[u8]) {
    let (lines, body) = header_lines(input);
    conditions(&lines);
    numbers(&lines);
    digests(&lines, body);
    range(&lines, body.len() as u64);
}

fn tag(version: i64) -> EntityTag {
    EntityTag { generation: 0, version }
}

fn conditions(lines: &HeaderMap) {
    if let Ok(WriteConditions(condition)) = WriteConditions::parse(lines) {
        let (demanded, forbidden) = match &condition {
            None => (None, None),
            Some(ObjectCondition::Exists) => (Some("*".to_owned()), None),
            Some(ObjectCondition::Absent) => (None, Some("*")),
            Some(ObjectCondition::OneOf(tags)) => {
                // Tags that are not ours match nothing, as does this one.
                let tags: Vec<String> = tags.iter().map(ToString::to_string).collect();
                (Some(if tags.is_empty() { "\"-\"".into() } else { tags.join(", ") }), None)
            }
        };
        let again = WriteConditions::of(demanded.as_deref(), forbidden).unwrap();
        assert_eq!(again.0, condition);
        let sent = |name| lines.contains_key(name);
        assert_eq!(condition.is_some(), sent(header::IF_MATCH) || sent(header::IF_NONE_MATCH));
    }
    let Ok(conditions) = ReadConditions::parse(lines) else { return };
    let (one, two) = (conditions.judge(tag(1)), conditions.judge(tag(2)));
    let named = |name, version| {
        let lines = lines.get_all(name).iter();
        let text: Vec<u8> = lines.flat_map(|line| [line.as_bytes(), b","].concat()).collect();
        let quoted = tag(version).to_string();
        text.windows(quoted.len()).any(|part| part == quoted.as_bytes()) || text == b"*,"
    };
    for (answer, version) in [(one, 1), (two, 2)] {
        match answer {
            ReadAnswer::Mismatch => assert!(lines.contains_key(header::IF_MATCH)),
            ReadAnswer::NotModified => assert!(named(header::IF_NONE_MATCH, version)),
            ReadAnswer::Send => {}
        }
        if lines.contains_key(header::IF_MATCH) && answer != ReadAnswer::Mismatch {
            assert!(named(header::IF_MATCH, version));
        }
    }
}

fn numbers(lines: &HeaderMap) {
    let Ok(found) = FenceHeaders::parse(lines, &Extensions::new()) else { return };
    let single = |name: &str| {
        let mut all = lines.get_all(name).iter();
        let first = all.next().map(|value| value.to_str().unwrap().to_owned());
        assert!(all.next().is_none(), "{name} came twice");
        first
    };
    assert_eq!(found.sequence.map(|number| number.to_string()), single("x-fence-seq"));
    let version = found.resource_version.map(|number| number.to_string());
    assert_eq!(version, single("x-if-resource-version"));
    let lock = single("x-lock-id").map(|id| id.to_lowercase());
    assert_eq!(found.lock.map(|id| id.to_string()), lock);
}

/// What passes is what the body has: a body that differs in one bit does not.
fn digests(lines: &HeaderMap, body: &[u8]) {
    let Ok(whole) = Digests::parse(lines) else { return };
    let good = whole.check_whole(body).is_ok();
    let mut parts = Digests::parse(lines).unwrap();
    let (one, two) = body.split_at(body.len() / 2);
    parts.update(one);
    parts.update(two);
    assert_eq!(parts.check(&Sha256::digest(body).into()).is_ok(), good);
    let known = lines.contains_key("content-md5")
        || lines.get("repr-digest").is_some_and(|value| {
            let text = value.to_str().unwrap_or_default();
            text.split(',').any(|one| {
                matches!(one.trim().split_once('='), Some((name, _))
                if matches!(name, "sha-256" | "sha-512"))
            })
        });
    let mut other = body.to_vec();
    other.push(0);
    assert_eq!(Digests::parse(lines).unwrap().check_whole(&other).is_ok(), good && !known);
}

fn range(lines: &HeaderMap, size: u64) {
    for size in [size, 0, 1, u64::MAX] {
        let Selection::Part { first, last } = select(lines, tag(1), size) else { continue };
        assert!(first <= last && last < size);
        let mut again = HeaderMap::new();
        let range = HeaderValue::from_str(&format!("bytes={first}-{last}")).unwrap();
        again.insert(header::RANGE, range);
        assert_eq!(select(&again, tag(1), size), Selection::Part { first, last });
        assert!(matches!(select(&again, tag(1), first), Selection::Outside));
    }
}
