//! Keys of S3: of locks, of principals, and of whoever has them. All of them follow from the root; none is stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::LockRecord;
use fence_core::{LockId, PrincipalName, Token, wire};
use fencegate_access::ApiKey;
use fencegate_s3::key::{AccessKey, Keys, NONCE_LEN, Rights};
use parking_lot::RwLock;

use crate::engine::{Engine, EngineError};

impl Engine {
    /// What keys of S3 are made and read with; none where S3 is off.
    pub fn s3_keys(&self) -> Option<&Arc<Keys>> {
        self.inner.settings.s3_keys.as_ref()
    }

    /// The key of S3 that stands for a lock; none where S3 is off. A function of both and the root alone: no other lock
    /// has it, ever (I18). So it may be given to whoever has the token, and to nobody else.
    pub fn s3_key_of(&self, token: Token, lock: LockId) -> Option<AccessKey> {
        self.s3_keys().map(|keys| keys.of_lock(token, lock))
    }

    /// The lock that a key of S3 names, also one that has ended.
    ///
    /// # Errors
    /// `LockNotFound`: it was forgotten since, or lost with the commits that a re-fence is about.
    pub async fn lock_of_s3_key(
        &self,
        token: Token,
        lock: LockId,
    ) -> Result<LockRecord, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let record = self.call(async move { ledger.lock(lock).await }).await?;
        record.filter(|record| record.grant.token == token).ok_or(EngineError::LockNotFound)
    }
}

/// Locks whose principals are kept; beyond that all are forgotten.
const PRINCIPALS_MAX: usize = 4096;
/// How long it is good that a lock was known: one that is forgotten may read for so much longer.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Whose locks are that keys of S3 were shown of.
#[derive(Default)]
pub(in crate::engine) struct LockPrincipals {
    known: RwLock<HashMap<(Token, LockId), KnownLock>>,
}

/// A lock that was known.
struct KnownLock {
    principal: Option<PrincipalName>,
    asked_at: Duration,
}

impl Engine {
    /// Who took the lock that a key of S3 names; a lock never changes hands under its token.
    ///
    /// # Errors
    /// As [`lock_of_s3_key`](Self::lock_of_s3_key).
    pub async fn principal_of_s3_lock(
        &self,
        token: Token,
        lock: LockId,
    ) -> Result<Option<PrincipalName>, EngineError> {
        let now = self.inner.runtime.clock.elapsed();
        let known = &self.inner.lock_principals.known;
        if let Some(lock) = known.read().get(&(token, lock))
            && now.saturating_sub(lock.asked_at) <= KNOWN_FOR
        {
            return Ok(lock.principal.clone());
        }
        let principal = self.lock_of_s3_key(token, lock).await?.grant.principal;
        let mut known = known.write();
        if known.len() >= PRINCIPALS_MAX {
            known.clear();
        }
        let lock_known = KnownLock { principal: principal.clone(), asked_at: now };
        known.insert((token, lock), lock_known);
        Ok(principal)
    }
}

/// A new key: of whoever has it, with these rights, or else of a principal.
///
/// # Errors
/// The system has no random bytes.
pub fn new_s3_key(keys: &Keys, rights: Option<wire::S3Rights>) -> Result<wire::S3Key, EngineError> {
    let random = |error: getrandom::Error| {
        EngineError::Defect(format!("the system has no random bytes: {error}"))
    };
    let (kid, AccessKey { id, secret }) = match rights {
        Some(rights) => {
            let mut nonce = [0; NONCE_LEN];
            getrandom::fill(&mut nonce).map_err(random)?;
            let rights = match rights {
                wire::S3Rights::Read => Rights::Read,
                wire::S3Rights::Admin => Rights::Admin,
            };
            (None, keys.of_anyone(rights, nonce))
        }
        None => {
            let kid = ApiKey::generate().map_err(random)?.kid().to_owned();
            let key = keys.of_principal(&kid);
            let key = key.map_err(|why| EngineError::Defect(why.to_string()))?;
            (Some(kid), key)
        }
    };
    let secret_access_key = secret.reveal().to_owned();
    Ok(wire::S3Key { kid, access_key_id: id, secret_access_key })
}
