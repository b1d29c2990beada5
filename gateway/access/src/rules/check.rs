//! From the text of the rules to the rules: everything that can be wrong is found here, before they are applied.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use super::file::{File, Issuer, Key, Match, Principal, Role};
use super::{
    Authorities, Condition, Deny, KeyEntry, Limits, PrincipalEntry, RoleEntry, Rules, RulesError,
};
use crate::action::{Action, Actions};
use crate::identity::shortened;
use crate::key::is_kid;
use crate::pattern::{Names, Pattern, PatternError, Scope};
use fencegate_wire::PrincipalName;

/// Bytes of a text of rules.
pub const RULES_BYTES_MAX: usize = 1024 * 1024;
const ISSUERS_MAX: usize = 16;
const ROLES_MAX: usize = 1_000;
const PRINCIPALS_MAX: usize = 10_000;
const REVOKED_MAX: usize = 10_000;
/// Patterns of a role, those that it denies included.
const PATTERNS_MAX: usize = 256;
const ROLES_OF_ONE_MAX: usize = 32;
/// Keys of a principal that have not expired: one, and the next one while it is rotated.
const LIVE_KEYS_MAX: usize = 2;
/// Keys of a principal, those that have expired included.
const KEYS_OF_ONE_MAX: usize = 8;
const CLAIMS_MAX: usize = 16;
/// Authorities of a principal's certificates: one, and the next one while it is replaced, for each of some.
const AUTHORITIES_MAX: usize = 16;

/// An error that says where.
fn at(place: impl Display, what: impl Display) -> RulesError {
    RulesError::Wrong(format!("{place}: {what}"))
}

fn at_most(place: impl Display, what: &str, count: usize, max: usize) -> Result<(), RulesError> {
    match count <= max {
        true => Ok(()),
        false => Err(at(place, format_args!("{count} {what}, where there may be {max}"))),
    }
}

/// Counts the keys of a principal that have not expired.
pub(super) fn live_keys(principal: &super::Name, live: usize) -> Result<(), RulesError> {
    let place = format_args!("principal `{principal}`");
    at_most(place, "keys that have not expired", live, LIVE_KEYS_MAX)
}

/// Checks all that was read.
pub(super) fn checked(file: File) -> Result<Rules, RulesError> {
    at_most("issuers", "issuers", file.issuers.len(), ISSUERS_MAX)?;
    at_most("roles", "roles", file.roles.len(), ROLES_MAX)?;
    at_most("principals", "principals", file.principals.len(), PRINCIPALS_MAX)?;
    at_most("revoked", "entries", file.revoked.len(), REVOKED_MAX)?;

    let mut issuers: BTreeMap<String, Arc<Issuer>> = BTreeMap::new();
    for one in file.issuers {
        let place = format!("issuer `{}`", one.name);
        issuer(&one).map_err(|why| at(&place, why))?;
        if issuers
            .values()
            .any(|other| (&other.issuer, &other.audience) == (&one.issuer, &one.audience))
        {
            return Err(at(&place, "another one has the same issuer and audience"));
        }
        if issuers.insert(one.name.clone(), Arc::new(one)).is_some() {
            return Err(at(&place, "there is another one with this name"));
        }
    }
    let mut roles = BTreeMap::new();
    for one in file.roles {
        let place = format!("role `{}`", one.name);
        let name: Arc<str> = one.name.as_str().into();
        let entry = role(&one, &place)?;
        if roles.insert(name, entry).is_some() {
            return Err(at(&place, "there is another one with this name"));
        }
    }
    let (mut principals, mut keys, mut s3_keys) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let (mut names, mut database_roles) = (BTreeSet::new(), BTreeSet::new());
    for one in file.principals {
        let place = format!("principal `{}`", one.name);
        if !names.insert(one.name.clone()) {
            return Err(at(&place, "there is another one with this name"));
        }
        let entry = principal(&one, &place, &roles, &issuers)?;
        for role in &entry.postgres_roles {
            if !database_roles.insert(role.clone()) {
                return Err(at(
                    &place,
                    format_args!("`{role}` is another principal's in the database"),
                ));
            }
        }
        at_most(&place, "keys", one.keys.len(), KEYS_OF_ONE_MAX)?;
        for Key { id, sha256, expires } in one.keys {
            if !is_kid(&id) {
                return Err(at(&place, format_args!("`{id}` is no id of a key")));
            }
            let entry = KeyEntry { digest: sha256, expires, principal: principals.len() };
            if keys.insert(id.clone(), entry).is_some() {
                return Err(at(&place, format_args!("there is another key with the id `{id}`")));
            }
        }
        at_most(&place, "keys of S3", one.s3_keys.len(), LIVE_KEYS_MAX)?;
        for id in one.s3_keys {
            if !is_kid(&id) {
                return Err(at(&place, format_args!("`{id}` is no id of a key of S3")));
            }
            if s3_keys.insert(id.clone(), principals.len()).is_some() {
                return Err(at(&place, format_args!("there is another key with the id `{id}`")));
            }
        }
        principals.push(entry);
    }
    // Both are revoked by that.
    if let Some(id) = s3_keys.keys().find(|id| keys.contains_key(*id)) {
        return Err(at("s3_keys", format_args!("there is another key with the id `{id}`")));
    }
    no_name_is_template_twice(&principals)?;
    let mut revoked = BTreeSet::new();
    for (number, one) in file.revoked.into_iter().enumerate() {
        let is_known = match one.split_once(':') {
            Some(("key", id)) => is_kid(id),
            Some(("jti", rest)) => rest
                .split_once('#')
                .is_some_and(|(issuer, id)| issuers.contains_key(issuer) && !id.is_empty()),
            Some(("cert", rest)) => rest.strip_prefix("sha256:").is_some_and(is_digest),
            _ => false,
        };
        if !is_known {
            // What stands there may be a key that leaked: it is not said again.
            let forms = "`key:ID`, `jti:ISSUER#ID` (an issuer that is named here) and \
                         `cert:sha256:DIGEST` (64 digits in lower case)";
            return Err(at(
                format_args!("revoked: entry {}", number + 1),
                format_args!("it is none of {forms}"),
            ));
        }
        revoked.insert(shortened(&one));
    }
    let patterns = roles.values().flat_map(RoleEntry::patterns);
    let ends = patterns.flat_map(Pattern::ends).collect();
    let keys = keys.into_iter().collect();
    Ok(Rules { issuers, roles, principals, keys, s3_keys, revoked, ends })
}

fn issuer(issuer: &Issuer) -> Result<(), &'static str> {
    if !is_word(&issuer.name) {
        return Err("a name has 1 to 64 letters, digits, `-` and `_`");
    }
    if issuer.issuer.is_empty() || issuer.audience.is_empty() {
        return Err("issuer and audience may not be empty");
    }
    if issuer.algorithms.is_empty() {
        return Err("algorithms may not be empty");
    }
    match (&issuer.jwks_file, &issuer.jwks_url) {
        (Some(_), None) => Ok(()),
        (None, Some(url)) if url.starts_with("https://") => Ok(()),
        (None, Some(_)) => Err("jwks_url is an https URL"),
        _ => Err("there is one of jwks_file and jwks_url"),
    }
}

fn is_word(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

fn patterns(texts: &[String], names: Names, place: &str) -> Result<Vec<Pattern>, RulesError> {
    let one = |text: &String| {
        Pattern::parse(text, names)
            .map_err(|why| at(place, format_args!("pattern `{text}`: {why}")))
    };
    texts.iter().map(one).collect()
}

/// Actions are about resources, or about upstreams: what has no pattern would be allowed nowhere.
fn fits(
    actions: &[Action],
    resources: &[String],
    upstreams: &[String],
    place: &str,
) -> Result<Actions, RulesError> {
    if actions.is_empty() {
        return Err(at(place, "there are no actions"));
    }
    if actions.contains(&Action::Admin) && resources.iter().any(|pattern| pattern != "*") {
        let why = "`admin` is about the rules as a whole: its `resources` are `[\"*\"]`";
        return Err(at(place, why));
    }
    let forwards = actions.contains(&Action::ForwardRead);
    let others = actions.iter().any(|action| *action != Action::ForwardRead);
    match (forwards, upstreams.is_empty()) {
        (true, true) => return Err(at(place, "`forward-read` needs `upstreams`")),
        (false, false) => return Err(at(place, "`upstreams` is for `forward-read`")),
        _ => {}
    }
    match (others, resources.is_empty()) {
        (true, true) => Err(at(place, "`resources` is missing: `[\"*\"]` for all")),
        (false, false) => Err(at(place, "`resources` is for other actions than `forward-read`")),
        _ => Ok(actions.iter().copied().collect()),
    }
}

fn role(role: &Role, place: &str) -> Result<RoleEntry, RulesError> {
    if !is_word(&role.name) {
        return Err(at(place, "a name has 1 to 64 letters, digits, `-` and `_`"));
    }
    let denied = role.deny.iter().map(|deny| deny.resources.len()).sum::<usize>();
    at_most(place, "patterns", role.resources.len() + role.upstreams.len() + denied, PATTERNS_MAX)?;
    let allow = fits(&role.allow, &role.resources, &role.upstreams, place)?;
    let Role { ttl_max, hold_max, wait_max, .. } = *role;
    let is_limited = ttl_max.is_some() || hold_max.is_some() || wait_max.is_some();
    if (is_limited || role.infinite.is_some()) && !allow.has(Action::Lock) {
        return Err(at(place, "limits of locks are for roles that allow `lock`"));
    }
    let infinite = role.infinite.unwrap_or(ttl_max.is_none());
    let quotas = role.quotas().map_err(|why| at(place, why))?;
    let deny = |deny: &super::file::Deny| {
        if deny.actions.contains(&Action::ForwardRead) {
            let why =
                "a path has many spellings: say in `upstreams` what is allowed, not what is denied";
            return Err(at(place, why));
        }
        Ok(Deny {
            actions: fits(&deny.actions, &deny.resources, &[], place)?,
            resources: patterns(&deny.resources, Names::Resources, place)?,
        })
    };
    Ok(RoleEntry {
        allow,
        resources: patterns(&role.resources, Names::Resources, place)?,
        upstreams: patterns(&role.upstreams, Names::Upstreams, place)?,
        deny: role.deny.iter().map(deny).collect::<Result<_, RulesError>>()?,
        limits: Limits { ttl_max, hold_max, wait_max, infinite },
        quotas,
    })
}

fn principal(
    principal: &Principal,
    place: &str,
    roles: &BTreeMap<Arc<str>, RoleEntry>,
    issuers: &BTreeMap<String, Arc<Issuer>>,
) -> Result<PrincipalEntry, RulesError> {
    let Principal { name, matches, .. } = principal;
    at_most(place, "roles", principal.roles.len(), ROLES_OF_ONE_MAX)?;
    let known = |role: &String| {
        let found = roles.get_key_value(role.as_str());
        let found = found.ok_or_else(|| at(place, format_args!("there is no role `{role}`")))?;
        Ok(Arc::clone(found.0))
    };
    let mut names = BTreeSet::new();
    if let Some(twice) = principal.roles.iter().find(|role| !names.insert(*role)) {
        return Err(at(place, format_args!("role `{twice}` stands there twice")));
    }
    let roles = principal.roles.iter().map(known).collect::<Result<_, RulesError>>()?;
    let conditions = conditions(matches, place, issuers)?;
    let has_keys = !principal.keys.is_empty() || !principal.s3_keys.is_empty();
    let is_shown = !conditions.is_empty() || has_keys;
    if !is_shown && principal.postgres_roles.is_empty() {
        return Err(at(
            place,
            "it has neither keys nor `match` nor `postgres_roles`: nobody can be it",
        ));
    }
    let name = match name.contains("${") {
        false => super::Name::Own(PrincipalName::new(name).map_err(|why| at(place, why))?),
        true if has_keys => {
            return Err(at(place, "a name with a variable is for `match`, not for keys"));
        }
        true => super::Name::Template(
            Pattern::parse(name, Names::Subjects).map_err(|why| at(place, why))?,
        ),
    };
    at_most(place, "postgres_roles", principal.postgres_roles.len(), ROLES_OF_ONE_MAX)?;
    if name.is_template() && !principal.postgres_roles.is_empty() {
        return Err(at(place, "a role of the database is one principal, not one with a variable"));
    }
    let is_role = |role: &String| (1..=63).contains(&role.len()) && !role.contains('\0');
    if !principal.postgres_roles.iter().all(is_role) {
        return Err(at(place, "a role of the database has a name of 1 to 63 bytes"));
    }
    let postgres_roles = principal.postgres_roles.clone();
    Ok(PrincipalEntry { name, roles, conditions, postgres_roles })
}

/// A name with a variable could become another principal's name, whose locks and writes it would then have. So nothing
/// else begins as it does.
fn no_name_is_template_twice(principals: &[PrincipalEntry]) -> Result<(), RulesError> {
    // In their order, all that begin with a text stand directly behind it.
    let mut names: Vec<_> =
        principals.iter().map(|entry| (entry.name.beginning(), &entry.name)).collect();
    names.sort_unstable_by_key(|(beginning, _)| *beginning);
    for pair in names.windows(2) {
        let [(beginning, name), (other, next)] = pair else { continue };
        let (is_template, next_is_template) = (name.is_template(), next.is_template());
        if (is_template && other.starts_with(beginning)) || (next_is_template && beginning == other)
        {
            let what = format_args!("`{next}` begins alike, and one could become the other");
            return Err(at(format_args!("principal `{name}`"), what));
        }
    }
    Ok(())
}

/// What `match` says, each of it enough.
fn conditions(
    matches: &Match,
    place: &str,
    issuers: &BTreeMap<String, Arc<Issuer>>,
) -> Result<Vec<Condition>, RulesError> {
    let subjects = |text: &String| -> Result<Scope, RulesError> {
        let wrong = |why: PatternError| at(place, format_args!("match: `{text}`: {why}"));
        Pattern::parse_plain(text, Names::Subjects).map_err(wrong)
    };
    let mut conditions = Vec::new();
    match &matches.issuer {
        Some(issuer) => {
            let none = || at(place, format_args!("match: there is no issuer `{issuer}`"));
            let issuer = issuers.get(issuer).ok_or_else(none)?;
            let mut claims = BTreeMap::new();
            let sub = matches.sub.iter().map(|sub| ("sub", sub));
            let others = matches.claims.iter().map(|(name, value)| (name.as_str(), value));
            for (name, value) in sub.chain(others) {
                if claims.insert(name.to_owned(), subjects(value)?).is_some() {
                    return Err(at(place, format_args!("match: `{name}` stands there twice")));
                }
            }
            if claims.is_empty() {
                return Err(at(place, "match: beside `issuer` there is `sub` or `claims`"));
            }
            at_most(place, "claims", claims.len(), CLAIMS_MAX)?;
            conditions.push(Condition::Jwt { issuer: Arc::clone(issuer), claims });
        }
        None if matches.sub.is_some() || !matches.claims.is_empty() => {
            return Err(at(place, "match: `sub` and `claims` need `issuer`"));
        }
        None => {}
    }
    if let Some(id) = &matches.spiffe {
        let domain = id.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/'));
        if !domain.is_some_and(|(domain, path)| is_domain(domain) && !path.is_empty()) {
            return Err(at(place, format_args!("match: `{id}` is not `spiffe://DOMAIN/PATH`")));
        }
        conditions.push(Condition::Spiffe(subjects(id)?, authorities(matches, place)?));
    }
    if let Some(name) = &matches.dns {
        if !is_domain(name) {
            return Err(at(place, format_args!("match: `{name}` is no DNS name in lower case")));
        }
        conditions.push(Condition::Dns(name.clone(), authorities(matches, place)?));
    }
    if !matches.authorities.is_empty() && matches.spiffe.is_none() && matches.dns.is_none() {
        return Err(at(place, "match: `authorities` needs `spiffe` or `dns`"));
    }
    let (uid, gid) = (matches.unix_uid, matches.unix_gid);
    if uid.is_some() || gid.is_some() {
        conditions.push(Condition::Unix { uid, gid });
    }
    Ok(conditions)
}

/// Reads whose certificates count.
fn authorities(matches: &Match, place: &str) -> Result<Authorities, RulesError> {
    at_most(place, "authorities", matches.authorities.len(), AUTHORITIES_MAX)?;
    match matches.authorities.iter().find(|it| !is_digest(it)) {
        Some(wrong) => {
            let why = format_args!("match: `{wrong}` is no SHA-256 of 64 digits in lower case");
            Err(at(place, why))
        }
        None => Ok(Authorities(matches.authorities.iter().cloned().collect())),
    }
}

/// Tells whether a text is a SHA-256 as the rules write it.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_domain(text: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}
