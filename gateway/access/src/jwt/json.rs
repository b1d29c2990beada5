//! An object of JSON in which no name stands twice: else two readers of it could see two things.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::BadToken;

/// Its members, by name.
pub(super) struct Members(BTreeMap<String, Member>);

/// A member, as far as anything is asked of it. Not the library's own kind of value: that reads an object with a certain
/// private name as something else.
#[derive(Debug, PartialEq)]
pub(super) enum Member {
    Text(String),
    /// A whole number; a fraction is left off.
    Number(i64),
    /// A list of texts and of nothing else.
    Texts(Vec<String>),
    Other,
}

impl Members {
    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        self.0.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.text()
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, value)| Some((name.as_str(), value.text()?)))
    }

    /// A claim that is a time: seconds since 1970.
    pub(super) fn time(&self, name: &'static str) -> Result<Option<Timestamp>, BadToken> {
        match self.get(name) {
            None => Ok(None),
            Some(Member::Number(seconds)) => {
                Timestamp::from_second(*seconds).map(Some).map_err(|_| BadToken::Claim(name))
            }
            Some(_) => Err(BadToken::Claim(name)),
        }
    }
}

impl Member {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Member;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Member, E> {
                Ok(Member::Text(text.to_owned()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Member, E> {
                Ok(Member::Number(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Member, E> {
                Ok(i64::try_from(number).map_or(Member::Other, Member::Number))
            }

            #[expect(
                clippy::cast_possible_truncation,
                reason = "the fraction is left off; it fits"
            )]
            fn visit_f64<E: Error>(self, number: f64) -> Result<Member, E> {
                let fits = number.abs() < 1e15;
                Ok(if fits { Member::Number(number as i64) } else { Member::Other })
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Member, E> {
                Ok(Member::Other)
            }

            fn visit_unit<E: Error>(self) -> Result<Member, E> {
                Ok(Member::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Member, A::Error> {
                let mut texts = Some(Vec::new());
                while let Some(member) = list.next_element::<Member>()? {
                    match (member, &mut texts) {
                        (Member::Text(text), Some(texts)) => texts.push(text),
                        _ => texts = None,
                    }
                }
                Ok(texts.map_or(Member::Other, Member::Texts))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Member, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Member::Other)
            }
        }

        from.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object in which no name stands twice")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    if members.insert(name, value).is_some() {
                        return Err(A::Error::custom("a name stands there twice"));
                    }
                }
                Ok(Members(members))
            }
        }

        from.deserialize_map(Reader)
    }
}
