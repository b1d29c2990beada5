//! What the ledger knows of upstreams: who was let through to a drained one, and whether that is over.
//!
//! An upstream's effects are not in the ledger, so the fence alone cannot put them in order. An *intent*
//! is committed before anything is forwarded and closed by the upstream's answer; no newer lock is in
//! force while one of an older token is open.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::{Attempt, By, LedgerError, Patience};
use crate::lock::{LockId, OperationId};
use crate::names::ResourceName;
use crate::rule::Refusal;
use crate::token::Token;

/// A request that is to be forwarded to an upstream.
#[derive(Debug, Clone)]
pub struct IntentItem {
    /// Its id.
    pub operation: OperationId,
    /// The resource.
    pub resource: ResourceName,
    /// The token presented.
    pub token: Token,
    /// The lock id presented, if any.
    pub lock: Option<LockId>,
    /// The sequence number presented, if any.
    pub sequence: Option<i64>,
    /// The version it demands of the resource.
    pub resource_version: Option<i64>,
    /// Whether an intent is to be stored: the upstream is a drained one.
    pub drained: bool,
    /// The upstream.
    pub upstream: String,
    /// The method, for operators.
    pub method: String,
    /// The path, for operators.
    pub path: String,
    /// The gateway that forwards it.
    pub gateway: Uuid,
    /// After this time it counts as closed, whatever became of it.
    pub max_effect_delay: Option<Duration>,
    /// How often the operation may have been sent before.
    pub attempt: Attempt,
    /// Who sends it, and under which rules that was allowed.
    pub by: By,
}

/// What became of one wish to forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntentVerdict {
    /// Admitted; of a drained upstream the intent is open, now or since an earlier sending.
    Admitted,
    /// The rule refused it; nothing changed.
    Refused(Refusal),
    /// The operation is buried, or its intent was closed: it is not to be forwarded.
    Buried,
    /// The rules have changed since it was allowed; nothing was decided, as with [`super::WriteVerdict::RulesMoved`].
    RulesMoved,
    /// The fence row is locked by somebody else; nothing was decided.
    Busy,
}

/// An open intent: what was forwarded to a drained upstream, or is about to be, without a known end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Its id.
    pub operation: OperationId,
    /// The resource.
    pub resource: ResourceName,
    /// Under which token. For operators only.
    pub token: Token,
    /// Whose token it is.
    pub owner: String,
    /// The upstream.
    pub upstream: String,
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The gateway that forwards it.
    pub gateway: Uuid,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// For how long it has been open, in milliseconds, on the ledger's clock.
    pub age_ms: i64,
    /// When it counts as closed, whatever became of it.
    pub closes_at: Option<Timestamp>,
}

/// The open intents of the whole ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenIntents {
    /// How many there are.
    pub count: i64,
    /// For how long the oldest has been open, in milliseconds, on the ledger's clock; 0 if there is none.
    pub oldest_age_ms: i64,
}

/// What the gateway that forwards knows at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardEnd {
    /// The upstream has answered, with this status.
    Answered(u16),
    /// Nothing was sent, nor ever will be.
    Unsent,
}

/// An intent that is over, as the gateway knows that forwards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseItem {
    /// Its id.
    pub operation: OperationId,
    /// What came of it.
    pub end: ForwardEnd,
}

/// How an intent was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntentEnd {
    /// By the gateway that forwarded it.
    Known(ForwardEnd),
    /// By an operator, for this reason: it has no effect any more, whatever came of it.
    Resolved(String),
    /// By the longest delay of its upstream: it has no effect any more, whatever came of it.
    Elapsed,
}

/// What the ledger keeps of an intent, open or closed: as long as it keeps keys, and buried ids, from when
/// it was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardRecord {
    /// Its id.
    pub operation: OperationId,
    /// The resource.
    pub resource: ResourceName,
    /// Whose token it was.
    pub owner: String,
    /// The upstream.
    pub upstream: String,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// How and when it was closed; `None` while it is open.
    pub closed: Option<(IntentEnd, Timestamp)>,
}

/// Which open intents to list, oldest first.
#[derive(Debug, Clone, Default)]
pub struct IntentFilter {
    /// Only of this upstream.
    pub upstream: Option<String>,
    /// Only on this resource.
    pub resource: Option<ResourceName>,
    /// Only those behind this one.
    pub after: Option<(Timestamp, OperationId)>,
    /// At most this many.
    pub limit: i64,
}

/// An upstream whose guarantee is `drained`, as gateways register it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainedUpstream {
    /// Its name.
    pub name: String,
    /// What the names of its resources begin with.
    pub resource_prefix: String,
    /// After this time whatever was forwarded to it has had its effect or never will; `None` if that
    /// cannot be said.
    pub max_effect_delay: Option<Duration>,
}

/// Intents of an upstream may have been lost in a re-fence, so its resources drain until somebody says
/// that nothing is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The upstream.
    pub upstream: String,
    /// What the names of its resources begin with.
    pub resource_prefix: String,
    /// Resources that had a lock in force since are above this.
    pub floor: i64,
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself.
    pub ends_at: Option<Timestamp>,
}

/// What an operator takes upon himself.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// Why, for the record.
    pub reason: String,
    /// The request that asks for it, for the record.
    pub request_id: String,
    /// Who asks, and under which rules that was allowed.
    pub by: By,
}

/// The part of the ledger that is about upstreams.
#[async_trait]
pub trait Intents: Send + Sync {
    /// Records the upstreams that are drained. One that is new to a ledger which was ever re-fenced is
    /// in doubt: its earlier record, and intents with it, may have been lost. Works while the ledger has
    /// to be re-fenced.
    async fn register_upstreams(&self, upstreams: &[DrainedUpstream]) -> Result<(), LedgerError>;

    /// Decides whether requests may be forwarded, and stores their intents.
    async fn open_intents(
        &self,
        items: Arc<[IntentItem]>,
        patience: Patience,
    ) -> Result<Vec<IntentVerdict>, LedgerError>;

    /// Closes intents, and keeps what came of them. Doing it again is harmless. One that was closed by
    /// somebody who did not know what came of it gets to know it. Returns the resources on which a lock
    /// waits for that.
    async fn close_intents(&self, items: &[CloseItem]) -> Result<Vec<ResourceName>, LedgerError>;

    /// Puts locks in force for which nothing of older tokens is under way any more: those on `resources`,
    /// or, without names, on any. Lets other gateways hear of it, in a statement of its own. Returns the
    /// locks.
    async fn complete_drains(
        &self,
        gateway: Uuid,
        resources: Option<&[ResourceName]>,
    ) -> Result<Vec<LockId>, LedgerError>;

    /// Open intents, oldest first.
    async fn intents(&self, filter: IntentFilter) -> Result<Vec<Intent>, LedgerError>;

    /// How many intents are open, and for how long.
    async fn intents_open(&self) -> Result<OpenIntents, LedgerError>;

    /// Doubts, by upstream.
    async fn doubts(&self) -> Result<Vec<Doubt>, LedgerError>;

    /// Closes an intent at an operator's wish, who does not know what came of it.
    async fn resolve_intent(
        &self,
        id: OperationId,
        resolution: Resolution,
    ) -> Result<Resolved, LedgerError>;

    /// Ends the doubts of an upstream at an operator's wish. Returns how many there were; `None` if no
    /// upstream of this name was ever registered.
    async fn resolve_doubts(
        &self,
        upstream: &str,
        resolution: Resolution,
    ) -> Result<Option<i64>, LedgerError>;
}

/// What became of a wish to resolve an intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// It is closed now; it was on this resource.
    Now(ResourceName),
    /// It was closed, or given up, before.
    Before,
    /// The ledger knows no intent of this id.
    NotFound,
}
