//! What the audit says was done to a lock, a resource or the whole ledger.

macro_rules! actions {
    ($($(#[doc = $doc:literal])+ $variant:ident, $word:literal;)+) => {
        /// What was done, in the audit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum AuditAction {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl AuditAction {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word in ledgers, queries and answers.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}

actions! {
    /// A lock was granted.
    Grant, "grant";
    /// A lock was handed over.
    Transfer, "transfer";
    /// An operator broke a lock, or set a time for it.
    Break, "break";
    /// That time came.
    Broken, "broken";
    /// An operator froze the resource.
    Freeze, "freeze";
    /// An operator unfroze it.
    Unfreeze, "unfreeze";
    /// An operator protected it from deletion.
    Protect, "protect";
    /// An operator lifted that.
    Unprotect, "unprotect";
    /// A fence was raised for a lock that is kept elsewhere.
    Fence, "fence";
    /// An operator confirmed that a forwarded request can no longer take effect.
    Resolve, "resolve";
    /// The ledger was re-fenced.
    Refence, "refence";
    /// A new epoch of the mint began.
    Epoch, "epoch";
    /// A new timeline of the ledger was adopted, which had lost nothing.
    Adopt, "adopt";
    /// An operator set what all gateways have alike, or the ledger's own time by its clock.
    Agree, "agree";
    /// An operator put other rules of access in force.
    Access, "access";
    /// A principal was refused what its rules do not allow.
    Denied, "denied";
    /// A credential was shown that is nobody's, or has ended.
    AuthFailed, "auth-failed";
    /// The tree over the audit goes on, after a re-fence, from where the ledger has gone back to.
    Fork, "fork";
}

impl AuditAction {
    /// Whether it is the grant of a lock or a fence.
    pub fn is_of_grant(self) -> bool {
        matches!(self, Self::Grant | Self::Transfer | Self::Fence)
    }

    /// From its word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|action| action.as_str() == word)
    }
}
