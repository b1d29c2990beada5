//! What the settings of an upstream say in words of their own: its guarantee, and which part of its paths is
//! the resource.

use std::fmt;

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
