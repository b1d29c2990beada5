//! On whose behalf an act is done, and under which rules of access that was allowed.

use std::sync::Arc;

use crate::principal::{PrincipalName, WriterName};

/// The most writers of one lock.
pub const WRITERS_MAX: usize = crate::wire::LOCK_WRITERS_MAX;

/// On whose behalf an act is done; cheap to clone. The default is the gateway itself, or anybody where no rules are in
/// force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct By {
    /// None where no rules are in force.
    who: Option<Arc<Who>>,
    /// The generation of the rules under which it was allowed. Under any other nothing is decided (I17). None for what
    /// the gateway does by itself, which nobody has to allow.
    pub rules: Option<i64>,
}

/// A principal by all its names. There is one for all that a caller asks for.
#[derive(Debug, PartialEq, Eq)]
struct Who {
    principal: PrincipalName,
    roles: Arc<[Arc<str>]>,
    /// All of them as text.
    names: String,
}

impl By {
    /// A principal, and its roles, by which writers may be named.
    pub fn of(principal: PrincipalName, roles: impl Into<Arc<[Arc<str>]>>) -> Self {
        let roles = roles.into();
        let names = roles.iter().fold(principal.to_string(), |names, role| names + " role:" + role);
        Self { who: Some(Arc::new(Who { principal, roles, names })), rules: None }
    }

    /// What the gateway does by itself for this principal.
    pub fn gateway_for(principal: Option<PrincipalName>) -> Self {
        principal.map(|principal| Self::of(principal, [])).unwrap_or_default()
    }

    /// The same, allowed by rules of this generation, if any.
    #[must_use]
    pub fn under(self, rules: impl Into<Option<i64>>) -> Self {
        Self { rules: rules.into(), ..self }
    }

    /// The principal; none where no rules are in force.
    pub fn principal(&self) -> Option<&PrincipalName> {
        self.who.as_ref().map(|who| &who.principal)
    }

    /// All its names as text, for the ledgers: the principal, then `role:NAME` for each role, each apart by a space.
    pub fn names(&self) -> Option<&str> {
        self.who.as_ref().map(|who| &*who.names)
    }

    /// Whether something that was sealed to this principal, and to these writers, was sealed to whoever this is (I16).
    pub fn is_it_or_writer(
        &self,
        principal: Option<&PrincipalName>,
        writers: &[WriterName],
    ) -> bool {
        self.principal() == principal || writers.iter().any(|writer| self.is_named(writer))
    }

    fn is_named(&self, writer: &WriterName) -> bool {
        self.who.as_ref().is_some_and(|who| match writer.role() {
            Some(role) => who.roles.iter().any(|own| **own == *role),
            None => who.principal.as_str() == writer.as_str(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> PrincipalName {
        PrincipalName::new(name).expect("a name")
    }

    #[test]
    fn it_is_its_principal_or_a_writer_by_name_or_role() {
        let ann = By::of(name("ann"), ["loader".into()]);
        let writer = |name: &str| WriterName::new(name).expect("a name");
        assert!(ann.is_it_or_writer(Some(&name("ann")), &[]));
        assert!(!ann.is_it_or_writer(Some(&name("bob")), &[]));
        assert!(!ann.is_it_or_writer(None, &[]), "what nobody was named for is not hers");
        assert!(ann.is_it_or_writer(Some(&name("bob")), &[writer("eve"), writer("ann")]));
        assert!(ann.is_it_or_writer(Some(&name("bob")), &[writer("role:loader")]));
        assert!(!ann.is_it_or_writer(Some(&name("bob")), &[writer("loader"), writer("role:ann")]));
        assert!(By::default().is_it_or_writer(None, &[]));
        assert!(!By::default().is_it_or_writer(Some(&name("ann")), &[writer("bob")]));
        assert_eq!(ann.names(), Some("ann role:loader"));
        assert_eq!(By::default().names(), None);
    }
}
