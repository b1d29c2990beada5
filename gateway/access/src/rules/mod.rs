//! The rules that are in force: which principals there are, how each is known, and what its roles allow.

mod check;
mod file;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub use check::RULES_BYTES_MAX;
pub use file::{Algorithm, Issuer};

use crate::action::{Action, Actions};
use crate::caller::{Caller, Line, Lines, LockTerms};
use crate::identity::{CertificateName, Identity, Unauthenticated};
use crate::key::{ApiKey, KeyDigest};
use crate::mutants::{self, Mutant};
use crate::pattern::{Pattern, Scope, Variable};
use crate::quotas::Quotas;
use fencegate_wire::PrincipalName;

/// Why a text is no rules. Nothing of it is in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// More bytes than any rules have.
    #[error("rules have at most {RULES_BYTES_MAX} bytes")]
    TooLong,
    /// No TOML, or not these fields; with line and column.
    #[error("{0}")]
    Unreadable(String),
    /// It can be read, but not be meant; with its place.
    #[error("{0}")]
    Wrong(String),
}

/// How far locks may go that a role lets be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest ttl; none for any.
    pub ttl_max: Option<Duration>,
    /// The longest `max_hold`; none for any, and for locks without one. A lock without one has no end that is known.
    pub hold_max: Option<Duration>,
    /// The longest wait in line; none for any.
    pub wait_max: Option<Duration>,
    /// Whether locks without a ttl may be taken.
    pub infinite: bool,
}

impl Limits {
    /// Whether a lock may be taken on these terms.
    pub fn allow(&self, terms: &LockTerms) -> bool {
        let is_within = |asked: Option<Duration>, max: Option<Duration>| {
            max.is_none_or(|max| asked.is_some_and(|asked| asked <= max))
        };
        let ttl = match terms.ttl {
            None => self.infinite,
            ttl => is_within(ttl, self.ttl_max),
        };
        let wait = terms.wait.is_none() || is_within(terms.wait, self.wait_max);
        ttl && wait && is_within(terms.max_hold, self.hold_max)
    }
}

#[derive(Debug)]
struct Deny {
    actions: Actions,
    resources: Vec<Pattern>,
}

#[derive(Debug)]
struct RoleEntry {
    allow: Actions,
    resources: Vec<Pattern>,
    upstreams: Vec<Pattern>,
    deny: Vec<Deny>,
    limits: Limits,
    quotas: Quotas,
}

impl RoleEntry {
    fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        let denied = self.deny.iter().flat_map(|deny| &deny.resources);
        self.resources.iter().chain(&self.upstreams).chain(denied)
    }
}

#[derive(Debug)]
struct KeyEntry {
    digest: KeyDigest,
    expires: Timestamp,
    /// Its place among the principals.
    principal: usize,
}

#[derive(Debug)]
enum Name {
    /// One principal.
    Own(PrincipalName),
    /// One for each value of its variables.
    Template(Pattern),
}

/// What somebody may show to be a principal.
#[derive(Debug)]
enum Condition {
    Jwt { issuer: Arc<Issuer>, claims: BTreeMap<String, Scope> },
    Spiffe(Scope, Authorities),
    Dns(String, Authorities),
    Unix { uid: Option<u32>, gid: Option<u32> },
}

/// The authorities whose certificates count, by the SHA-256 of their own. One authority can sign any name, so an authority of somebody else
/// beside ours must be held to its own.
#[derive(Debug)]
struct Authorities(BTreeSet<String>);

impl Authorities {
    /// Tells whether one of those that have signed a certificate is meant; any is, where none is named.
    fn have_signed(&self, signed_by: &[String]) -> bool {
        self.0.is_empty() || signed_by.iter().any(|authority| self.0.contains(authority))
    }
}

impl Condition {
    fn holds_for(&self, identity: &Identity) -> bool {
        match (self, identity) {
            (Self::Jwt { issuer, claims }, Identity::Jwt { issuer: from, claims: has, .. }) => {
                let holds = |(name, scope): (&String, &Scope)| {
                    has.get(name).is_some_and(|value| scope.covers(value))
                };
                issuer == from && claims.iter().all(holds)
            }
            (
                Self::Spiffe(scope, signers),
                Identity::Certificate { name: CertificateName::Spiffe(id), authorities, .. },
            ) => scope.covers(id) && signers.have_signed(authorities),
            (
                Self::Dns(name, signers),
                Identity::Certificate { name: CertificateName::Dns(dns), authorities, .. },
            ) => name == dns && signers.have_signed(authorities),
            (Self::Unix { uid, gid }, Identity::Unix { uid: has_uid, gid: has_gid }) => {
                uid.is_none_or(|uid| uid == *has_uid) && gid.is_none_or(|gid| gid == *has_gid)
            }
            _ => false,
        }
    }
}

#[derive(Debug)]
struct PrincipalEntry {
    name: Name,
    roles: Arc<[Arc<str>]>,
    conditions: Vec<Condition>,
    postgres_roles: Vec<String>,
}

/// Before that a key should have a successor.
const LAPSES_SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Rules, checked.
#[derive(Debug)]
pub struct Rules {
    issuers: BTreeMap<String, Arc<Issuer>>,
    roles: BTreeMap<Arc<str>, RoleEntry>,
    principals: Vec<PrincipalEntry>,
    /// By their ids, in order.
    keys: Vec<(String, KeyEntry)>,
    /// Keys of S3 by their ids, each with its principal's place.
    s3_keys: BTreeMap<String, usize>,
    revoked: BTreeSet<String>,
    /// What stands behind a variable in any pattern. No value has it: else what is one caller's would be another's.
    ends: BTreeSet<u8>,
}

impl Rules {
    /// Reads and checks the text of rules: the same text is always the same rules.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        if text.len() > RULES_BYTES_MAX {
            return Err(RulesError::TooLong);
        }
        // Only where it is and what: the line itself may hold a key that was put there by mistake.
        let unreadable = |error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            let line =
                text.as_bytes()[..at.min(text.len())].iter().filter(|it| **it == b'\n').count();
            RulesError::Unreadable(format!("line {}: {}", line + 1, error.message()))
        };
        check::checked(toml::from_str(text).map_err(unreadable)?)
    }

    /// When each key lapses, in words, the soonest first: one a line. What lapses within two weeks says so; what is revoked
    /// is left out.
    pub fn lapses(&self, now: Timestamp) -> Vec<String> {
        let counts = |id: &str| !self.revoked.contains(&format!("key:{id}"));
        let mut keys: Vec<_> = self.keys.iter().filter(|(id, _)| counts(id)).collect();
        keys.sort_by_key(|(_, key)| key.expires);
        let line = |(id, key): &(String, KeyEntry)| {
            let left = key.expires.duration_since(now);
            let when = match left.as_secs() {
                ..=0 => "has lapsed",
                left if left <= LAPSES_SOON.as_secs() => "lapses soon",
                _ => "lapses",
            };
            let owner = &self.principals[key.principal].name;
            format!("key {id} of {owner} {when}: {}, {} days", key.expires, left.as_secs() / 86_400)
        };
        keys.into_iter().map(line).collect()
    }

    /// Whether rules may be put in force now: no principal has more live keys than a rotation needs. Rules that are in
    /// force are not held against it, so that no clock can end them.
    pub fn check_live_keys(&self, now: Timestamp) -> Result<(), RulesError> {
        let mut live = vec![0; self.principals.len()];
        for (_, key) in self.keys.iter().filter(|(_, key)| key.expires > now) {
            live[key.principal] += 1;
        }
        self.principals
            .iter()
            .zip(live)
            .try_for_each(|(principal, live)| check::live_keys(&principal.name, live))
    }

    /// Whether rules may be put in force now: somebody who may change them can show who that is. Else only who has the
    /// ledger itself could.
    pub fn check_admin(&self, now: Timestamp) -> Result<(), RulesError> {
        let has_key = |at: usize| {
            let is_good = |id: &String, key: &KeyEntry| {
                key.expires > now && !self.revoked.contains(&format!("key:{id}"))
            };
            self.keys.iter().any(|(id, key)| key.principal == at && is_good(id, key))
        };
        let is_admin = |(at, entry): (usize, &PrincipalEntry)| {
            let roles = || entry.roles.iter().filter_map(|role| self.roles.get(role));
            let allowed = roles().any(|role| role.allow.has(Action::Admin));
            // `admin` is about all resources, so whatever denies it denies all of it.
            let mut denied = roles().flat_map(|role| &role.deny);
            let is_denied = denied.any(|deny| deny.actions.has(Action::Admin));
            allowed && !is_denied && (has_key(at) || !entry.conditions.is_empty())
        };
        match self.principals.iter().enumerate().any(is_admin) {
            true => Ok(()),
            false => Err(RulesError::Wrong(
                "nobody who can show who they are has a role that allows `admin`, reckoned without keys that have \
                 expired or are revoked, and without those to whom another line denies it"
                    .to_owned(),
            )),
        }
    }

    /// Which principal each role of the database is, with that principal's roles here. Who may write nothing at all is
    /// nobody there.
    pub fn database_roles(&self) -> impl Iterator<Item = (&str, &PrincipalName, &[Arc<str>])> {
        let may_write = |entry: &&PrincipalEntry| {
            let mut roles = entry.roles.iter().filter_map(|role| self.roles.get(role));
            roles.any(|role| role.allow.has(Action::Write))
        };
        self.principals.iter().filter(may_write).flat_map(|entry| {
            let principal = match &entry.name {
                Name::Own(name) => Some(name),
                Name::Template(_) => None,
            };
            let roles = entry.postgres_roles.iter();
            roles.filter_map(move |role| Some((role.as_str(), principal?, &*entry.roles)))
        })
    }

    /// Whose tokens are taken.
    pub fn issuers(&self) -> impl Iterator<Item = &Arc<Issuer>> {
        self.issuers.values()
    }

    /// Who it is that shows this, and all that the rules say of that principal.
    ///
    /// 1. A key is held against the digest of the key with its id, or of one beside it, so that both take as long. A key of
    ///    S3 has been: its signature was good. With the key of a lock its principal asks, as long as the credential is good
    ///    to which the lock belongs.
    /// 2. Everything else must be what exactly one principal shows.
    /// 3. What is revoked is nobody's, and what has expired is nobody's any more. Said last, so that only whoever had a
    ///    good one learns it.
    pub fn caller(&self, identity: &Identity, now: Timestamp) -> Result<Caller, Unauthenticated> {
        // Steps 1 and 2.
        let (entry, expires) = match identity {
            Identity::S3Lock { principal, credential, ends } => {
                return self.by_lock(principal, credential.as_deref(), *ends, now);
            }
            Identity::S3Key { kid } => {
                let at = self.s3_keys.get(kid).ok_or(Unauthenticated::UnknownKey)?;
                (&self.principals[*at], None)
            }
            Identity::Key(key) => self.by_key(key)?,
            other => (self.by_what_is_shown(other)?, other.expires()),
        };
        let value_of = |variable: &Variable| identity.value_of(variable);
        let name = match &entry.name {
            Name::Own(name) => name.clone(),
            Name::Template(pattern) => {
                let none = || Unauthenticated::NoName(pattern.as_str().to_owned());
                let made = pattern.bind(&BTreeSet::new(), value_of).ok_or_else(none)?.to_string();
                PrincipalName::new(&made).map_err(|_| Unauthenticated::NoName(made))?
            }
        };
        // Step 3.
        let credential = identity.credential();
        if self.revoked.contains(&credential) {
            return Err(Unauthenticated::Revoked);
        }
        if let Some(ended) = expires.filter(|expires| *expires <= now) {
            return Err(Unauthenticated::Expired(ended));
        }
        Ok(self.filled_in(entry, name, (credential, expires), |it| identity.value_of(it)))
    }

    /// All that the rules say of a principal by its name alone, whatever it would have to show; none if no principal has
    /// it. Of what it would show only that is known which is part of its name: lines with other variables allow nothing,
    /// or deny everything.
    pub fn named(&self, name: &PrincipalName) -> Option<Caller> {
        let made = |entry: &PrincipalEntry| match &entry.name {
            Name::Own(own) => (own == name).then(Vec::new),
            Name::Template(pattern) => {
                let values = pattern.values_in(name.as_str())?;
                Some(values.into_iter().map(|(it, value)| (it.clone(), value)).collect())
            }
        };
        // No two entries can have one name, so the first is the only one.
        let (entry, values) =
            self.principals.iter().find_map(|entry| made(entry).map(|values| (entry, values)))?;
        let value_of = |variable: &Variable| {
            values.iter().find(|(it, _)| it == variable).map(|(_, value)| value.clone())
        };
        Some(self.filled_in(entry, name.clone(), (String::new(), None), value_of))
    }

    fn filled_in(
        &self,
        entry: &PrincipalEntry,
        name: PrincipalName,
        (credential, expires): (String, Option<Timestamp>),
        value_of: impl Fn(&Variable) -> Option<String>,
    ) -> Caller {
        let value_of = |variable: &Variable| match variable {
            Variable::Principal => Some(name.as_str().to_owned()),
            other => value_of(other),
        };
        let (resources, upstreams) = self.lines(&entry.roles, &value_of);
        let roles = Arc::clone(&entry.roles);
        let stated = roles.iter().filter_map(|role| Some(self.roles.get(role)?.quotas));
        let quotas = stated.fold(Quotas::default(), Quotas::or_more);
        Caller { name, credential, expires, roles, resources, upstreams, quotas }
    }

    /// Finds the principal of a lock, as long as the credential is good to which the lock belongs.
    fn by_lock(
        &self,
        principal: &PrincipalName,
        credential: Option<&str>,
        ends: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Caller, Unauthenticated> {
        let caller = self.named(principal).ok_or(Unauthenticated::Nobody)?;
        let Some(credential) = credential else { return Ok(caller) };
        if self.has_taken_back(credential) {
            return Err(Unauthenticated::Revoked);
        }
        let key = credential.strip_prefix("key:").and_then(|id| self.key(id));
        let expires = key.map(|key| key.expires).or(ends);
        match expires.filter(|expires| *expires <= now) {
            Some(ended) => Err(Unauthenticated::Expired(ended)),
            None => Ok(Caller { credential: credential.to_owned(), expires, ..caller }),
        }
    }

    /// Tells whether a credential was good once and is no more: it is revoked; or it is a key that no principal has any
    /// more, or a token of an issuer that these rules do not name. One that has merely expired is not meant.
    pub fn has_taken_back(&self, credential: &str) -> bool {
        let is_gone = match credential.split_once(':') {
            Some(("key", id)) => self.key(id).is_none() && !self.s3_keys.contains_key(id),
            Some(("jwt", issuer)) => !self.issuers.contains_key(issuer),
            Some(("jti", rest)) => {
                rest.split_once('#').is_some_and(|(issuer, _)| !self.issuers.contains_key(issuer))
            }
            _ => false,
        };
        is_gone || self.revoked.contains(credential)
    }

    fn key(&self, id: &str) -> Option<&KeyEntry> {
        let at = self.keys.binary_search_by(|(other, _)| other.as_str().cmp(id)).ok()?;
        Some(&self.keys[at].1)
    }

    /// Finds whose key it is. The time tells nobody whether its id is known: as many ids are compared, and the entry at that
    /// place is looked at, whether it is that of this id or the one before which this id would stand.
    fn by_key(
        &self,
        key: &ApiKey,
    ) -> Result<(&PrincipalEntry, Option<Timestamp>), Unauthenticated> {
        let at = self.keys.partition_point(|(id, _)| id.as_str() < key.kid());
        let entry = self.keys.get(at).or(self.keys.last()).ok_or(Unauthenticated::UnknownKey)?;
        let (id, entry) = entry;
        let (is_id, is_it) = (id == key.kid(), entry.digest.is_digest_of(key));
        match (is_id, is_it || mutants::is(Mutant::KidOnly)) {
            (false, _) => Err(Unauthenticated::UnknownKey),
            (true, false) => Err(Unauthenticated::WrongSecret),
            (true, true) => Ok((&self.principals[entry.principal], Some(entry.expires))),
        }
    }

    fn by_what_is_shown(&self, identity: &Identity) -> Result<&PrincipalEntry, Unauthenticated> {
        let shows = |entry: &&PrincipalEntry| {
            entry.conditions.iter().any(|condition| condition.holds_for(identity))
        };
        let mut found = self.principals.iter().filter(shows);
        let first = found.next().ok_or(Unauthenticated::Nobody)?;
        match found.next() {
            None => Ok(first),
            Some(other) => {
                Err(Unauthenticated::Ambiguous(first.name.to_string(), other.name.to_string()))
            }
        }
    }

    /// All lines of these roles, filled in for one caller. A line that denies and cannot be filled in would deny
    /// nothing, so it denies everything.
    fn lines(
        &self,
        roles: &[Arc<str>],
        value_of: &dyn Fn(&Variable) -> Option<String>,
    ) -> (Lines, Lines) {
        let (mut resources, mut upstreams) = (Lines::default(), Lines::default());
        for role in roles {
            let Some(entry) = self.roles.get(role) else { continue };
            let limits = entry.limits;
            let line = |actions, scope| Line { role: Arc::clone(role), actions, scope, limits };
            let allowed = |patterns: &[Pattern], actions: Actions| -> Vec<_> {
                let scopes =
                    patterns.iter().filter_map(|pattern| pattern.bind(&self.ends, value_of));
                scopes.map(|scope| line(actions, scope)).collect()
            };
            // What is allowed of a resource says nothing of an upstream, nor the other way round.
            let forwards = Actions::from_iter([Action::ForwardRead]);
            resources.allow.extend(allowed(&entry.resources, entry.allow.without(forwards)));
            upstreams.allow.extend(allowed(&entry.upstreams, forwards));
            for deny in &entry.deny {
                let scopes = deny.resources.iter();
                let scopes = scopes.map(|it| it.bind(&self.ends, value_of).unwrap_or(Scope::all()));
                resources.deny.extend(scopes.map(|scope| line(deny.actions, scope)));
            }
        }
        (resources, upstreams)
    }
}

impl Name {
    /// What the name begins with, whoever it is made for; the whole of one that is not made.
    fn beginning(&self) -> &str {
        match self {
            Self::Own(name) => name.as_str(),
            Self::Template(pattern) => pattern.as_str().split("${").next().unwrap_or_default(),
        }
    }

    fn is_template(&self) -> bool {
        matches!(self, Self::Template(_))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(name) => name.fmt(f),
            Self::Template(pattern) => f.write_str(pattern.as_str()),
        }
    }
}
