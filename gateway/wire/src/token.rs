//! The fencing token: a positive 63-bit integer, strictly increasing per resource.

use std::fmt;
use std::num::NonZeroI64;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A fencing token. In headers and JSON it is a decimal string, because JSON numbers lose digits
/// above 2^53.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroI64);

/// The text is not `^[1-9][0-9]{0,18}$` or above 2^63-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a fence token is a decimal number from 1 to 9223372036854775807 without sign or leading zero"
)]
pub struct TokenError;

impl Token {
    /// The least token.
    pub const LEAST: Self = Self(NonZeroI64::new(1).unwrap());

    /// A token from a number; `None` unless it is positive.
    pub fn new(number: i64) -> Option<Self> {
        NonZeroI64::new(number).filter(|n| n.get() > 0).map(Self)
    }

    /// The number itself.
    pub fn get(self) -> i64 {
        self.0.get()
    }

    /// Parses the bytes of a header. The grammar is checked before the number, because
    /// `"+5".parse()` and `"007".parse()` would succeed.
    pub fn parse(text: &[u8]) -> Result<Self, TokenError> {
        let well_formed = matches!(text, [b'1'..=b'9', rest @ ..]
            if rest.len() <= 18 && rest.iter().all(u8::is_ascii_digit));
        if !well_formed {
            return Err(TokenError);
        }
        std::str::from_utf8(text)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .and_then(Self::new)
            .ok_or(TokenError)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(text.as_bytes()).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_plain_positive_decimals_are_tokens() {
        for bad in [
            "",
            " ",
            "0",
            "-1",
            "-0",
            "+5",
            "007",
            "0x21",
            "1e3",
            "1_000",
            "5.0",
            "5, 9",
            "٣",
            "５",
            "²",
            "9223372036854775808",
            "18446744073709551615",
            "99999999999999999999",
        ] {
            assert_eq!(Token::parse(bad.as_bytes()), Err(TokenError), "{bad:?}");
        }
        assert_eq!(Token::parse(b"9223372036854775807").unwrap().get(), i64::MAX);
    }

    proptest! {
        #[test]
        fn every_positive_number_survives_the_round_trip(number in 1..=i64::MAX) {
            let token = Token::new(number).unwrap();
            prop_assert_eq!(Token::parse(token.to_string().as_bytes()), Ok(token));
            let json = serde_json::to_string(&token).unwrap();
            prop_assert_eq!(json, format!("\"{number}\""));
        }

        #[test]
        fn whatever_parses_prints_as_it_was_written(text in "\\PC{0,24}") {
            if let Ok(token) = Token::parse(text.as_bytes()) {
                prop_assert_eq!(token.to_string(), text);
            }
        }
    }
}
