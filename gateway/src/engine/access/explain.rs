//! Why somebody may do something, or may not.

use fence_core::names::NameError;
use fence_core::{PrincipalName, ResourceName};
use fencegate_access::{Action, Allowed, Denied, Rules};

use super::Want;

impl Want {
    /// This, to a resource; with `*` at its end, to all whose names begin so; or to `UPSTREAM/PATH`.
    ///
    /// # Errors
    /// It is no name.
    pub fn asked(action: Action, resource: &str) -> Result<Self, NameError> {
        if action == Action::ForwardRead {
            let (upstream, path) = resource.split_once('/').unwrap_or((resource, ""));
            return Ok(Self::ForwardRead(upstream.to_owned(), format!("/{path}")));
        }
        match resource.strip_suffix('*') {
            Some(prefix) => Ok(Self::All(action, prefix.to_owned())),
            None => ResourceName::new(resource).map(|name| Self::On(action, name)),
        }
    }
}

/// What rules say of one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The generation of the rules that say so.
    pub generation: i64,
    /// Whether it is allowed.
    pub is_allowed: bool,
    /// The role and the pattern of the line that decides, if one does.
    pub by: Option<(String, String)>,
    /// The same in words.
    pub why: String,
}

/// What the rules of this generation say of a principal that wants something. Of one whose name is made of what it shows, what the rules
/// say by other claims is not known, and allows nothing.
pub fn explain(
    (generation, rules): (i64, Option<&Rules>),
    principal: &PrincipalName,
    want: &Want,
) -> Explained {
    let none = |is_allowed, why: String| Explained { generation, is_allowed, by: None, why };
    let Some(rules) = rules else {
        return none(true, "no rules are in force: whoever reaches a gateway may do all".into());
    };
    let Some(caller) = rules.named(principal) else {
        return none(false, format!("the rules have no principal {principal}"));
    };
    let (action, on) = (want.action(), want.on());
    let line = |is_allowed, word, role: &str, scope: &dyn std::fmt::Display| Explained {
        generation,
        is_allowed,
        by: Some((role.to_owned(), scope.to_string())),
        why: format!("role {role} {word} {principal} to {action} {on}, by its pattern {scope}"),
    };
    match want.decision(&caller) {
        Ok(Allowed { by: (role, scope) }) => line(true, "allows", role, scope),
        Err(Denied::By(role, scope)) => line(false, "forbids", role, scope),
        Err(Denied::Beyond(role, _)) => {
            none(false, format!("role {role} allows {principal} to {action} {on}, but not so long"))
        }
        Err(Denied::NothingAllows) => {
            let roles: Vec<&str> = caller.roles().iter().map(|role| &**role).collect();
            let roles = if roles.is_empty() { "none".to_owned() } else { roles.join(", ") };
            none(false, format!("no role of {principal} ({roles}) allows it to {action} {on}"))
        }
    }
}
