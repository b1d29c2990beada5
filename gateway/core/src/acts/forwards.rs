//! The rows of upstreams: open intents, and what is known of each drained upstream.

use jiff::Timestamp;
use uuid::Uuid;

use super::now::{Now, later, millis_between};
use crate::lock::OperationId;
use crate::names::ResourceName;
use crate::ports::{Doubt, Intent};
use crate::token::Token;

/// An open intent.
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
    /// Whether it was sent again, so that an earlier sending may still be on its way.
    pub sent_again: bool,
}

impl ForwardRow {
    /// Whether it has not counted as closed by now.
    pub fn is_open(&self, now: Now) -> bool {
        self.closes_at.is_none_or(|at| at > now.wall)
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
            age_ms: millis_between(self.opened_at, now.wall),
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
