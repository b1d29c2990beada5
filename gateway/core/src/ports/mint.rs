//! The mint numbers grants.

use async_trait::async_trait;
use uuid::Uuid;

use super::act::Unwritable;
use super::disasters::{Milestone, Witness};
use crate::names::ResourceName;

/// At most this many resources are minted in one call, and so as many grants.
pub const MINT_RESOURCES_MAX: usize = 100;

/// One grant that asks for a number.
#[derive(Debug, Clone)]
pub struct MintItem {
    /// Its resources; each at most once in a call.
    pub resources: Vec<ResourceName>,
    /// Its owner, for people who look into the mint.
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
    /// The mint answers, and takes nothing new.
    #[error("the mint takes nothing new: {0}")]
    Unwritable(Unwritable),
    /// The mint carries another nonce than the ledger expects: it was restored, wiped, or belongs
    /// to another ledger. Its numbers may repeat, so none is taken.
    #[error("the mint is not the one that the ledger knows (incarnation {found:?})")]
    OtherIncarnation {
        /// The nonce found, if any.
        found: Option<Uuid>,
    },
    /// The mint serves another ledger. Two ledgers on one mint would take turns in replacing each
    /// other's nonce, so this one leaves it alone.
    #[error(
        "the mint serves another ledger ({found}), not this one ({expected}): give each its own \
         etcd_prefix"
    )]
    OtherLedger {
        /// The ledger that it serves.
        found: Uuid,
        /// The ledger that asked.
        expected: Uuid,
    },
}

/// What a mint carries besides its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// No number that was handed out before lies above this one.
    pub number: i64,
    /// The nonce.
    pub incarnation: Option<Uuid>,
    /// The ledger that it serves.
    pub ledger: Option<Uuid>,
    /// How far that ledger has been.
    pub witness: Option<Witness>,
    /// Changes with the witness; 0 if there is none.
    pub witness_revision: i64,
}

impl Head {
    /// The newest milestone that the mint knows, of whatever line.
    pub fn milestone(&self) -> Option<Milestone> {
        self.witness.as_ref().and_then(|witness| witness.milestone)
    }

    /// Refuses a mint that serves another ledger.
    pub fn check_owner(&self, expected: Uuid) -> Result<(), MintError> {
        match self.ledger {
            Some(found) if found != expected => Err(MintError::OtherLedger { found, expected }),
            _ => Ok(()),
        }
    }
}

/// What a mint is to carry from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carry {
    /// The nonce.
    pub nonce: Uuid,
    /// The ledger that it serves.
    pub ledger: Uuid,
    /// How far that ledger is, with the base of the epoch of this nonce.
    pub witness: Witness,
}

/// Numbers grants, so that a ledger that was restored or failed over cannot hand out an old number
/// again.
///
/// Within one incarnation each call returns numbers above all numbers returned by calls that
/// ended before it began, and no two items ever get the same one. The mint only proposes: the ledger
/// refuses what does not rise, and what names another grant already (I15).
#[async_trait]
pub trait Mint: Send + Sync {
    /// A number for each of the `items`, in their order, if the mint still carries `nonce`. Traces of
    /// `ended` locks are removed on the way.
    async fn mint(
        &self,
        nonce: Uuid,
        items: &[MintItem],
        ended: &[Ended],
    ) -> Result<Vec<i64>, MintError>;

    /// Makes the mint carry `nonce`, unless it already carries one, and serve `ledger`, unless it
    /// serves another one. Returns the nonce that it carries now.
    async fn adopt(&self, nonce: Uuid, ledger: Uuid) -> Result<Uuid, MintError>;

    /// What the mint carries now, and how far its numbers are. Never an old state.
    async fn head(&self) -> Result<Head, MintError>;

    /// Puts another nonce in place of the one that `seen` has, together with the witness: `false`,
    /// and nothing changes, if the mint carries something else by now.
    async fn replace(&self, seen: &Head, carry: &Carry) -> Result<bool, MintError>;

    /// Puts a witness in place of the one that `seen` has: `false`, and nothing changes, if there is
    /// another one by now, or if the mint does not serve `ledger`.
    async fn raise(&self, seen: &Head, ledger: Uuid, witness: &Witness) -> Result<bool, MintError>;

    /// The nonce that the mint carries, if any.
    async fn incarnation(&self) -> Result<Option<Uuid>, MintError>;
}
