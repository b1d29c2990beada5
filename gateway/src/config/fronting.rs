//! What the settings of an upstream say in words of their own: its guarantee, which part of its paths is the
//! resource and how that looks, and what becomes of a caller's credentials.

use std::fmt;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a 2xx of an upstream promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Nothing of an older token is under way once a newer one was given out.
    Drained,
    /// A stale token is not admitted once a newer one was given out; what was admitted before may still
    /// be sent, and may land.
    Admission,
}

impl Guarantee {
    /// The word in settings and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Admission => "admission",
        }
    }
}

/// What becomes of `Authorization` and `Cookie` of a caller, and of `Set-Cookie` of an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// They end at the gateway.
    #[default]
    Strip,
    /// They are the upstream's, and passed.
    Pass,
    /// They end at the gateway, which has a credential of its own for the upstream: what this file holds.
    File(PathBuf),
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strip => f.write_str("strip"),
            Self::Pass => f.write_str("pass"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl Serialize for Credentials {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Credentials {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match (text.as_str(), text.strip_prefix("file:").map(Path::new)) {
            ("strip", _) => Ok(Self::Strip),
            ("pass", _) => Ok(Self::Pass),
            (_, Some(path)) if path.is_absolute() => Ok(Self::File(path.into())),
            _ => Err(serde::de::Error::custom(format!(
                "authorization is strip, pass or file:/PATH, not {text:?}"
            ))),
        }
    }
}

/// How the part of a path looks that is the resource. A service that takes two spellings for one record would
/// let two holders write it, each behind a fence of its own.
#[derive(Debug, Clone)]
pub enum ResourceForm {
    /// A number without leading zeros.
    Digits,
    /// A UUID in lower case.
    UuidLower,
    /// A word in lower case: a letter, then letters, digits, `-` and `_`.
    Lower,
    /// Whatever makes the name of a resource.
    Any,
    /// What this matches from beginning to end; the text is as it was written.
    Matching(Anchored),
}

/// A regular expression that is held against the whole text.
#[derive(Debug, Clone)]
pub struct Anchored {
    written: String,
    whole: Regex,
}

/// The most memory that a compiled expression may take.
const REGEX_BYTES_MAX: usize = 256 * 1024;

impl ResourceForm {
    /// Reads the word for a form, or an expression that begins with `^` and ends with `$`.
    ///
    /// # Errors
    /// Why it is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "digits" => return Ok(Self::Digits),
            "uuid-lower" => return Ok(Self::UuidLower),
            "lower" => return Ok(Self::Lower),
            "any" => return Ok(Self::Any),
            _ => {}
        }
        if !text.starts_with('^') || !text.ends_with('$') || text.ends_with("\\$") {
            return Err(format!(
                "resource_form {text:?} is not digits, uuid-lower, lower, any or a regular expression from \
                 ^ to $"
            ));
        }
        // Once more from end to end: an alternative would be anchored on one side only.
        let whole = regex::RegexBuilder::new(&format!(r"\A(?:{text})\z"))
            .size_limit(REGEX_BYTES_MAX)
            .build();
        let whole = whole.map_err(|error| format!("resource_form {text:?}: {error}"))?;
        Ok(Self::Matching(Anchored { written: text.to_owned(), whole }))
    }

    /// Whether a part of a path has the form.
    pub fn fits(&self, part: &str) -> bool {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let word =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        match self {
            Self::Digits => {
                part == "0"
                    || (!part.starts_with('0') && is_all(part, |byte| byte.is_ascii_digit()))
            }
            Self::UuidLower => {
                part.len() == 36
                    && part.bytes().enumerate().all(|(at, byte)| match at {
                        8 | 13 | 18 | 23 => byte == b'-',
                        _ => hex(byte),
                    })
            }
            Self::Lower => part.starts_with(|c: char| c.is_ascii_lowercase()) && is_all(part, word),
            Self::Any => true,
            Self::Matching(form) => form.whole.is_match(part),
        }
    }

    /// What a part has to be, for people.
    pub fn wanted(&self) -> String {
        match self {
            Self::Digits => "a number without leading zeros".into(),
            Self::UuidLower => "a UUID in lower case".into(),
            Self::Lower => {
                "a lower-case letter, then lower-case letters, digits, '-' and '_'".into()
            }
            Self::Any => "anything".into(),
            Self::Matching(form) => format!("as {}", form.written),
        }
    }

    fn written(&self) -> &str {
        match self {
            Self::Digits => "digits",
            Self::UuidLower => "uuid-lower",
            Self::Lower => "lower",
            Self::Any => "any",
            Self::Matching(form) => &form.written,
        }
    }
}

fn is_all(part: &str, good: impl Fn(u8) -> bool) -> bool {
    !part.is_empty() && part.bytes().all(good)
}

impl PartialEq for ResourceForm {
    fn eq(&self, other: &Self) -> bool {
        self.written() == other.written()
    }
}

impl Serialize for ResourceForm {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.written())
    }
}

impl<'de> Deserialize<'de> for ResourceForm {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// What stands for the resource in a pattern.
const RESOURCE: &str = "{resource}";

/// The beginning of a path, one segment of which is the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    before: Vec<String>,
    after: Vec<String>,
}

impl Pattern {
    /// Reads a pattern such as `/customers/{resource}`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix('/').ok_or("it must begin with a slash")?;
        let segments: Vec<&str> = rest.split('/').collect();
        let at = segments.iter().position(|segment| *segment == RESOURCE);
        let at = at.ok_or_else(|| format!("one of its segments must be {RESOURCE}"))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        let literals = || segments.iter().enumerate().filter(|(i, _)| *i != at);
        for (_, literal) in literals() {
            if literal.is_empty() || [".", ".."].contains(literal) || !literal.chars().all(plain) {
                return Err(format!(
                    "{literal:?} is not a segment of letters, digits, '-', '.', '_' and '~'"
                ));
            }
        }
        let part = |range: &[&str]| range.iter().map(|segment| (*segment).to_owned()).collect();
        Ok(Self { before: part(&segments[..at]), after: part(&segments[at + 1..]) })
    }

    /// The segment of a path that is the resource, as it was sent; `None` if the path does not match.
    pub fn resource<'p>(&self, path: &'p str) -> Option<&'p str> {
        let mut segments = path.strip_prefix('/')?.split('/');
        let same = |literals: &[String], segments: &mut std::str::Split<'p, char>| {
            literals.iter().all(|literal| segments.next() == Some(literal.as_str()))
        };
        if !same(&self.before, &mut segments) {
            return None;
        }
        let resource = segments.next().filter(|segment| !segment.is_empty())?;
        same(&self.after, &mut segments).then_some(resource)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.before {
            write!(f, "/{segment}")?;
        }
        write!(f, "/{RESOURCE}")?;
        for segment in &self.after {
            write!(f, "/{segment}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_says_which_segment_is_the_resource() {
        let pattern = Pattern::parse("/v1/customers/{resource}").unwrap();
        assert_eq!(pattern.to_string(), "/v1/customers/{resource}");
        assert_eq!(pattern.resource("/v1/customers/7"), Some("7"));
        assert_eq!(pattern.resource("/v1/customers/7/orders/1"), Some("7"));
        assert_eq!(pattern.resource("/v1/customers/7/"), Some("7"));
        for other in
            ["/v1/customers", "/v1/customers/", "/v1/Customers/7", "/v1/c%75stomers/7", "/"]
        {
            assert_eq!(pattern.resource(other), None, "{other}");
        }
        let nested = Pattern::parse("/a/{resource}/b").unwrap();
        assert_eq!(nested.resource("/a/7/b/c"), Some("7"));
        assert_eq!(nested.resource("/a/7"), None);
    }

    #[test]
    fn one_record_has_one_spelling() {
        let cases: [(&str, &[&str], &[&str]); 5] = [
            (
                "digits",
                &["0", "7", "70", "18446744073709551616"],
                &["", "07", "00", "7.json", "7a", "+7", "٣"],
            ),
            (
                "uuid-lower",
                &["67e55044-10b1-426f-9247-bb680e5fe0c8"],
                &[
                    "",
                    "67E55044-10b1-426f-9247-bb680e5fe0c8",
                    "67e5504410b1426f9247bb680e5fe0c8",
                    "67e55044-10b1-426f-9247-bb680e5fe0c",
                    "67e55044-10b1-426f-9247-bb680e5fe0c8.json",
                ],
            ),
            ("lower", &["a", "eu-west_1"], &["", "A", "aB", "1a", "7", "a.json", "-a", "é"]),
            (
                "^(de|fr)-[0-9]{1,3}$",
                &["de-1", "fr-999"],
                &["", "de-1000", "de-1\n", "xde-1", "DE-1"],
            ),
            // Anchored as a whole, not only the first and the last alternative.
            ("^a|b$", &["a", "b"], &["ax", "xb", "ab"]),
        ];
        for (form, good, bad) in cases {
            let form = ResourceForm::parse(form).unwrap();
            good.iter().for_each(|part| assert!(form.fits(part), "{form:?} {part}"));
            bad.iter().for_each(|part| assert!(!form.fits(part), "{form:?} {part}"));
        }
        assert!(ResourceForm::parse("any").unwrap().fits("Whatever.json"));
        for bad in ["", "Digits", "[0-9]+", "^a", "a$", "^a\\$", "^($", "^(a{500}){500}$"] {
            assert!(ResourceForm::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_are_checked() {
        for bad in [
            "",
            "customers/{resource}",
            "/customers",
            "/customers/{id}",
            "/a//{resource}",
            "/../{resource}",
            "/a b/{resource}",
            "/{resource}/{resource}",
            "/a/{resource}/",
            "/%61/{resource}",
        ] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }
}
