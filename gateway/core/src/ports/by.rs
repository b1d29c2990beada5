//! On whose behalf an act is done, and under which rules of access that was allowed.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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
    /// How it was asked for, where the audit is to have that.
    request: Option<Arc<Request>>,
}

/// Where a request came from, and how to find it in logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Who sent it: an address, or `unix`.
    pub peer: Option<String>,
    /// Its id: the caller's, or else the gateway's.
    pub request_id: String,
    /// The gateway's, where the caller named one.
    pub gateway_request_id: Option<String>,
}

/// Who asked for what an entry of the audit says, and how. The ledgers keep it as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The principal; none where no rules are in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// By which name its credential can be revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// As in [`Request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// As in [`Request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// As in [`Request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_request_id: Option<String>,
}

/// A credential that was shown for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The name by which the rules can revoke it; never a secret.
    pub name: String,
    /// The end that it has by itself, of a token or a certificate; the rules say that of a key.
    pub ends: Option<Timestamp>,
}

/// A principal by all its names. There is one for all that a caller asks for.
#[derive(Debug, PartialEq, Eq)]
struct Who {
    principal: PrincipalName,
    roles: Arc<[Arc<str>]>,
    /// All of them as text.
    names: String,
    credential: Option<Credential>,
}

impl By {
    /// A principal, and its roles, by which writers may be named.
    pub fn of(principal: PrincipalName, roles: impl Into<Arc<[Arc<str>]>>) -> Self {
        let roles = roles.into();
        let names = roles.iter().fold(principal.to_string(), |names, role| names + " role:" + role);
        let who = Who { principal, roles, names, credential: None };
        Self { who: Some(Arc::new(who)), ..Self::default() }
    }

    /// The same, by this credential.
    #[must_use]
    pub fn showing(mut self, credential: Credential) -> Self {
        if let Some(who) = self.who.as_mut().and_then(Arc::get_mut) {
            who.credential = Some(credential);
        }
        self
    }

    /// The credential that was shown; none where no rules are in force, and for what the gateway does by itself.
    pub fn credential(&self) -> Option<&Credential> {
        self.who.as_ref().and_then(|who| who.credential.as_ref())
    }

    /// The same, asked for by this request, which the audit is to have.
    #[must_use]
    pub fn asked_by(self, request: Option<Arc<Request>>) -> Self {
        Self { request, ..self }
    }

    /// What the audit is to have, as JSON.
    pub fn asked(&self) -> Option<String> {
        let request = self.request.as_deref()?;
        let who = self.who.as_deref();
        let asked = Asked {
            principal: who.map(|who| who.principal.to_string()),
            credential: self.credential().map(|credential| credential.name.clone()),
            peer: request.peer.clone(),
            request_id: Some(request.request_id.clone()),
            gateway_request_id: request.gateway_request_id.clone(),
        };
        // INVARIANT: a struct of strings always serializes.
        Some(serde_json::to_string(&asked).expect("who asked is JSON"))
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

/// Writers in a row, with a space between them, which no name has; nothing if there are none.
pub fn writers_text(writers: &[WriterName]) -> Option<String> {
    let names: Vec<_> = writers.iter().map(WriterName::as_str).collect();
    (!names.is_empty()).then(|| names.join(" "))
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
