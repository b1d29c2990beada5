//! A caller: a principal that has shown who it is, and all that the rules say of it.

use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::ResourceName;
use jiff::Timestamp;

use crate::action::{Action, Actions};
use crate::mutants::{self, Mutant};
use crate::pattern::Scope;
use crate::quotas::Quotas;
use crate::rules::Limits;
use fencegate_wire::PrincipalName;

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
    pub(crate) roles: Arc<[Arc<str>]>,
    pub(crate) resources: Lines,
    pub(crate) upstreams: Lines,
    pub(crate) quotas: Quotas,
}

/// What allows a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed<'rules> {
    /// The role and the scope of the line that decided.
    pub by: (&'rules str, &'rules Scope),
}

/// How far a lock is to go that somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockTerms {
    /// Its ttl; none for an infinite one.
    pub ttl: Option<Duration>,
    /// Its `max_hold`; none for as long as its holder renews it.
    pub max_hold: Option<Duration>,
    /// How long the caller will stand in line; none for not at all.
    pub wait: Option<Duration>,
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied<'rules> {
    /// No role of the caller allows it.
    NothingAllows,
    /// This role denies it, by the line with this scope, whatever allows it.
    By(&'rules str, &'rules Scope),
    /// Roles allow it, but none of them such terms; with the limits of one of them.
    Beyond(&'rules str, Limits),
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

    /// Its roles; cheap to clone.
    pub fn roles(&self) -> &Arc<[Arc<str>]> {
        &self.roles
    }

    /// How much it may have of what all share.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// When its credential ends, if it does.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// Whether its credential has ended. Whoever keeps a caller for further calls asks this for each of them: what it may
    /// do does not look at the time.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// How many lines its roles have together: what it takes of memory.
    pub fn lines(&self) -> usize {
        let of = |lines: &Lines| lines.allow.len() + lines.deny.len();
        of(&self.resources) + of(&self.upstreams)
    }

    /// Whether it has this role.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|one| &**one == role)
    }

    /// Whether it may do this to a resource.
    pub fn may(&self, action: Action, resource: &ResourceName) -> Result<Allowed<'_>, Denied<'_>> {
        let name = resource.as_str();
        self.resources.decide(action, None, |scope| scope.covers(name), |scope| scope.covers(name))
    }

    /// Whether it may take a lock on these terms: one line alone must allow all of them, since limits of two roles
    /// together would allow what neither of them does.
    pub fn may_lock(
        &self,
        resource: &ResourceName,
        terms: &LockTerms,
    ) -> Result<Allowed<'_>, Denied<'_>> {
        let covers = |scope: &Scope| scope.covers(resource.as_str());
        self.resources.decide(Action::Lock, Some(terms), covers, covers)
    }

    /// Whether it may do this to every resource whose name begins so; with the empty text, to every one there is.
    pub fn may_all(&self, action: Action, prefix: &str) -> Result<Allowed<'_>, Denied<'_>> {
        let allows = |scope: &Scope| scope.covers_all(prefix);
        self.resources.decide(action, None, allows, |scope| scope.covers_some(prefix))
    }

    /// Whether it may send a safe request to this path of an upstream.
    pub fn may_forward_read(&self, upstream: &str, path: &str) -> Result<Allowed<'_>, Denied<'_>> {
        let name = format!("{upstream}/{}", path.strip_prefix('/').unwrap_or(path));
        let covers = |scope: &Scope| scope.covers(&name);
        self.upstreams.decide(Action::ForwardRead, None, covers, covers)
    }

    /// Tells whether it may do this to any resource at all: some line allows what no line denies as a whole.
    pub fn may_somewhere(&self, action: Action) -> bool {
        let Lines { allow, deny } = &self.resources;
        let about = |line: &&Line| line.actions.has(action);
        let is_denied =
            |scope: &Scope| deny.iter().filter(about).any(|line| line.scope.covers_scope(scope));
        allow.iter().filter(about).any(|line| !is_denied(&line.scope))
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
        terms: Option<&LockTerms>,
        allows: impl Fn(&Scope) -> bool,
        denies: impl Fn(&Scope) -> bool,
    ) -> Result<Allowed<'_>, Denied<'_>> {
        let denying = self.deny.iter().find(|line| line.actions.has(action) && denies(&line.scope));
        if let Some(line) = denying.filter(|_| !mutants::is(Mutant::DenyLoses)) {
            return Err(Denied::By(&line.role, &line.scope));
        }
        let is_about = |line: &&Line| line.actions.has(action) && allows(&line.scope);
        let mut allowing = self.allow.iter().filter(is_about);
        let first = allowing.clone().next().ok_or(Denied::NothingAllows)?;
        let is_within = |line: &&Line| terms.is_none_or(|terms| line.limits.allow(terms));
        let line = allowing.find(is_within).ok_or(Denied::Beyond(&first.role, first.limits))?;
        Ok(Allowed { by: (&line.role, &line.scope) })
    }
}
