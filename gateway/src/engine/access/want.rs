//! What calls want to do, who wants it, and whether rules allow it.

use std::sync::Arc;

use fence_core::ResourceName;
use fence_core::ports::By;
use fencegate_access::{Action, Allowed, Caller, Denied, Identity, LockTerms};
use jiff::Timestamp;

use super::{InForce, Known};
use crate::engine::{EngineError, metrics};

/// Something that a call is about to do.
#[derive(Debug, Clone)]
pub enum Want {
    /// This, to a resource.
    On(Action, ResourceName),
    /// A lock on a resource, on these terms.
    Lock(ResourceName, LockTerms),
    /// This, to every resource whose name begins so.
    All(Action, String),
    /// A safe request to a path of an upstream.
    ForwardRead(String, String),
    /// To know what became of a write to a resource: whoever may read or write it.
    Outcome(ResourceName),
    /// This, to anything at all: what it is to is found out later, and asked for then.
    Somewhere(Action),
    /// Nothing that anybody who is known may not have.
    Nothing,
}

impl Want {
    pub(super) fn action(&self) -> Action {
        match self {
            Self::On(action, _) | Self::All(action, _) => *action,
            Self::Lock(..) => Action::Lock,
            Self::ForwardRead(..) => Action::ForwardRead,
            Self::Somewhere(action) => *action,
            Self::Outcome(_) | Self::Nothing => Action::Read,
        }
    }

    /// What the rules say of it, by the line that decides.
    pub(super) fn decision<'rules>(
        &self,
        caller: &'rules Caller,
    ) -> Result<Allowed<'rules>, Denied<'rules>> {
        match self {
            Self::On(action, resource) => caller.may(*action, resource),
            Self::Lock(resource, terms) => caller.may_lock(resource, terms),
            Self::All(action, prefix) => caller.may_all(*action, prefix),
            Self::ForwardRead(upstream, path) => caller.may_forward_read(upstream, path),
            Self::Outcome(resource) => {
                let reads = caller.may(Action::Read, resource);
                reads.or_else(|_| caller.may(Action::Write, resource))
            }
            // No single line decides these.
            Self::Somewhere(_) | Self::Nothing => Err(Denied::NothingAllows),
        }
    }

    fn is_allowed(&self, caller: &Caller) -> bool {
        match self {
            Self::Somewhere(action) => caller.may_somewhere(*action),
            Self::Nothing => true,
            other => other.decision(caller).is_ok(),
        }
    }

    /// What it is to, as the caller has sent it.
    pub(super) fn on(&self) -> String {
        match self {
            Self::On(_, resource) | Self::Outcome(resource) | Self::Lock(resource, _) => {
                resource.to_string()
            }
            Self::All(_, prefix) if prefix.is_empty() => "all resources".into(),
            Self::All(_, prefix) => format!("all resources that begin with {prefix:?}"),
            Self::ForwardRead(upstream, path) => format!("{path} of upstream {upstream}"),
            Self::Somewhere(_) | Self::Nothing => "anything".into(),
        }
    }

    /// Why it is refused, for the caller: nothing but what the caller has sent, and what it may do.
    fn refused(&self, caller: &Caller) -> EngineError {
        let (action, mut on) = (self.action(), self.on());
        if matches!(self, Self::Lock(resource, _) if caller.may(action, resource).is_ok()) {
            on += " on these terms (ttl, max_hold or wait)";
        }
        let scopes = match self {
            Self::All(..) => caller.scopes_of(action).map(ToString::to_string).collect(),
            _ => Vec::new(),
        };
        EngineError::PermissionDenied { principal: caller.name().clone(), action, on, scopes }
    }
}

/// Somebody, under some rules; cheap to clone.
#[derive(Clone)]
pub(super) struct Standing {
    pub(super) in_force: Arc<InForce>,
    pub(super) known: Option<Arc<Known>>,
}

impl Standing {
    /// Whoever shows this, under these rules.
    ///
    /// # Errors
    /// `Unauthenticated`, `CredentialExpired`.
    pub(super) fn of(
        identity: Option<Arc<Identity>>,
        in_force: Arc<InForce>,
        now: Timestamp,
    ) -> Result<Self, EngineError> {
        let known = in_force.known(identity, now)?;
        Ok(Self { in_force, known })
    }

    pub(super) fn identity(&self) -> Option<Arc<Identity>> {
        self.known.as_ref().map(|known| Arc::clone(&known.identity))
    }

    pub(super) fn caller(&self) -> Option<&Caller> {
        self.known.as_ref().map(|known| &known.caller)
    }

    /// Whether it is allowed.
    pub(super) fn allows(&self, want: &Want) -> bool {
        match (self.caller(), &self.in_force.rules) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(caller), Some(_)) => want.is_allowed(caller),
        }
    }

    /// Whether all of it is allowed.
    ///
    /// # Errors
    /// `PermissionDenied` for the first that is not; `Unauthenticated`.
    pub(super) fn decide(&self, wants: &[Want]) -> Result<(), EngineError> {
        let Some(want) = wants.iter().find(|want| !self.allows(want)) else { return Ok(()) };
        let caller = self.caller().ok_or(EngineError::Unauthenticated)?;
        ::metrics::counter!(metrics::DENIED, "action" => want.action().as_str()).increment(1);
        Err(want.refused(caller))
    }

    /// As the ledger takes it.
    pub(super) fn by(&self) -> By {
        let by = self.known.as_ref().map(|known| known.by.clone()).unwrap_or_default();
        by.under(self.in_force.generation)
    }
}
