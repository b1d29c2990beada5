//! Who asks, under the rules that were in force when the request came, or newer ones.

use std::sync::Arc;
use std::time::Duration;

use fence_core::mutants::{self, Mutant};
use fence_core::ports::Request;
use fence_core::{PrincipalName, ResourceName};
use fencegate_access::{Action, Caller, Rules};
use parking_lot::{Mutex, RwLock};

use super::want::Standing;
use super::{Access, InForce, Known, Permit, Want};
use crate::engine::EngineError;

/// Pause before the rules are asked for once more.
const PAUSE: Duration = Duration::from_secs(1);

/// Who asks for something; cheap to clone.
#[derive(Clone)]
pub struct Asks {
    access: Access,
    standing: Arc<RwLock<Standing>>,
    /// All that was asked for so far.
    wants: Arc<Mutex<Vec<Want>>>,
    /// By which request, where the audit is to have that.
    request: Option<Arc<Request>>,
}

impl Asks {
    /// Somebody that is known; nobody in particular where no rules are in force, or for what needs no credential.
    pub fn new(access: &Access, in_force: Arc<InForce>, known: Option<Arc<Known>>) -> Self {
        let standing = Arc::new(RwLock::new(Standing { in_force, known }));
        Self { access: access.clone(), standing, wants: Arc::default(), request: None }
    }

    /// The same, by a request that the audit is to have.
    #[must_use]
    pub fn by_request(self, request: Request) -> Self {
        Self { request: Some(Arc::new(request)), ..self }
    }

    /// Nobody, while the rules are not known: nothing is allowed that has to be.
    pub fn of_nobody(access: &Access) -> Self {
        let none = Rules::parse("").ok();
        let principals = access.inner.principals.clone();
        let in_force =
            InForce { generation: -1, rules: none, callers: Mutex::default(), principals };
        Self::new(access, Arc::new(in_force), None)
    }

    fn standing(&self) -> Standing {
        self.standing.read().clone()
    }

    /// The same caller, who has asked for nothing yet.
    pub fn alike(&self) -> Self {
        Self { wants: Arc::default(), ..self.clone() }
    }

    /// Resolves once other rules are in force, as far as this gateway has heard, or once the credential has expired.
    pub async fn moved(&self) {
        let standing = self.standing();
        let ends = standing.caller().and_then(Caller::expires);
        tokio::select! {
            () = self.access.moved(standing.in_force.generation) => {}
            () = self.access.passed(ends) => {}
        }
    }

    /// Tells whether all that was asked for so far is allowed still. Asks again while the rules cannot be had.
    pub async fn still_allowed(&self) -> bool {
        loop {
            match self.confirm().await {
                Ok(()) => return true,
                Err(error) if error.code().status() < 500 => return false,
                Err(_) => self.access.inner.runtime.clock.sleep(PAUSE).await,
            }
        }
    }

    /// Resolves once other rules are in force than those that were asked last, after a pause: this gateway may hear of
    /// these later than the one who asked.
    pub async fn moved_again(&self) {
        self.access.inner.runtime.clock.sleep(PAUSE).await;
        self.moved().await;
    }

    /// Tells whether anything was asked for so far.
    pub fn has_asked(&self) -> bool {
        !self.wants.lock().is_empty()
    }

    /// Whether rules are in force.
    pub fn is_ruled(&self) -> bool {
        self.standing.read().in_force.rules.is_some()
    }

    /// The caller; none where no rules are in force, or for what needs no credential.
    pub fn known(&self) -> Option<Arc<Known>> {
        self.standing.read().known.clone()
    }

    /// The same for a moment.
    pub fn with_known<T>(&self, look: impl FnOnce(&Known) -> T) -> Option<T> {
        self.standing.read().known.as_deref().map(look)
    }

    /// The principal; none where no rules are in force, or for what needs no credential.
    pub fn principal(&self) -> Option<PrincipalName> {
        self.standing.read().caller().map(Caller::name).cloned()
    }

    /// Whether something is allowed, without asking for it.
    pub fn could(&self, want: &Want) -> bool {
        self.standing.read().allows(want)
    }

    /// Asks for something.
    ///
    /// 1. What the rules allow that this gateway knows needs no more: the ledger will say if they are old.
    /// 2. What they refuse may be allowed by now: if others are in force, all that was asked for is asked of those.
    ///
    /// # Errors
    /// `PermissionDenied`, whether the resource exists or not; `Unauthenticated`.
    pub async fn may(&self, want: Want) -> Result<(), EngineError> {
        // Step 1.
        if !self.could(&want) {
            // Step 2.
            self.renew(&want).await?;
        }
        self.wants.lock().push(want);
        Ok(())
    }

    async fn renew(&self, want: &Want) -> Result<(), EngineError> {
        let standing = self.standing();
        let newer = match self.access.newer(&standing.in_force).await {
            Some(in_force) => {
                let now = self.access.inner.runtime.clock.now();
                Standing::of(standing.identity(), in_force, now)?
            }
            None => standing,
        };
        newer.decide(std::slice::from_ref(want))?;
        newer.decide(&self.wants.lock().clone())?;
        *self.standing.write() = newer;
        Ok(())
    }

    /// The same of something that the ledger has no part in: it is told also while the ledger does not answer, so it is
    /// not held against the rules once more.
    ///
    /// # Errors
    /// `PermissionDenied`, `Unauthenticated`.
    pub fn may_here(&self, want: &Want) -> Result<(), EngineError> {
        self.standing().decide(std::slice::from_ref(want))
    }

    /// Asks for this to be done to a resource.
    ///
    /// # Errors
    /// `PermissionDenied`, `Unauthenticated`.
    pub async fn may_on(
        &self,
        action: Action,
        resource: &ResourceName,
    ) -> Result<Permit, EngineError> {
        self.may(Want::On(action, resource.clone())).await?;
        Ok(self.permit())
    }

    /// What was asked for so far, and allowed, to go with it to the ledger.
    pub fn permit(&self) -> Permit {
        let wants = self.wants.lock().clone();
        Permit::new(&self.access, &self.standing.read(), wants, self.request.clone())
    }

    /// Whether all that was asked for so far is still allowed: asked of the rules that are in force now, by what the
    /// ledger says after this call. For what was read under older ones, before a byte of it is sent. From then on those
    /// rules count for whatever is asked.
    ///
    /// # Errors
    /// It is not; the credential has expired since; or that cannot be said.
    pub async fn confirm(&self) -> Result<(), EngineError> {
        let wants = self.wants.lock().clone();
        if wants.is_empty() || mutants::is(Mutant::ReadsSkipGeneration) {
            return Ok(());
        }
        let standing = self.standing();
        let since = self.access.since(&standing.in_force).await?;
        let now = self.access.inner.runtime.clock.now();
        match since {
            None if standing.caller().is_some_and(|caller| caller.has_expired(now)) => {
                Err(EngineError::CredentialExpired)
            }
            None => Ok(()),
            Some(in_force) => {
                let newer = Standing::of(standing.identity(), in_force, now)?;
                newer.decide(&wants)?;
                *self.standing.write() = newer;
                Ok(())
            }
        }
    }
}
