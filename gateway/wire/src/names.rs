//! Names that users choose: resources and object keys. Refused, never repaired.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use unicode_general_category::{GeneralCategory, get_general_category};

use crate::shown::is_hidden;
use unicode_normalization::is_nfc;

/// The longest resource name, in bytes.
pub const RESOURCE_BYTES_MAX: usize = 256;
/// The longest object key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// Why a name was refused; the text is shown to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or longer than the limit.
    #[error("it must have 1 to {0} bytes")]
    Length(usize),
    /// A character outside `A-Z a-z 0-9 . _ ~ - : @ # + = ,`.
    #[error("a resource name holds only A-Z a-z 0-9 . _ ~ - : @ # + = , and no slash")]
    Alphabet,
    /// `.` or `..`, as a name or as a segment of a key.
    #[error("'.' and '..' are not names")]
    Dots,
    /// Two slashes in a row, or one at an end.
    #[error("a key has no empty segment: no slash at its ends and no two in a row")]
    EmptySegment,
    /// A control or format character, such as NUL or a bidi mark.
    #[error("a key has no control or format characters")]
    Control,
    /// Text that is not in Unicode normalisation form C.
    #[error("a key must be in Unicode normalisation form C (NFC)")]
    NotNfc,
}

/// The name of a resource: what a lock covers and whose writers are ordered.
///
/// 1 to 256 bytes of `A-Z a-z 0-9 . _ ~ - : @ # + = ,`, not `.` or `..`. Upper and lower case are
/// different names. No slash, because proxies mangle `%2F`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// Checks the name.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        if name.is_empty() || name.len() > RESOURCE_BYTES_MAX {
            return Err(NameError::Length(RESOURCE_BYTES_MAX));
        }
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._~-:@#+=,".contains(&b);
        if !name.bytes().all(allowed) {
            return Err(NameError::Alphabet);
        }
        if name == "." || name == ".." {
            return Err(NameError::Dots);
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The key of an object inside a resource.
///
/// 1 to 1024 bytes of UTF-8 in NFC, without control or format characters and without empty, `.`
/// or `..` segments; S3 has others, too ([`any`](Self::any)). Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Checks the key.
    pub fn new(key: impl Into<String>) -> Result<Self, NameError> {
        let key = key.into();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(NameError::Length(KEY_BYTES_MAX));
        }
        let hidden =
            |c: char| is_hidden(c) || get_general_category(c) == GeneralCategory::Unassigned;
        // Most keys are ASCII, where little can be wrong.
        let is_ascii = key.is_ascii();
        let is_hidden = match is_ascii {
            true => key.bytes().any(|byte| byte.is_ascii_control()),
            false => key.chars().any(hidden),
        };
        if is_hidden {
            return Err(NameError::Control);
        }
        for segment in key.split('/') {
            match segment {
                "" => return Err(NameError::EmptySegment),
                "." | ".." => return Err(NameError::Dots),
                _ => {}
            }
        }
        if !is_ascii && !is_nfc(&key) {
            return Err(NameError::NotNfc);
        }
        Ok(Self(key.into()))
    }

    /// A key as S3 has them: any text of at most 1024 bytes without NUL; also an empty one, the marker of a directory that
    /// is a resource. Paths of the native API do not take those that [`new`](Self::new) refuses, since proxies rewrite
    /// them; paths of S3 are signed.
    pub fn any(key: impl Into<String>) -> Result<Self, NameError> {
        let key = key.into();
        match (key.len() > KEY_BYTES_MAX, key.contains('\0')) {
            (true, _) => Err(NameError::Length(KEY_BYTES_MAX)),
            (_, true) => Err(NameError::Control),
            (false, false) => Ok(Self(key.into())),
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How the error begins that is told of what is no resource name in JSON.
pub const NO_RESOURCE_NAME: &str = "not a resource name: ";
/// How the error begins that is told of what is no object key in JSON.
pub const NO_OBJECT_KEY: &str = "not an object key: ";

macro_rules! text {
    ($name:ident, $wrong:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let wrong = |error| serde::de::Error::custom(format!("{}{error}", $wrong));
                Self::new(text).map_err(wrong)
            }
        }
    };
}
text!(ResourceName, NO_RESOURCE_NAME);
text!(ObjectKey, NO_OBJECT_KEY);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn resource_names_outside_the_alphabet_are_refused() {
        for bad in ["", ".", "..", "a/b", "a b", "a%2Fb", "a\\b", "é", "a\0", "a\n"] {
            assert!(ResourceName::new(bad).is_err(), "{bad:?}");
        }
        assert!(ResourceName::new("x".repeat(256)).is_ok());
        assert!(ResourceName::new("x".repeat(257)).is_err());
        assert!(ResourceName::new("Job:a@b#1+c=d,e~f_g.h-i").is_ok());
    }

    #[test]
    fn keys_that_could_be_read_two_ways_are_refused() {
        for bad in [
            "",
            "/a",
            "a/",
            "a//b",
            "a/../b",
            "./a",
            "..",
            "a\u{0}b",
            "e\u{301}",
            "a\u{202e}b",
            "a\u{200d}b",
            "a\u{ad}b",
            "a\u{2028}b",
            "a\u{7f}b",
            "a\tb",
        ] {
            assert!(ObjectKey::new(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "a/b/c", "é", "日本語/x", "a b", "%2e%2e", "CON", "..."] {
            assert!(ObjectKey::new(good).is_ok(), "{good:?}");
        }
    }

    proptest! {
        #[test]
        fn accepted_keys_are_kept_to_the_byte(text in "\\PC{0,40}") {
            if let Ok(key) = ObjectKey::new(text.clone()) {
                prop_assert_eq!(key.as_str(), text);
            }
        }
    }
}
