//! The mint numbers grants.

use async_trait::async_trait;
use uuid::Uuid;

use crate::lock::LockId;
use crate::names::ResourceName;

/// At most this many resources are minted in one call.
pub const MINT_RESOURCES_MAX: usize = 100;

/// One grant that asks for a number.
#[derive(Debug, Clone)]
pub struct MintItem {
    /// The resource; each at most once in a call.
    pub resource: ResourceName,
    /// The lock that will carry the number, for people who look into the mint.
    pub lock: LockId,
    /// Its owner, for the same people.
    pub owner: String,
}

/// A lock that has ended and whose trace in the mint may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The resource.
    pub resource: ResourceName,
    /// The number under which it was minted; a trace of a later number stays.
    pub number: i64,
}

/// Why no number came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The mint could not be reached, or its answer was lost. Nothing is at stake: a number that
    /// was never sealed means nothing, so the caller simply mints again.
    #[error("the mint does not answer: {0}")]
    Unavailable(String),
    /// The mint carries another nonce than the ledger expects: it was restored, wiped, or belongs
    /// to another ledger. Its numbers may repeat, so none is taken.
    #[error("the mint is not the one that the ledger knows (incarnation {found:?})")]
    OtherIncarnation {
        /// The nonce found, if any.
        found: Option<Uuid>,
    },
}

/// Numbers grants, so that a ledger that was restored or failed over cannot hand out an old number
/// again.
///
/// Within one incarnation each call returns a number above all numbers returned by calls that
/// ended before it began. The mint only proposes: the ledger refuses what does not rise.
#[async_trait]
pub trait Mint: Send + Sync {
    /// A number for all `items`, if the mint still carries `nonce`. Traces of `ended` locks are
    /// removed on the way.
    async fn mint(
        &self,
        nonce: Uuid,
        items: &[MintItem],
        ended: &[Ended],
    ) -> Result<i64, MintError>;

    /// Makes the mint carry `nonce`, unless it already carries one. Returns what it carries now.
    async fn adopt(&self, nonce: Uuid) -> Result<Uuid, MintError>;

    /// The nonce that the mint carries, if any.
    async fn incarnation(&self) -> Result<Option<Uuid>, MintError>;
}
