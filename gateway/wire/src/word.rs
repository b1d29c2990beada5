//! A word of an answer that a newer gateway may have more of.

use serde::{Deserialize, Serialize};

/// A word that this version knows, or else the text: whoever reads answers must not stumble over a word
/// that a newer gateway has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word<T> {
    /// A word that this version knows.
    Known(T),
    /// A word that it does not.
    Other(String),
}

impl<T> Word<T> {
    /// The word, if this version knows it.
    pub fn known(self) -> Option<T> {
        match self {
            Self::Known(word) => Some(word),
            Self::Other(_) => None,
        }
    }
}

impl<T: Copy + Into<&'static str>> Word<T> {
    /// The word as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => (*word).into(),
            Self::Other(text) => text,
        }
    }
}

impl<T> From<T> for Word<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: PartialEq> PartialEq<T> for Word<T> {
    fn eq(&self, other: &T) -> bool {
        matches!(self, Self::Known(word) if word == other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockState;

    #[test]
    fn words_of_newer_gateways_are_kept_as_text() {
        let read = |text: &str| serde_json::from_str::<Word<LockState>>(text).unwrap();
        assert_eq!(read(r#""leased""#), LockState::Leased);
        assert_eq!(read(r#""dreaming""#), Word::Other("dreaming".into()));
        assert_eq!(serde_json::to_string(&read(r#""dreaming""#)).unwrap(), r#""dreaming""#);
        assert_eq!(serde_json::to_string(&Word::from(LockState::Leased)).unwrap(), r#""leased""#);
    }
}
