//! The names of principals.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Bytes of a principal's name.
pub const NAME_BYTES_MAX: usize = 128;

/// Why a text is no name of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalNameError {
    /// Empty, or too long.
    #[error("a principal's name has 1 to {NAME_BYTES_MAX} bytes")]
    Length,
    /// Another character.
    #[error(
        "a principal's name begins with a letter or digit, and has letters, digits and `. _ : / @ -`"
    )]
    Alphabet,
    /// It would be read as a role.
    #[error("a principal's name does not begin with `role:`")]
    Role,
}

/// Who acts: `[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}`, not `role:...`, compared by its bytes. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PrincipalName(Arc<str>);

impl PrincipalName {
    /// Checks the name.
    pub fn new(name: &str) -> Result<Self, PrincipalNameError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(PrincipalNameError::Length);
        }
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@-".contains(&byte);
        if !name.as_bytes()[0].is_ascii_alphanumeric() || !name.bytes().all(is_inner) {
            return Err(PrincipalNameError::Alphabet);
        }
        if name.starts_with("role:") {
            return Err(PrincipalNameError::Role);
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PrincipalName {
    type Error = PrincipalNameError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(&name)
    }
}

impl fmt::Display for PrincipalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<PrincipalName> for String {
    fn from(name: PrincipalName) -> Self {
        name.as_str().to_owned()
    }
}

/// What the name of a role begins with among writers.
const ROLE: &str = "role:";

/// Somebody who may write under a lock of somebody else: a principal, or all who have a role, `role:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WriterName(Arc<str>);

impl WriterName {
    /// Checks the name. That of a role has the same characters as that of a principal.
    pub fn new(name: &str) -> Result<Self, PrincipalNameError> {
        PrincipalName::new(name.strip_prefix(ROLE).unwrap_or(name))?;
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The role, if it names one.
    pub fn role(&self) -> Option<&str> {
        self.0.strip_prefix(ROLE)
    }
}

impl TryFrom<String> for WriterName {
    type Error = PrincipalNameError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(&name)
    }
}

impl From<WriterName> for String {
    fn from(name: WriterName) -> Self {
        name.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_never_repaired() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        for good in ["a", "worker-a", "billing/ci@eu", "system:serviceaccount:ns:Name", &longest] {
            assert_eq!(PrincipalName::new(good).map(|name| name.to_string()), Ok(good.to_owned()));
        }
        let too_long = "a".repeat(NAME_BYTES_MAX + 1);
        for (bad, why) in [
            ("", PrincipalNameError::Length),
            (too_long.as_str(), PrincipalNameError::Length),
            ("*", PrincipalNameError::Alphabet),
            ("a*", PrincipalNameError::Alphabet),
            ("-a", PrincipalNameError::Alphabet),
            (" a", PrincipalNameError::Alphabet),
            ("a\n", PrincipalNameError::Alphabet),
            ("ä", PrincipalNameError::Alphabet),
            ("role:loader", PrincipalNameError::Role),
        ] {
            assert_eq!(PrincipalName::new(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn a_writer_is_a_principal_or_a_role() {
        assert_eq!(
            WriterName::new("role:loader").map(|it| it.role().map(str::to_owned)),
            Ok(Some("loader".into()))
        );
        assert_eq!(WriterName::new("worker-b").map(|it| it.role().map(str::to_owned)), Ok(None));
        for bad in ["", "role:", "role:role:a", "a b", "role:a b"] {
            assert!(WriterName::new(bad).is_err(), "{bad:?}");
        }
    }
}
