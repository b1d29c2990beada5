//! Who asks with a key of S3, once its signature was found good.

use std::sync::Arc;

use fence_core::PrincipalName;
use fence_core::ports::Credential;
use fencegate_access::Identity;

use super::{Access, Asks};
use crate::engine::EngineError;

/// The principal of a lock, and the credential to which the lock belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// The principal.
    pub principal: PrincipalName,
    /// The credential that took the lock or renewed it last; none of a lock that another principal has handed over.
    pub credential: Option<Credential>,
}

impl Access {
    /// Whoever has the key of S3 by which the rules name it so.
    ///
    /// # Errors
    /// `Unauthenticated`: no principal has it, it is revoked, or no rules are in force, where nobody has such a key.
    /// `AccessUnavailable`.
    pub async fn of_s3_key(&self, kid: &str) -> Result<Asks, EngineError> {
        let asks = self.of_signer(Identity::S3Key { kid: kid.to_owned() }).await?;
        match asks.is_ruled() {
            true => Ok(asks),
            false => Err(EngineError::Unauthenticated),
        }
    }

    /// The principal of a lock, by what the rules that are in force now say of it and of the credential to which the lock
    /// belongs: it is the one that asks with the lock's key. `None` for a lock that was taken where no rules were in force.
    ///
    /// # Errors
    /// `Unauthenticated`: rules are in force, and the lock has no principal, or one that they do not know any more, or its
    /// credential is revoked or gone. `CredentialExpired`. `AccessUnavailable`.
    pub async fn of_holder(&self, holder: Option<&LockHolder>) -> Result<Asks, EngineError> {
        let in_force = self.in_force().await?;
        match holder {
            // Where that is no longer so, the ledger says so: nothing is done under rules that are not in force.
            _ if in_force.rules().is_none() => Ok(Asks::new(self, in_force, None)),
            None => Err(EngineError::Unauthenticated),
            Some(LockHolder { principal, credential }) => {
                let (principal, credential) = (principal.clone(), credential.clone());
                let ends = credential.as_ref().and_then(|credential| credential.ends);
                let credential = credential.map(|credential| credential.name);
                self.of_signer(Identity::S3Lock { principal, credential, ends }).await
            }
        }
    }

    /// Somebody who is nobody under the rules that this gateway knows may be somebody under newer ones.
    async fn of_signer(&self, identity: Identity) -> Result<Asks, EngineError> {
        let identity = Arc::new(identity);
        let in_force = self.in_force().await?;
        let now = || self.inner.runtime.clock.now();
        let found = in_force.known(Some(Arc::clone(&identity)), now());
        if let Ok(Some(known)) = found {
            return Ok(Asks::new(self, in_force, Some(known)));
        }
        let Some(newer) = self.newer(&in_force).await else {
            return found.map(|known| Asks::new(self, in_force, known));
        };
        let known = newer.known(Some(identity), now())?;
        Ok(Asks::new(self, newer, known))
    }
}
