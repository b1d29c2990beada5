//! Keys of S3: of locks, of principals, and of whoever has them. All of them follow from the root; none is stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::LockRecord;
use fence_core::{LockId, Token, Ttl, wire};
use fencegate_access::ApiKey;
use fencegate_s3::key::{AccessKey, Keys, NONCE_LEN, Rights};
use parking_lot::RwLock;

use crate::engine::access::{Asks, LockHolder};
use crate::engine::metrics::KEYS_AHEAD;
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
    /// `LockNotFound`: it was forgotten since, or lost with the commits that a re-fence is about; or it lapsed as long ago
    /// as an ended lock is kept.
    pub async fn lock_of_s3_key(
        &self,
        token: Token,
        lock: LockId,
    ) -> Result<LockRecord, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let record = self.call(async move { ledger.lock(lock).await }).await?;
        let kept = self.inner.agreement.retention().ended_locks;
        let is_kept = |record: &LockRecord| {
            let lapsed_ms = -i128::from(record.grant.remaining_ms);
            record.grant.ttl == Ttl::NONE || lapsed_ms <= kept.as_millis().cast_signed()
        };
        let record = record.filter(|record| record.grant.token == token && is_kept(record));
        record.ok_or(EngineError::LockNotFound)
    }
}

/// Locks whose holders are kept; beyond that all are forgotten.
const HOLDERS_MAX: usize = 4096;
/// How long it is good that a lock was known: one that is forgotten may read for so much longer.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The holders of locks that keys of S3 were shown of.
#[derive(Default)]
pub(in crate::engine) struct LockHolders {
    known: RwLock<HashMap<(Token, LockId), KnownLock>>,
}

/// A lock that was known.
struct KnownLock {
    holder: Option<LockHolder>,
    asked_at: Duration,
}

impl Engine {
    /// Finds the caller behind the key of S3 of a lock that has signed a request: its principal, by the credential to which the lock
    /// belongs.
    ///
    /// 1. The holder that is known here, if the rules let it in.
    /// 2. Else the holder that the ledger knows: a renewal by another credential may have come since.
    /// 3. Of a lock that is not known it is told whether the ledger ever came as far.
    ///
    /// # Errors
    /// As [`lock_of_s3_key`](Self::lock_of_s3_key) and [`Access::of_holder`](crate::engine::access::Access::of_holder).
    pub async fn asks_of_s3_lock(&self, token: Token, lock: LockId) -> Result<Asks, EngineError> {
        let access = self.access();
        // Step 1.
        let now = self.inner.runtime.clock.elapsed();
        let known = self.inner.lock_holders.of((token, lock), now);
        if let Some(holder) = &known
            && let Ok(asks) = access.of_holder(holder.as_ref()).await
        {
            return Ok(asks);
        }
        // Step 2.
        let found = self.lock_of_s3_key(token, lock).await;
        // Step 3.
        if matches!(found, Err(EngineError::LockNotFound)) {
            self.tell_if_ahead(token).await;
        }
        let LockRecord { grant, credential, .. } = found?;
        let holder = grant.principal.map(|principal| LockHolder { principal, credential });
        self.inner.lock_holders.keep((token, lock), holder.clone(), now);
        access.of_holder(holder.as_ref()).await
    }

    /// Counts a key of S3 whose token is above all that this ledger has sealed or voided. Nobody makes up a key that signs, and a token
    /// is given out only once it is sealed (I5): so the ledger went back, and no re-fence has noted it. The place is read after the
    /// lock was not found, so what was sealed meanwhile counts.
    async fn tell_if_ahead(&self, token: Token) {
        let ledger = Arc::clone(&self.inner.ledger);
        // A ledger that does not answer is told by others; the next request asks again.
        let Ok(place) = self.call(async move { ledger.place(None).await }).await else { return };
        if token.get() > place.highest.max(place.floor) {
            tracing::error!(
                "a good signature is by the key of a token above all that were ever granted: the ledger went back, \
                 or the root of its S3 keys is that of another ledger, too"
            );
            ::metrics::counter!(KEYS_AHEAD).increment(1);
        }
    }
}

impl LockHolders {
    fn of(&self, lock: (Token, LockId), now: Duration) -> Option<Option<LockHolder>> {
        let known = self.known.read();
        let known = known.get(&lock)?;
        (now.saturating_sub(known.asked_at) <= KNOWN_FOR).then(|| known.holder.clone())
    }

    fn keep(&self, lock: (Token, LockId), holder: Option<LockHolder>, now: Duration) {
        let mut known = self.known.write();
        if known.len() >= HOLDERS_MAX {
            known.clear();
        }
        known.insert(lock, KnownLock { holder, asked_at: now });
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
