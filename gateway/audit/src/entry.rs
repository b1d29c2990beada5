//! What is hashed of an entry: its fields by name, so that any language can do the same, and its place in the audit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::tree::{Hash, leaf_hash};

/// What all that is hashed begins with.
const FORM: &str = "fencegate-audit-1\n";

/// The fields of an entry that it has, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Entry(BTreeMap<String, String>);

impl Entry {
    /// The same with one field more, if there is something in it.
    #[must_use]
    pub fn with(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.to_string());
        }
        self
    }

    /// All its fields.
    pub fn into_fields(self) -> BTreeMap<String, String> {
        self.0
    }

    /// A field of it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The bytes that are hashed: a line that says which form this is, then `name:length:value` and a line feed for each
    /// field, in the order of the bytes of their names. The length is that of the value in bytes of UTF-8.
    pub fn canonical(&self) -> Vec<u8> {
        let mut bytes = FORM.as_bytes().to_vec();
        for (name, value) in &self.0 {
            bytes.extend_from_slice(format!("{name}:{}:{value}\n", value.len()).as_bytes());
        }
        bytes
    }

    /// The SHA-256 of those.
    pub fn digest(&self) -> Hash {
        Sha256::digest(self.canonical()).into()
    }
}

impl From<BTreeMap<String, String>> for Entry {
    fn from(fields: BTreeMap<String, String>) -> Self {
        Self(fields)
    }
}

/// What the tree keeps of an entry, also once the entry itself is let go: of grants, as history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    /// The number of the entry in the audit.
    pub number: i64,
    /// Whether it is a grant: nothing else is ever let go.
    pub is_grant: bool,
    /// The digest of its fields.
    pub digest: Hash,
}

impl Leaf {
    /// What is hashed of it: four lines, which form this is, the number, `grant` or `record`, and the digest in hex.
    pub fn hash(&self) -> Hash {
        let kind = if self.is_grant { "grant" } else { "record" };
        let digest = hex::encode(self.digest);
        leaf_hash(format!("{FORM}{}\n{kind}\n{digest}\n", self.number).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_something_else_has_another_form() {
        let entry = Entry::default().with("reason", Some("a\nb")).with("number", Some(7));
        let entry = entry.with("owner", None::<&str>);
        assert_eq!(entry.canonical(), b"fencegate-audit-1\nnumber:1:7\nreason:3:a\nb\n");
        // A value cannot pass for a field.
        let one = Entry::default().with("a", Some("x\nb:1:y"));
        let two = Entry::default().with("a", Some("x")).with("b", Some("y"));
        assert_ne!(one.canonical(), two.canonical());
        let leaf = Leaf { number: 1, is_grant: true, digest: one.digest() };
        for other in [
            Leaf { number: 2, ..leaf },
            Leaf { is_grant: false, ..leaf },
            Leaf { digest: two.digest(), ..leaf },
        ] {
            assert_ne!(leaf.hash(), other.hash());
        }
    }
}
