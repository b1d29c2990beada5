//! The rows of upstreams: intents, and what is known of each drained upstream.

use jiff::Timestamp;
use uuid::Uuid;

use super::now::{Now, later, millis_between};
use crate::lock::OperationId;
use crate::mutants::{self, Mutant};
use crate::names::ResourceName;
use crate::ports::{Doubt, ForwardEnd, ForwardRecord, Intent, IntentEnd};
use crate::token::Token;

/// An intent, open or closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardRow {
    /// The resource.
    pub resource: ResourceName,
    /// Under which token.
    pub token: Token,
    /// Whose.
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
    /// When it counts as closed, whatever became of it.
    pub closes_at: Option<Timestamp>,
    /// How and when it was closed.
    pub closed: Option<(IntentEnd, Timestamp)>,
}

impl ForwardRow {
    /// Whether it is neither closed nor counts as closed by now.
    pub fn is_open(&self, now: Now) -> bool {
        self.closed.is_none() && self.closes_at.is_none_or(|at| at > now.wall)
    }

    /// Closes it for one who did not see what came of it, unless it is closed. `own` is the ledger's own time. Says whether
    /// it was not closed.
    pub(super) fn close_unseen(&mut self, end: IntentEnd, own: Timestamp, now: Now) -> bool {
        if self.closed.is_some() {
            return false;
        }
        let at = match end {
            IntentEnd::Elapsed => self.closes_at.unwrap_or(now.wall),
            IntentEnd::Known(_) | IntentEnd::Resolved(_) => now.wall,
        };
        let at = at.max(own);
        let end = match mutants::is(Mutant::ClosedIsNotApplied) {
            true => IntentEnd::Known(ForwardEnd::Unsent),
            false => end,
        };
        self.closed = Some((end, at));
        true
    }

    /// Closes it for the gateway that forwards it, the only one that knows what came of it: also if
    /// somebody who did not know has closed it before.
    pub(super) fn close_known(&mut self, end: ForwardEnd, own: Timestamp, now: Now) {
        if !matches!(self.closed, Some((IntentEnd::Known(_), _))) {
            self.closed = Some((IntentEnd::Known(end), now.wall.max(own)));
        }
    }

    /// What is known of it. That its time is over is so before the sweeper has stored it.
    pub fn record(&self, operation: OperationId, now: Now) -> ForwardRecord {
        let elapsed = || match (self.is_open(now), self.closes_at) {
            (false, Some(at)) => Some((IntentEnd::Elapsed, at)),
            _ => None,
        };
        ForwardRecord {
            operation,
            resource: self.resource.clone(),
            owner: self.owner.clone(),
            upstream: self.upstream.clone(),
            opened_at: self.opened_at,
            closed: self.closed.clone().or_else(elapsed),
        }
    }

    /// For how long it has been there, in milliseconds.
    pub fn age_ms(&self, now: Now) -> i64 {
        millis_between(self.opened_at, now.wall)
    }

    /// The intent as operators see it.
    pub fn show(&self, operation: OperationId, now: Now) -> Intent {
        Intent {
            operation,
            resource: self.resource.clone(),
            token: self.token,
            owner: self.owner.clone(),
            upstream: self.upstream.clone(),
            method: self.method.clone(),
            path: self.path.clone(),
            gateway: self.gateway,
            opened_at: self.opened_at,
            age_ms: self.age_ms(now),
            closes_at: self.closes_at,
        }
    }
}

/// A registered upstream. It is never removed: whatever was forwarded to it may have been lost in the
/// next re-fence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamRow {
    /// After this many milliseconds whatever was forwarded has had its effect or never will.
    pub max_effect_delay_ms: Option<i64>,
    /// The floor and the time of the re-fence in which intents may have been lost.
    pub doubt: Option<(i64, Timestamp)>,
}

impl UpstreamRow {
    /// When a doubt since then ends by itself.
    fn ends_at(&self, since: Timestamp) -> Option<Timestamp> {
        self.max_effect_delay_ms.map(|ms| later(since, ms))
    }

    /// The doubt as operators see it, unless it has ended by now.
    pub fn show(&self, name: &str, prefix: &str, now: Now) -> Option<Doubt> {
        let (floor, since) = self.doubt?;
        let ends_at = self.ends_at(since);
        let (upstream, resource_prefix) = (name.to_owned(), prefix.to_owned());
        let doubt = Doubt { upstream, resource_prefix, floor, since, ends_at };
        ends_at.is_none_or(|at| at > now.wall).then_some(doubt)
    }
}
