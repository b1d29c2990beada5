//! A caller: a principal that has shown who it is, and all that the rules say of it.

use std::sync::Arc;

use fencegate_wire::ResourceName;
use jiff::Timestamp;

use crate::action::{Action, Actions};
use crate::pattern::Scope;
use crate::principal::PrincipalName;
use crate::rules::Limits;

/// Some actions within a scope, by one line of one role.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) role: Arc<str>,
    pub(crate) actions: Actions,
    pub(crate) scope: Scope,
    pub(crate) limits: Limits,
}

/// The lines about one kind of names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    pub(crate) allow: Vec<Line>,
    pub(crate) deny: Vec<Line>,
}

/// Who calls, under one set of rules. Made once for a connection or a credential; each call is then one question.
#[derive(Debug, Clone)]
pub struct Caller {
    pub(crate) name: PrincipalName,
    pub(crate) credential: String,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) roles: Vec<Arc<str>>,
    pub(crate) resources: Lines,
    pub(crate) upstreams: Lines,
}

/// What allows a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed<'rules> {
    /// The role and the scope of the line that decided.
    pub by: (&'rules str, &'rules Scope),
    /// The widest limits of all lines that allow it.
    pub limits: Limits,
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied<'rules> {
    /// No role of the caller allows it.
    NothingAllows,
    /// This role denies it, by the line with this scope, whatever allows it.
    By(&'rules str, &'rules Scope),
}

impl Caller {
    /// Its principal.
    pub fn name(&self) -> &PrincipalName {
        &self.name
    }

    /// By what it has shown who it is, as the audit calls it.
    pub fn credential(&self) -> &str {
        &self.credential
    }

    /// When its credential ends, if it does.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// Whether it has this role.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|one| &**one == role)
    }

    /// Whether it may do this to a resource.
    pub fn may(&self, action: Action, resource: &ResourceName) -> Result<Allowed<'_>, Denied<'_>> {
        let name = resource.as_str();
        self.resources.decide(action, |scope| scope.covers(name), |scope| scope.covers(name))
    }

    /// Whether it may do this to every resource whose name begins so; with the empty text, to every one there is.
    pub fn may_all(&self, action: Action, prefix: &str) -> Result<Allowed<'_>, Denied<'_>> {
        let allows = |scope: &Scope| scope.covers_all(prefix);
        self.resources.decide(action, allows, |scope| scope.covers_some(prefix))
    }

    /// Whether it may send a safe request to this path of an upstream.
    pub fn may_forward_read(&self, upstream: &str, path: &str) -> Result<Allowed<'_>, Denied<'_>> {
        let name = format!("{upstream}/{}", path.strip_prefix('/').unwrap_or(path));
        let covers = |scope: &Scope| scope.covers(&name);
        self.upstreams.decide(Action::ForwardRead, covers, covers)
    }

    /// Where it may do this, to tell it of a list what it may ask for.
    pub fn scopes_of(&self, action: Action) -> impl Iterator<Item = &Scope> {
        let lines = self.resources.allow.iter();
        lines.filter(move |line| line.actions.has(action)).map(|line| &line.scope)
    }
}

impl Lines {
    /// Deny by default; a line that denies wins over all that allow.
    fn decide(
        &self,
        action: Action,
        allows: impl Fn(&Scope) -> bool,
        denies: impl Fn(&Scope) -> bool,
    ) -> Result<Allowed<'_>, Denied<'_>> {
        let denying = self.deny.iter().find(|line| line.actions.has(action) && denies(&line.scope));
        if let Some(line) = denying {
            return Err(Denied::By(&line.role, &line.scope));
        }
        let is_about = |line: &&Line| line.actions.has(action) && allows(&line.scope);
        let mut allowing = self.allow.iter().filter(is_about);
        let first = allowing.next().ok_or(Denied::NothingAllows)?;
        let limits = allowing.fold(first.limits, |widest, line| widest.or(line.limits));
        Ok(Allowed { by: (&first.role, &first.scope), limits })
    }
}
