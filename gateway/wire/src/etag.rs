//! Entity tags: the generation and the version that last wrote an object, never a hash of it.

use std::fmt;

/// `"g0-v17"`: written by version 17 of its resource, in generation 0.
///
/// The generation rises with each re-fence, so that a version that recurs after the ledger was
/// rolled back never matches a tag handed out before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityTag {
    /// The ledger's generation at the time of the write.
    pub generation: i64,
    /// The version of the resource that wrote the object.
    pub version: i64,
}

impl EntityTag {
    /// Parses the quoted form. `None` for anything that is not one of ours: such a tag simply
    /// never matches.
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_bare(text.strip_prefix('"')?.strip_suffix('"')?)
    }

    fn parse_bare(text: &str) -> Option<Self> {
        let (generation, version) = text.strip_prefix('g')?.split_once("-v")?;
        let tag = Self { generation: generation.parse().ok()?, version: version.parse().ok()? };
        (tag.bare() == text).then_some(tag)
    }

    /// The tag without its quotes, as the ledgers compare it.
    pub fn bare(&self) -> String {
        format!("g{}-v{}", self.generation, self.version)
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"g{}-v{}\"", self.generation, self.version)
    }
}

/// What a write demands of its object, from `If-Match` and `If-None-Match`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectCondition {
    /// `If-Match: *`: the object exists.
    Exists,
    /// `If-None-Match: *`: the object does not exist.
    Absent,
    /// `If-Match: "g0-v1", "g0-v2"`: the object carries one of these tags.
    OneOf(Vec<EntityTag>),
}

impl ObjectCondition {
    /// Whether an object with this tag (`None`: no object) meets the condition.
    pub fn holds(&self, current: Option<EntityTag>) -> bool {
        match self {
            Self::Exists => current.is_some(),
            Self::Absent => current.is_none(),
            Self::OneOf(tags) => current.is_some_and(|tag| tags.contains(&tag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_form_is_a_tag() {
        let tag = EntityTag { generation: 0, version: 17 };
        assert_eq!(tag.to_string(), "\"g0-v17\"");
        assert_eq!(EntityTag::parse("\"g0-v17\""), Some(tag));
        for other in ["g0-v17", "\"g0-v017\"", "W/\"g0-v17\"", "\"g0-v+17\"", "\"\"", "\"g-v\""] {
            assert_eq!(EntityTag::parse(other), None, "{other}");
        }
    }
}
