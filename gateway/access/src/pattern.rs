//! Which names a rule is about: one name, or all that begin with some text.
//!
//! `*` stands at the end alone, and behind a separator: `job*` would also cover `jobs-secret`, which whoever wrote it
//! hardly meant. A variable such as `${principal}` is filled in for each caller, and has a separator behind it or ends
//! the pattern.

use std::collections::BTreeSet;
use std::fmt;

use crate::mutants::{self, Mutant};

/// The longest pattern.
const PATTERN_BYTES_MAX: usize = 1024;

/// What a pattern's names are, and so which characters they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Resources.
    Resources,
    /// Requests to upstreams, as `NAME/PATH`.
    Upstreams,
    /// Subjects of tokens, SPIFFE ids and DNS names, which others have chosen.
    Subjects,
}

impl Names {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Resources => byte.is_ascii_alphanumeric() || self.separates(byte),
            Self::Upstreams => byte.is_ascii_graphic() && !b"*?#$\\".contains(&byte),
            Self::Subjects => byte.is_ascii_graphic() && !b"*$\\".contains(&byte),
        }
    }

    fn separates(self, byte: u8) -> bool {
        b"._~-:@#+=,".contains(&byte) || (self != Self::Resources && b"/|".contains(&byte))
    }
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Empty, or too long.
    #[error("a pattern has 1 to {PATTERN_BYTES_MAX} bytes")]
    Length,
    /// A character that no such name has.
    #[error("no name that this could cover has `{0}`")]
    Alphabet(char),
    /// `*` not at the end.
    #[error("`*` stands at the end alone")]
    InnerStar,
    /// `*` behind a letter or digit.
    #[error(
        "before `*` there must be a separator, such as `:`: `{0}*` also covers names that only begin alike"
    )]
    NoSeparator(String),
    /// `${...}` that is none of those there are.
    #[error(
        "`${{{0}}}` is not known: there are `${{principal}}`, `${{sub}}`, `${{spiffe}}`, `${{dns}}`, `${{claim.NAME}}`"
    )]
    Variable(String),
    /// A variable with a letter, digit, `*` or another variable behind it.
    #[error("behind `${{{0}}}` there must be a separator, such as `:`, or nothing")]
    VariableUnended(String),
    /// A variable where there is none to fill in.
    #[error("variables have no place here")]
    VariableForbidden,
}

/// What is filled in for a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// The caller's own name.
    Principal,
    /// The path of its SPIFFE id.
    Spiffe,
    /// The DNS name in its certificate.
    Dns,
    /// A claim of its token.
    Claim(String),
}

impl Variable {
    fn parse(name: &str) -> Result<Self, PatternError> {
        let is_claim = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match name {
            "principal" => Ok(Self::Principal),
            "spiffe" => Ok(Self::Spiffe),
            "dns" => Ok(Self::Dns),
            "sub" => Ok(Self::Claim("sub".to_owned())),
            _ => match name.strip_prefix("claim.") {
                Some(claim) if is_claim(claim) => Ok(Self::Claim(claim.to_owned())),
                _ => Err(PatternError::Variable(name.to_owned())),
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable(Variable),
}

/// A pattern as rules have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    names: Names,
    parts: Vec<Part>,
    is_open: bool,
}

impl Pattern {
    /// Reads a pattern.
    pub fn parse(text: &str, names: Names) -> Result<Self, PatternError> {
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::Length);
        }
        let (mut rest, is_open) = match text.strip_suffix('*') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let mut parts = Vec::new();
        while let Some(at) = rest.find("${") {
            let (before, behind) = (&rest[..at], &rest[at + 2..]);
            let (name, behind) = behind
                .split_once('}')
                .ok_or_else(|| PatternError::Variable(behind.chars().take(32).collect()))?;
            let variable = Variable::parse(name)?;
            let is_ended = match behind.bytes().next() {
                Some(byte) => names.separates(byte),
                None => !is_open,
            };
            if !is_ended {
                return Err(PatternError::VariableUnended(name.to_owned()));
            }
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Variable(variable));
            rest = behind;
        }
        parts.push(Part::Text(rest.to_owned()));
        for part in &parts {
            let Part::Text(literal) = part else { continue };
            match literal
                .chars()
                .find(|letter| !u8::try_from(*letter).is_ok_and(|it| names.has(it)))
            {
                Some('*') => return Err(PatternError::InnerStar),
                Some(letter) => return Err(PatternError::Alphabet(letter)),
                None => {}
            }
        }
        let before_star = rest.bytes().last();
        let is_separated = before_star.is_none_or(|byte| names.separates(byte));
        if is_open && !is_separated && !mutants::is(Mutant::PrefixWithoutSeparator) {
            return Err(PatternError::NoSeparator(rest.to_owned()));
        }
        Ok(Self { text: text.to_owned(), names, parts, is_open })
    }

    /// The same, without variables.
    pub fn parse_plain(text: &str, names: Names) -> Result<Scope, PatternError> {
        Self::parse(text, names)?
            .bind(&BTreeSet::new(), |_| None)
            .ok_or(PatternError::VariableForbidden)
    }

    /// The names that it covers for one caller; none if there is no value for a variable, or if a value would let it
    /// cover what another value is meant for: one with characters that no such name has, with the separator that ends
    /// it, or with one of `ends`, by which other patterns end theirs.
    pub fn bind(
        &self,
        ends: &BTreeSet<u8>,
        value_of: impl Fn(&Variable) -> Option<String>,
    ) -> Option<Scope> {
        let mut literal = String::new();
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                Part::Text(text) => literal.push_str(text),
                Part::Variable(variable) => {
                    let value = value_of(variable)?;
                    let end = match self.parts.get(at + 1) {
                        Some(Part::Text(text)) => text.bytes().next(),
                        _ => None,
                    };
                    let fits = |byte: u8| {
                        self.names.has(byte) && Some(byte) != end && !ends.contains(&byte)
                    };
                    if value.is_empty() || !value.bytes().all(fits) {
                        return None;
                    }
                    literal.push_str(&value);
                }
            }
        }
        Some(Scope { literal: literal.into(), is_open: self.is_open })
    }

    /// The values that its variables have if it was filled in to this text; none if it cannot be.
    pub(crate) fn values_in(&self, text: &str) -> Option<Vec<(&Variable, String)>> {
        let mut rest = text;
        let mut values = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                Part::Text(literal) => rest = rest.strip_prefix(literal.as_str())?,
                Part::Variable(variable) => {
                    // No value has the character that ends it.
                    let end = match self.parts.get(at + 1) {
                        Some(Part::Text(next)) if !next.is_empty() => rest.find(&next[..1])?,
                        _ => rest.len(),
                    };
                    let (value, behind) = rest.split_at(end);
                    values.push((variable, value.to_owned()));
                    rest = behind;
                }
            }
        }
        (rest.is_empty() && !self.is_open).then_some(values)
    }

    /// What stands directly behind its variables.
    pub(crate) fn ends(&self) -> impl Iterator<Item = u8> {
        self.parts.windows(2).filter_map(|pair| match pair {
            [Part::Variable(_), Part::Text(text)] => text.bytes().next(),
            _ => None,
        })
    }

    /// As rules have it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A pattern with its variables filled in: one name, or all that begin with some text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    literal: Box<str>,
    is_open: bool,
}

impl Scope {
    /// Every name.
    pub(crate) fn all() -> Self {
        Self { literal: "".into(), is_open: true }
    }

    /// Whether it covers this name.
    pub fn covers(&self, name: &str) -> bool {
        match self.is_open {
            // To compare no bytes at all takes processors hundreds of cycles, if they have vectors with masks.
            true => self.literal.is_empty() || name.starts_with(&*self.literal),
            false => name == &*self.literal,
        }
    }

    /// Whether it covers every name that begins so.
    pub fn covers_all(&self, prefix: &str) -> bool {
        self.is_open && prefix.starts_with(&*self.literal)
    }

    /// Tells whether it covers every name that the other one covers.
    pub(crate) fn covers_scope(&self, other: &Self) -> bool {
        match other.is_open {
            true => self.covers_all(&other.literal),
            false => self.covers(&other.literal),
        }
    }

    /// Whether it covers some name that begins so.
    pub fn covers_some(&self, prefix: &str) -> bool {
        self.literal.starts_with(prefix) || self.covers_all(prefix)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.literal, if self.is_open { "*" } else { "" })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resources(text: &str) -> Result<Pattern, PatternError> {
        Pattern::parse(text, Names::Resources)
    }

    #[test]
    pub(crate) fn what_covers_more_than_it_seems_to_is_refused() {
        use PatternError as E;
        let unended = |name: &str| E::VariableUnended(name.to_owned());
        for (bad, why) in [
            ("", E::Length),
            ("a*b", E::InnerStar),
            ("**", E::InnerStar),
            ("*:a", E::InnerStar),
            ("job*", E::NoSeparator("job".to_owned())),
            ("a b", E::Alphabet(' ')),
            ("a/b", E::Alphabet('/')),
            ("ä", E::Alphabet('ä')),
            ("$x", E::Alphabet('$')),
            ("job:${who}", E::Variable("who".to_owned())),
            ("job:${claim.}", E::Variable("claim.".to_owned())),
            ("job:${principal", E::Variable("principal".to_owned())),
            ("job:${principal}s", unended("principal")),
            ("job:${principal}*", unended("principal")),
            ("${sub}${dns}", unended("sub")),
        ] {
            assert_eq!(resources(bad).map(|it| it.text), Err(why), "{bad:?}");
        }
        let plain = Pattern::parse_plain("job:${sub}", Names::Resources);
        assert_eq!(plain, Err(E::VariableForbidden));
    }

    #[test]
    fn a_variable_is_filled_in_for_each_caller() {
        let pattern = resources("job:${principal}:*").expect("a pattern");
        let of = |name: &str| pattern.bind(&BTreeSet::new(), |_| Some(name.to_owned()));
        let scope = of("a").expect("it fits");
        assert_eq!(scope.to_string(), "job:a:*");
        assert!(scope.covers("job:a:1") && !scope.covers("job:ab:1") && !scope.covers("job:a"));
        // `job:a:*` of `a` would cover `job:a:b:1` of `a:b`.
        for bad in ["a:b", "a/b", "*", "", "a*"] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        assert_eq!(pattern.bind(&BTreeSet::new(), |_| None), None, "there is no value");
        let last = resources("mail.${claim.team}").expect("a pattern");
        let scope = last.bind(&BTreeSet::new(), |it| {
            (*it == Variable::Claim("team".into())).then(|| "x:y".into())
        });
        assert_eq!(scope.map(|it| it.to_string()), Some("mail.x:y".to_owned()));
        let ends = BTreeSet::from([b':']);
        assert_eq!(
            last.bind(&ends, |_| Some("x:y".into())),
            None,
            "another pattern ends its values so"
        );
    }

    /// What a pattern without variables covers, letter by letter.
    fn covers_naively(pattern: &str, name: &str) -> bool {
        let (mut pattern, mut name) = (pattern.chars(), name.chars());
        loop {
            match (pattern.next(), name.next()) {
                (Some('*'), _) | (None, None) => return true,
                (Some(one), Some(other)) if one == other => {}
                _ => return false,
            }
        }
    }

    proptest! {
        #[test]
        fn it_covers_what_begins_so(text in "[ab:.]{0,4}(:?\\*)?", name in "[ab:.]{1,6}", more in "[ab:.]{0,3}") {
            if let Ok(scope) = Pattern::parse_plain(&text, Names::Resources) {
                prop_assert_eq!(scope.covers(&name), covers_naively(&text, &name));
                let longer = format!("{name}{more}");
                prop_assert!(!scope.covers_all(&name) || scope.covers(&longer));
                prop_assert!(!scope.covers(&longer) || scope.covers_some(&name));
            }
        }

        #[test]
        fn no_text_is_too_odd(text in ".{0,40}") {
            for names in [Names::Resources, Names::Upstreams, Names::Subjects] {
                if let Ok(pattern) = Pattern::parse(&text, names) {
                    prop_assert_eq!(pattern.as_str(), &text);
                }
            }
        }
    }
}
