//! What goes into the acts on the queue, and what comes out.

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::{By, Holder, LedgerError};
use crate::lock::{LockEnd, LockId};
use crate::names::ResourceName;

/// What a look finds at a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its live holder, if it has one that is neither expired nor due to be broken.
    pub holder: Option<Holder>,
    /// Whether somebody is in line for it.
    pub queued: bool,
}

/// A caller that wants to wait.
#[derive(Debug, Clone)]
pub struct JoinItem {
    /// The id that its lock will have.
    pub lock: LockId,
    /// Its resources, sorted and distinct.
    pub resources: Vec<ResourceName>,
    /// Who asks.
    pub owner: String,
    /// The gateway that serves it.
    pub gateway: Uuid,
    /// How many may wait for one resource.
    pub waiters_max: usize,
    /// Who asks, and under which rules that was allowed.
    pub by: By,
}

/// What became of a wish to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinVerdict {
    /// It waits, now or again, under one ticket for all of its resources.
    Waiting,
    /// It need not wait: nothing is held and nobody is ahead.
    Free,
    /// A lock has this id already.
    Known,
    /// The id was given up.
    Ended(LockEnd),
    /// The id waits for other resources, for another owner or for another principal.
    Conflict,
    /// Too many wait for one of its resources.
    Full,
    /// The rules have changed since it was allowed; nothing was decided.
    RulesMoved,
    /// A row is locked by somebody else; nothing was decided.
    Busy,
}

/// Who is first in line for a resource, and whether it is its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The resource.
    pub resource: ResourceName,
    /// The waiter whose turn it is, if its caller is there to take it.
    pub called: Option<LockId>,
    /// The gateway of the first in line.
    pub gateway: Uuid,
    /// When this may change without any event, in milliseconds: a lock expires, a break comes due, or
    /// the one that was called is passed over.
    pub next_ms: Option<i64>,
}

/// Somebody in line for a resource, as everybody may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InLine {
    /// Its ticket: earlier in line is lower.
    pub ticket: i64,
    /// Who waits.
    pub owner: String,
    /// Since when.
    pub since: Timestamp,
    /// Its place in the line of this resource, from 1.
    pub position: i64,
    /// Whether its call is waiting now, at a gateway that is alive; else its place is only kept.
    pub present: bool,
}

/// A part of a line.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinePage {
    /// Only behind this ticket.
    pub after: Option<i64>,
    /// At most this many.
    pub limit: i64,
}

/// Hears which waiters of this gateway are called by others.
#[async_trait]
pub trait Listener: Send {
    /// Waits for calls. After an error the listener is of no more use.
    async fn heard(&mut self) -> Result<LockId, LedgerError>;
}

/// A listener where nobody else can call: the ledger belongs to one process.
pub struct Deaf;

#[async_trait]
impl Listener for Deaf {
    async fn heard(&mut self) -> Result<LockId, LedgerError> {
        std::future::pending().await
    }
}
