//! The operator's records, the audit and the refused writes, as they are followed: oldest first, none skipped.

/// A record that can be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// What was done to locks and resources.
    Audit,
    /// Refused writes.
    Rejections,
}

impl Log {
    /// The table that it is in.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Rejections => "rejections",
        }
    }
}

/// How far a record can be followed. Entries get their numbers before they are committed, so that one may become
/// visible behind others with higher numbers: whoever has passed those would never see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Nothing up to this number is still to come.
    pub upto: i64,
    /// Nothing up to this number is still to come once all of `writers` are done.
    pub reached: i64,
    /// Who was writing when `reached` was seen, as the ledger calls them; nobody if both numbers are the same.
    pub writers: Vec<String>,
}

/// The entries behind one number, up to another: they are listed oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Only numbers above this.
    pub after: i64,
    /// Only numbers up to this.
    pub upto: i64,
}
