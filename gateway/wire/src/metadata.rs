//! What a holder notes on its lock: a few words for people, which no decision reads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Keys and values, within limits of number and size. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata(Arc<BTreeMap<String, String>>);

/// Metadata outside its limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "metadata is an object of at most 16 strings and 4096 bytes of JSON; a key has 1 to 64 bytes \
     and no control characters, a value at most 1024 bytes and no NUL"
)]
pub struct MetadataError;

impl Metadata {
    /// The most entries.
    pub const ENTRIES_MAX: usize = 16;
    /// The longest key, in bytes.
    pub const KEY_BYTES_MAX: usize = 64;
    /// The longest value, in bytes.
    pub const VALUE_BYTES_MAX: usize = 1024;
    /// The longest whole, in bytes of JSON without spaces.
    pub const BYTES_MAX: usize = 4096;

    /// Metadata within its limits. A value holds no NUL, which Postgres cannot store.
    pub fn new(entries: BTreeMap<String, String>) -> Result<Self, MetadataError> {
        let good = |(key, value): (&String, &String)| {
            (1..=Self::KEY_BYTES_MAX).contains(&key.len())
                && !key.chars().any(char::is_control)
                && value.len() <= Self::VALUE_BYTES_MAX
                && !value.contains('\0')
        };
        if entries.len() > Self::ENTRIES_MAX || !entries.iter().all(good) {
            return Err(MetadataError);
        }
        let metadata = Self(Arc::new(entries));
        if metadata.to_json().len() > Self::BYTES_MAX {
            return Err(MetadataError);
        }
        Ok(metadata)
    }

    /// The entries.
    pub fn entries(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// As JSON, as the ledgers keep it.
    pub fn to_json(&self) -> String {
        // INVARIANT: a map of strings always serializes.
        serde_json::to_string(self).expect("strings are JSON")
    }

    /// Metadata read back from a ledger, which only holds checked ones.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(|entries| Self(Arc::new(entries)))
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if entries.insert(key, value).is_some() {
                        return Err(A::Error::custom("metadata names a key twice"));
                    }
                }
                Metadata::new(entries).map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<const N: usize>(entries: [(String, String); N]) -> Result<Metadata, MetadataError> {
        Metadata::new(BTreeMap::from(entries))
    }

    #[test]
    fn metadata_is_bounded_in_every_direction() {
        let text = |bytes: usize| "x".repeat(bytes);
        assert!(of([]).is_ok());
        assert!(of([(text(64), text(1024))]).is_ok());
        assert!(of([("é".into(), "\u{1}\n ok".into())]).is_ok());
        for (key, value) in [
            (String::new(), "x".into()),
            (text(65), "x".into()),
            ("a\nb".into(), "x".into()),
            ("a\u{85}b".into(), "x".into()),
            ("k".into(), text(1025)),
            ("k".into(), "\0".into()),
        ] {
            assert_eq!(of([(key, value)]), Err(MetadataError));
        }
        let many = |count: usize, bytes: usize| {
            Metadata::new((0..count).map(|n| (format!("{n:02}"), text(bytes))).collect())
        };
        assert!(many(16, 1).is_ok() && many(17, 1).is_err());
        // `{"00":"",` and so on: 8 bytes around each value, and one more in all.
        assert_eq!(many(4, 1015).unwrap().to_json().len(), 4093);
        assert!(many(4, 1016).is_err());
    }

    #[test]
    fn metadata_reads_back_what_it_wrote() {
        let metadata = of([("a \"b\"".into(), "ü\u{7}\n".into())]).unwrap();
        assert_eq!(Metadata::from_json(&metadata.to_json()).unwrap(), metadata);
        assert!(serde_json::from_str::<Metadata>(r#"{"a":"1","a":"2"}"#).is_err());
        assert!(serde_json::from_str::<Metadata>(r#"{"a":1}"#).is_err());
    }
}
