//! The epoch: it says which mint's numbers count, and from where on. A mint that has lost its place is given a
//! new epoch with a higher base; holders notice nothing.

use std::sync::Arc;

use fence_core::ports::{Carry, Epoch, Head, Ledger, Mint, Place, Reached, Runtime, Witness};
use parking_lot::Mutex;

use crate::engine::{EngineError, metrics};

/// How often opening an epoch begins anew because somebody else changed something meanwhile.
const OPENINGS_MAX: u32 = 5;

/// The epoch as this gateway knows it, and what it takes to begin a new one.
pub(in crate::engine) struct Epochs {
    ledger: Arc<dyn Ledger>,
    mint: Arc<dyn Mint>,
    runtime: Runtime,
    /// As last read; read again when the mint or the ledger contradicts it.
    known: Mutex<Option<Epoch>>,
}

impl Epochs {
    pub(in crate::engine) fn new(
        ledger: Arc<dyn Ledger>,
        mint: Arc<dyn Mint>,
        runtime: Runtime,
    ) -> Self {
        Self { ledger, mint, runtime, known: Mutex::new(None) }
    }

    /// The current epoch, with a mint that was seen to carry its nonce.
    pub(in crate::engine) async fn current(&self) -> Result<Epoch, EngineError> {
        let known = self.known.lock().clone();
        match known {
            Some(epoch) => Ok(epoch),
            None => self.read().await,
        }
    }

    pub(in crate::engine) fn forget(&self) {
        *self.known.lock() = None;
    }

    /// Reads the epoch, and opens it if nobody has: also one that another gateway began before it
    /// died.
    pub(super) async fn read(&self) -> Result<Epoch, EngineError> {
        let mut epoch = self.ledger.epoch().await?;
        if !epoch.open {
            epoch = self.open().await?;
        }
        *self.known.lock() = Some(epoch.clone());
        Ok(epoch)
    }

    /// Makes the mint carry the nonce of the epoch, and records that it does.
    ///
    /// 1. The mint is read *before* the ledger. Whoever put the nonce that is found had read it from
    ///    the ledger before, so the ledger's nonce, read after it, is no older; and it is put only
    ///    in place of the one that was found. So no nonce ever gives way to an older one.
    /// 2. The first epoch takes the nonce that is there, as long as nothing was sealed.
    /// 3. Otherwise the nonce is put together with the base of its epoch, in one act: no token is used of an
    ///    epoch whose base the mint does not know.
    async fn open(&self) -> Result<Epoch, EngineError> {
        for _ in 0..OPENINGS_MAX {
            let head = self.mint.head().await?;
            let epoch = self.ledger.epoch().await?;
            if epoch.open {
                return Ok(epoch);
            }
            let place = self.checked(&head).await?;
            let carried = if epoch.number == 0 {
                self.mint.adopt(epoch.nonce, epoch.ledger).await?
            } else {
                head.incarnation.unwrap_or_default()
            };
            if epoch.number == 0 || carried == epoch.nonce {
                let opened = self.ledger.open_epoch(carried).await?;
                if opened.open && opened.nonce == carried {
                    return Ok(opened);
                }
            }
            // With a milestone: what is granted under the new nonce is not older.
            let known =
                Witness::milestone_of(head.witness.as_ref(), &place).map_or(0, |one| one.number);
            let milestone = self.ledger.leave_milestone(known, true).await?;
            let witness = Witness::following(head.witness.as_ref(), &place, milestone);
            let carry = Carry { nonce: epoch.nonce, ledger: epoch.ledger, witness };
            if place.epoch == epoch && self.mint.replace(&head, &carry).await? {
                let opened = self.ledger.open_epoch(epoch.nonce).await?;
                if opened.open && opened.nonce == epoch.nonce {
                    return Ok(opened);
                }
            }
        }
        Err(EngineError::MintUnavailable("the epoch of the mint is changing".into()))
    }

    /// Begins a new epoch in place of `expected`, unless there is another one by now, and opens it.
    /// Of several gateways that notice at once, one does.
    pub(in crate::engine) async fn switch(
        &self,
        expected: i64,
        why: &str,
    ) -> Result<Epoch, EngineError> {
        self.forget();
        let head = self.mint.head().await?;
        self.checked(&head).await?;
        let nonce = self.runtime.ids.uuid();
        let above = Reached::by(self.runtime.clock.now()).token;
        let epoch = self.ledger.switch_epoch(expected, nonce, above, why).await?;
        if epoch.nonce == nonce {
            ::metrics::counter!(metrics::EPOCH_SWITCHES).increment(1);
            tracing::warn!(
                why,
                epoch = epoch.number,
                base = epoch.base,
                "the mint has lost its place: a new epoch begins; holders go on"
            );
        }
        self.read().await
    }

    /// Refuses a mint that serves another ledger, and a ledger that the mint has seen further on.
    /// Returns where the ledger stands, as read after the mint.
    async fn checked(&self, head: &Head) -> Result<Place, EngineError> {
        let place = self.ledger.place(head.milestone()).await?;
        head.check_owner(place.epoch.ledger)?;
        if let Some(why) = Witness::against(head.witness.as_ref(), &place) {
            self.ledger.halt(place.line(), &why).await?;
            return Err(EngineError::RefenceRequired(why));
        }
        Ok(place)
    }
}
