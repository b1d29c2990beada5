//! What a caller was allowed, on its way to the ledger.

use std::sync::Arc;

use fence_core::PrincipalName;
use fence_core::ports::{By, Request};
use fencegate_access::{Caller, Identity};
use jiff::Timestamp;
use parking_lot::RwLock;

use super::want::Standing;
use super::{Access, InForce, Want};
use crate::engine::EngineError;

/// What a caller was allowed, and by which rules; cheap to clone. The default is what the gateway does by itself.
#[derive(Clone, Default)]
pub struct Permit(Option<Arc<Permitted>>);

struct Permitted {
    access: Access,
    identity: Option<Arc<Identity>>,
    wants: Vec<Want>,
    request: Option<Arc<Request>>,
    allowed: RwLock<Allowed>,
}

/// By whom and which rules it was allowed, and when the credential ends that was shown for it.
#[derive(Clone)]
struct Allowed {
    by: By,
    ends: Option<Timestamp>,
}

impl Allowed {
    fn of(standing: &Standing) -> Self {
        Self { by: standing.by(), ends: standing.caller().and_then(Caller::expires) }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Permit").field(&self.by()).finish()
    }
}

impl Permit {
    /// What somebody wants, who may have all of it.
    pub(super) fn new(
        access: &Access,
        standing: &Standing,
        wants: Vec<Want>,
        request: Option<Arc<Request>>,
    ) -> Self {
        debug_assert!(!wants.is_empty(), "nothing was asked for");
        Self(Some(Arc::new(Permitted {
            access: access.clone(),
            identity: standing.identity(),
            wants,
            request,
            allowed: RwLock::new(Allowed::of(standing)),
        })))
    }

    /// As the ledger takes it.
    pub fn by(&self) -> By {
        let Some(permitted) = &self.0 else { return By::default() };
        let by = permitted.allowed.read().by.clone();
        by.asked_by(permitted.request.clone())
    }

    /// On behalf of which principal it is.
    pub fn principal(&self) -> Option<PrincipalName> {
        self.0.as_ref().and_then(|permitted| permitted.allowed.read().by.principal().cloned())
    }

    /// The ledger found that the rules have moved, and has done nothing: asks those that are in force.
    ///
    /// # Errors
    /// They do not allow it any more.
    pub(in crate::engine) async fn renew(&self) -> Result<(), EngineError> {
        let Some(permitted) = &self.0 else {
            return Err(EngineError::Defect("the gateway's own act was held to rules".into()));
        };
        let known = permitted.allowed.read().by.rules;
        let in_force = permitted.access.load(known).await?;
        *permitted.allowed.write() = permitted.ask(in_force)?;
        Ok(())
    }

    /// Resolves once the rules that are in force do not allow it any more, or the credential has ended, with why. Never
    /// otherwise.
    pub(in crate::engine) async fn lost(&self) -> EngineError {
        let Some(permitted) = &self.0 else { return std::future::pending().await };
        let Allowed { by, ends } = permitted.allowed.read().clone();
        let mut asked = by.rules.unwrap_or(0);
        loop {
            tokio::select! {
                () = permitted.access.moved(asked) => {}
                () = permitted.access.passed(ends) => return EngineError::CredentialExpired,
            }
            let Ok(in_force) = permitted.access.in_force().await else { continue };
            asked = in_force.generation;
            if let Err(error) = permitted.ask(in_force) {
                return error;
            }
        }
    }
}

impl Permitted {
    fn ask(&self, in_force: Arc<InForce>) -> Result<Allowed, EngineError> {
        let now = self.access.inner.runtime.clock.now();
        let standing = Standing::of(self.identity.clone(), in_force, now)?;
        standing.decide(&self.wants)?;
        let allowed = Allowed::of(&standing);
        // Whose a lock is to be is settled when it is asked for: what was begun as one principal does not end as another.
        if self.allowed.read().by.principal() != allowed.by.principal() {
            return Err(EngineError::Unauthenticated);
        }
        Ok(allowed)
    }
}
