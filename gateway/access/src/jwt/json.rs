//! An object of JSON in which no name stands twice: else two readers of it could see two things.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use super::BadToken;

/// Its members, by name.
pub(super) struct Members(BTreeMap<String, Value>);

impl Members {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
    }

    /// A claim that is a time: seconds since 1970, perhaps with a fraction, which is left off.
    pub(super) fn time(&self, name: &'static str) -> Result<Option<Timestamp>, BadToken> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let seconds = value.as_i64().or_else(|| {
            let float = value.as_f64().filter(|float| float.abs() < 1e15)?;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the fraction is left off; it fits"
            )]
            Some(float as i64)
        });
        let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        time.map(Some).ok_or(BadToken::Claim(name))
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
