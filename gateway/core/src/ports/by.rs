//! On whose behalf an act is done, and under which rules of access that was allowed.

use std::sync::Arc;

use crate::principal::{PrincipalName, WriterName};

/// The most writers of one lock.
pub const WRITERS_MAX: usize = crate::wire::LOCK_WRITERS_MAX;

/// On whose behalf an act is done. The default is the gateway itself, or anybody where no rules are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct By {
    /// The principal; none where no rules are in force.
    pub principal: Option<PrincipalName>,
    /// Its roles, by which writers may be named.
    pub roles: Arc<[Arc<str>]>,
    /// The generation of the rules under which it was allowed. Under any other nothing is decided (I17). None for what
    /// the gateway does by itself, which nobody has to allow.
    pub rules: Option<i64>,
}

impl By {
    /// What the gateway does by itself for this principal.
    pub fn gateway_for(principal: Option<PrincipalName>) -> Self {
        Self { principal, ..Self::default() }
    }

    /// Whether something that was sealed to this principal, and to these writers, was sealed to whoever this is (I16).
    pub fn is_it_or_writer(
        &self,
        principal: Option<&PrincipalName>,
        writers: &[WriterName],
    ) -> bool {
        self.principal.as_ref() == principal || writers.iter().any(|writer| self.is_named(writer))
    }

    fn is_named(&self, writer: &WriterName) -> bool {
        match writer.role() {
            Some(role) => self.roles.iter().any(|own| **own == *role),
            None => self.principal.as_ref().is_some_and(|own| own.as_str() == writer.as_str()),
        }
    }

    /// All its names as text, for the ledgers: the principal, then `role:NAME` for each role, each apart by a space.
    pub fn names(&self) -> Option<String> {
        let principal = self.principal.as_ref()?;
        let bytes = self
            .roles
            .iter()
            .fold(principal.as_str().len(), |sum, role| sum + " role:".len() + role.len());
        let mut names = String::with_capacity(bytes);
        names.push_str(principal.as_str());
        for role in self.roles.iter() {
            names.push_str(" role:");
            names.push_str(role);
        }
        Some(names)
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
        let ann = By { principal: Some(name("ann")), roles: ["loader".into()].into(), rules: None };
        let writer = |name: &str| WriterName::new(name).expect("a name");
        assert!(ann.is_it_or_writer(Some(&name("ann")), &[]));
        assert!(!ann.is_it_or_writer(Some(&name("bob")), &[]));
        assert!(!ann.is_it_or_writer(None, &[]), "what nobody was named for is not hers");
        assert!(ann.is_it_or_writer(Some(&name("bob")), &[writer("eve"), writer("ann")]));
        assert!(ann.is_it_or_writer(Some(&name("bob")), &[writer("role:loader")]));
        assert!(!ann.is_it_or_writer(Some(&name("bob")), &[writer("loader"), writer("role:ann")]));
        assert!(By::default().is_it_or_writer(None, &[]));
        assert!(!By::default().is_it_or_writer(Some(&name("ann")), &[writer("bob")]));
        assert_eq!(ann.names().as_deref(), Some("ann role:loader"));
        assert_eq!(By::default().names(), None);
    }
}
