//! The rules of access as the ledger keeps them: which are in force, and putting others in their place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{AuditEntry, LedgerError};
use crate::principal::PrincipalName;

/// The rules that are in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesInForce {
    /// Rises with each change; 0 while there are none.
    pub generation: i64,
    /// Their text; none while there are none.
    pub text: Option<String>,
}

/// Which principal a role of the database is to `guard()`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseRole {
    /// The role, as `session_user` has it.
    pub role: String,
    /// All names of the principal, as [`super::By::names`] has them.
    pub names: String,
}

/// Rules that are to be put in force.
#[derive(Debug, Clone)]
pub struct RulesChange {
    /// The generation that they are to follow; none for whichever is in force.
    pub follows: Option<i64>,
    /// Their text.
    pub text: String,
    /// Which principals the roles of the database are.
    pub database_roles: Vec<DatabaseRole>,
    /// Who does it; none where no rules are in force.
    pub applied_by: Option<PrincipalName>,
    /// Why, for the record.
    pub reason: String,
    /// The request that asks for it, for the record.
    pub request_id: String,
    /// Who asks, and how: [`super::Asked`] as JSON.
    pub asked: Option<String>,
}

/// What became of such a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulesChanged {
    /// They are in force, as this generation.
    InForce(i64),
    /// Others were put in force in between, as this generation: nothing changed.
    Overtaken(i64),
}

/// What a principal has in the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stock {
    /// Locks that are in force.
    pub locks: i64,
    /// Resources that it was the first to lock, under rules: a fence is for ever.
    pub resources: i64,
    /// Objects that are as it put them.
    pub keys: i64,
    /// How large those are together.
    pub bytes: i64,
}

/// How long a count of what principals have is good enough.
pub const STOCKS_WITHIN: Duration = Duration::from_millis(800);

/// The part of the ledger that is about rules.
#[async_trait]
pub trait Rulebook: Send + Sync {
    /// The rules that are in force.
    async fn rules(&self) -> Result<RulesInForce, LedgerError>;

    /// Their generation.
    async fn rules_generation(&self) -> Result<i64, LedgerError>;

    /// Whether nobody but this process can put rules in force.
    fn has_rules_to_itself(&self) -> bool {
        false
    }

    /// Puts rules in force (I17). Waits for all acts under way; every act that comes later is held against them. So once
    /// this has returned, nothing takes effect that was allowed under older rules, through whichever gateway.
    async fn apply_rules(&self, change: RulesChange) -> Result<RulesChanged, LedgerError>;

    /// Adds to the audit who was refused what, by the rules or because nobody knows them.
    async fn record_refused(&self, entries: Arc<[AuditEntry]>) -> Result<(), LedgerError>;

    /// What these principals have, as it was no longer ago than [`STOCKS_WITHIN`], beside acts under way. Of a principal that
    /// has nothing there is none.
    async fn stocks(
        &self,
        of: &[PrincipalName],
    ) -> Result<BTreeMap<PrincipalName, Stock>, LedgerError>;
}
