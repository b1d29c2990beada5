//! `If-Match` and `If-None-Match`, for writes and for reads.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use fence_core::EntityTag;
use fence_core::etag::ObjectCondition;

use crate::http::problem::Problem;

const TAGS_MAX: usize = 32;

/// What a header with entity tags says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    /// `*`
    Any,
    /// A list: whether each is weak, and the tag if it is one that we could have given out.
    Listed(Vec<(bool, Option<EntityTag>)>),
}

/// The conditions of a write on its object.
pub struct WriteConditions(pub Option<ObjectCondition>);

impl WriteConditions {
    /// Reads the headers. Both at once contradict each other, and a list in `If-None-Match` has no
    /// meaning for a write that anybody would want.
    pub fn parse(headers: &HeaderMap) -> Result<Self, Problem> {
        let demanded = tags(headers, &header::IF_MATCH)?;
        let forbidden = tags(headers, &header::IF_NONE_MATCH)?;
        let condition = match (demanded, forbidden) {
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(Problem::malformed("send If-Match or If-None-Match, not both"));
            }
            (Some(Tags::Any), None) => Some(ObjectCondition::Exists),
            (Some(Tags::Listed(list)), None) => Some(ObjectCondition::OneOf(strong(&list))),
            (None, Some(Tags::Any)) => Some(ObjectCondition::Absent),
            (None, Some(Tags::Listed(_))) => {
                return Err(Problem::malformed("on a write, If-None-Match can only be *"));
            }
        };
        Ok(Self(condition))
    }

    /// Reads them where they stand in JSON, with the meaning that they have as headers.
    pub fn of(if_match: Option<&str>, if_none_match: Option<&str>) -> Result<Self, Problem> {
        let mut headers = HeaderMap::new();
        let sent = [(header::IF_MATCH, if_match), (header::IF_NONE_MATCH, if_none_match)];
        for (name, text) in sent {
            let Some(text) = text else { continue };
            let value = HeaderValue::from_str(text);
            let value = value.map_err(|_| Problem::malformed("a tag is visible ASCII"))?;
            headers.insert(name, value);
        }
        Self::parse(&headers)
    }
}

/// A weak tag never matches where the bytes must be the very same.
fn strong(list: &[(bool, Option<EntityTag>)]) -> Vec<EntityTag> {
    list.iter().filter(|(weak, _)| !weak).filter_map(|(_, tag)| *tag).collect()
}

/// The conditions of a read on an object that exists.
pub struct ReadConditions {
    demanded: Option<Tags>,
    known: Option<Tags>,
}

/// What the conditions make of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAnswer {
    /// The bytes.
    Send,
    /// The caller has them already: 304.
    NotModified,
    /// It is not the version that the caller demands: 412.
    Mismatch,
}

impl ReadConditions {
    /// Reads the headers.
    pub fn parse(headers: &HeaderMap) -> Result<Self, Problem> {
        Ok(Self {
            demanded: tags(headers, &header::IF_MATCH)?,
            known: tags(headers, &header::IF_NONE_MATCH)?,
        })
    }

    /// Compares with the object's tag: strongly for `If-Match`, weakly for `If-None-Match`.
    pub fn judge(&self, current: EntityTag) -> ReadAnswer {
        if let Some(Tags::Listed(list)) = &self.demanded
            && !strong(list).contains(&current)
        {
            return ReadAnswer::Mismatch;
        }
        match &self.known {
            Some(Tags::Any) => ReadAnswer::NotModified,
            Some(Tags::Listed(list)) if list.iter().any(|(_, tag)| *tag == Some(current)) => {
                ReadAnswer::NotModified
            }
            _ => ReadAnswer::Send,
        }
    }
}

/// All lines of the header as one list, as HTTP has it.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
    let malformed =
        || Problem::malformed(format!("{name} is * or at most {TAGS_MAX} entity tags in quotes"));
    let mut lines = headers.get_all(name).iter().peekable();
    if lines.peek().is_none() {
        return Ok(None);
    }
    let mut joined = Vec::new();
    for line in lines {
        if !joined.is_empty() {
            joined.push(b',');
        }
        joined.extend_from_slice(line.as_bytes());
    }
    if joined.trim_ascii() == b"*" {
        return Ok(Some(Tags::Any));
    }
    let list = list(&joined).filter(|list| (1..=TAGS_MAX).contains(&list.len()));
    list.map(|list| Some(Tags::Listed(list))).ok_or_else(malformed)
}

/// `[W/]"..."`, separated by commas, which may also stand inside the quotes.
fn list(mut text: &[u8]) -> Option<Vec<(bool, Option<EntityTag>)>> {
    let mut found = Vec::new();
    loop {
        text = text.trim_ascii_start();
        let weak = text.starts_with(b"W/");
        let quoted = if weak { &text[2..] } else { text };
        let length = quoted.strip_prefix(b"\"")?.iter().position(|byte| *byte == b'"')? + 2;
        let tag = &quoted[..length];
        let inside = &tag[1..length - 1];
        if inside.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return None;
        }
        found.push((weak, std::str::from_utf8(tag).ok().and_then(EntityTag::parse)));
        text = quoted[length..].trim_ascii_start();
        match text {
            [] => return Some(found),
            [b',', rest @ ..] => text = rest,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(name, HeaderValue::from_static(value));
        }
        map
    }

    fn tag(version: i64) -> EntityTag {
        EntityTag { generation: 0, version }
    }

    fn write(lines: &[(HeaderName, &'static str)]) -> Result<Option<ObjectCondition>, ()> {
        WriteConditions::parse(&headers(lines)).map(|found| found.0).map_err(|_| ())
    }

    #[test]
    fn writes_take_one_condition() {
        use header::{IF_MATCH, IF_NONE_MATCH};
        assert_eq!(write(&[]), Ok(None));
        assert_eq!(write(&[(IF_MATCH, "*")]), Ok(Some(ObjectCondition::Exists)));
        assert_eq!(write(&[(IF_NONE_MATCH, "*")]), Ok(Some(ObjectCondition::Absent)));
        let both = Ok(Some(ObjectCondition::OneOf(vec![tag(1), tag(2)])));
        assert_eq!(write(&[(IF_MATCH, "\"g0-v1\", \"g0-v2\"")]), both);
        assert_eq!(write(&[(IF_MATCH, "\"g0-v1\""), (IF_MATCH, "\"g0-v2\"")]), both);
        assert!(write(&[(IF_NONE_MATCH, "\"g0-v1\"")]).is_err());
        assert!(write(&[(IF_NONE_MATCH, "*"), (IF_MATCH, "*")]).is_err());
    }

    #[test]
    fn weak_and_foreign_tags_never_match_a_write() {
        let none = Ok(Some(ObjectCondition::OneOf(vec![])));
        assert_eq!(write(&[(header::IF_MATCH, "W/\"g0-v1\"")]), none);
        assert_eq!(write(&[(header::IF_MATCH, "\"abc,def\"")]), none);
    }

    #[test]
    fn malformed_lists_are_refused() {
        for bad in ["", "g0-v1", "\"a", "\"a\" \"b\"", "\"a\",", ",", "*, \"a\"", "'a'", "\"a b\""]
        {
            assert!(write(&[(header::IF_MATCH, bad)]).is_err(), "{bad}");
        }
        let many = vec![(header::IF_MATCH, "\"a\""); TAGS_MAX + 1];
        assert!(write(&many).is_err());
    }

    #[test]
    fn reads_compare_weakly_for_caches_and_strongly_for_demands() {
        let judge = |name: HeaderName, value| {
            ReadConditions::parse(&headers(&[(name, value)])).unwrap().judge(tag(1))
        };
        assert_eq!(judge(header::IF_NONE_MATCH, "W/\"g0-v1\""), ReadAnswer::NotModified);
        assert_eq!(judge(header::IF_NONE_MATCH, "*"), ReadAnswer::NotModified);
        assert_eq!(judge(header::IF_NONE_MATCH, "\"g0-v2\""), ReadAnswer::Send);
        assert_eq!(judge(header::IF_MATCH, "W/\"g0-v1\""), ReadAnswer::Mismatch);
        assert_eq!(judge(header::IF_MATCH, "\"g0-v1\""), ReadAnswer::Send);
        assert_eq!(judge(header::IF_MATCH, "*"), ReadAnswer::Send);
    }
}
