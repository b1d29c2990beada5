//! Mint and seal: numbers all grants that are waiting in one call, and seals them in one act (I5).

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fence_core::ResourceName;
use fence_core::ports::{
    Attempt, Epoch, Ledger, LedgerError, Mint, MintError, MintItem, Patience, Runtime, SealItem,
    SealVerdict,
};

use super::batcher::{Act, Batcher};
use super::error::EngineError;
use super::locks::Release;
use super::traces::Traces;

/// How often a grant is numbered anew before the mint is declared to have lost its place.
const ROUNDS_MAX: u32 = 3;

/// What became of a grant.
pub(super) enum GrantVerdict {
    /// The ledger decided.
    Sealed(SealVerdict),
    /// No number could be had.
    NoNumber(EngineError),
}

/// What a mint that has lost its place is told by.
pub(super) const REGRESSED: &str =
    "the mint's numbers do not rise above the tokens that the ledger has sealed";

/// Mint and seal, as the act of a batcher.
pub(super) struct Granting {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) mint: Arc<dyn Mint>,
    pub(super) traces: Traces,
    pub(super) releases: Arc<Batcher<Release>>,
    pub(super) runtime: Runtime,
    /// The epoch as last read; read again when the mint or the ledger contradicts it.
    pub(super) epoch: Mutex<Option<Epoch>>,
    /// Whether to mint at all: a re-entry under a known id needs no number.
    pub(super) minting: bool,
}

/// One grant under way.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) item: SealItem,
    /// Whether the caller chose the id, and so can come back for the lock.
    pub(super) proposed: bool,
    /// Whether the caller still waits for it.
    pub(super) wanted: bool,
}

impl Granting {
    /// The current epoch, with a mint that carries its nonce.
    async fn open_epoch(&self) -> Result<Epoch, EngineError> {
        let known = self.epoch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(epoch) = known {
            return Ok(epoch);
        }
        let mut epoch = self.ledger.epoch().await?;
        if !epoch.open {
            let carried = self.mint.adopt(epoch.nonce).await?;
            epoch = self.ledger.open_epoch(carried).await?;
            if !epoch.open || epoch.nonce != carried {
                return Err(MintError::OtherIncarnation { found: Some(carried) }.into());
            }
        }
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = Some(epoch.clone());
        Ok(epoch)
    }

    fn forget_epoch(&self) {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A number for all grants, and the epoch it belongs to.
    ///
    /// The epoch is read once more if the mint carries another nonce than expected: it may have
    /// moved on. If it has not, the mint has lost its place.
    async fn number(&self, items: &[Pending]) -> Result<(Epoch, i64), EngineError> {
        let wanted: Vec<MintItem> = items
            .iter()
            .flat_map(|pending| pending.item.resources.iter().map(move |r| (r, &pending.item)))
            .map(|(resource, item)| MintItem {
                resource: resource.clone(),
                lock: item.lock,
                owner: item.owner.clone(),
            })
            .collect();
        let ended = self.traces.take();
        for attempt in 0..2 {
            let epoch = self.open_epoch().await?;
            match self.mint.mint(epoch.nonce, &wanted, &ended).await {
                Ok(number) => return Ok((epoch, number)),
                Err(MintError::OtherIncarnation { .. }) if attempt == 0 => self.forget_epoch(),
                Err(error) => {
                    self.traces.add(ended);
                    return Err(error.into());
                }
            }
        }
        Err(EngineError::MintUnavailable("the epoch of the mint is changing".into()))
    }

    /// Mints once and seals once.
    ///
    /// No number to be had: items sent before are sealed without one, which tells whether they had
    /// been sealed and buries them if not; the others are told why. The epoch moved between mint and
    /// seal: both again, once.
    async fn round(
        &self,
        items: &[Pending],
        patience: Patience,
    ) -> Result<Vec<GrantVerdict>, LedgerError> {
        let mut moved = false;
        loop {
            let numbered = if self.minting && items.iter().any(|pending| pending.wanted) {
                self.number(items).await.map(Some)
            } else {
                Ok(None)
            };
            let sealed = match &numbered {
                Ok(numbered) => self.seal(items, numbered.as_ref(), patience).await,
                Err(error) => return self.without_number(items, error, patience).await,
            };
            match sealed {
                Err(LedgerError::EpochMoved) if !moved => {
                    self.forget_epoch();
                    moved = true;
                }
                sealed => return Ok(sealed?.into_iter().map(GrantVerdict::Sealed).collect()),
            }
        }
    }

    /// No number to be had: what can be said of each item.
    async fn without_number(
        &self,
        items: &[Pending],
        why: &EngineError,
        patience: Patience,
    ) -> Result<Vec<GrantVerdict>, LedgerError> {
        let sent_before = |pending: &&Pending| pending.item.attempt != Attempt::First;
        let reruns: Vec<Pending> = items.iter().filter(sent_before).cloned().collect();
        let mut sealed =
            if reruns.is_empty() { Vec::new() } else { self.seal(&reruns, None, patience).await? }
                .into_iter();
        let verdict = |pending: &Pending| {
            let found = if sent_before(&pending) { sealed.next() } else { None };
            match found {
                None | Some(SealVerdict::NumberTooLow) => GrantVerdict::NoNumber(why.clone()),
                Some(verdict) => GrantVerdict::Sealed(verdict),
            }
        };
        Ok(items.iter().map(verdict).collect())
    }

    /// Seals `items` under a number, or under none.
    async fn seal(
        &self,
        items: &[Pending],
        numbered: Option<&(Epoch, i64)>,
        patience: Patience,
    ) -> Result<Vec<SealVerdict>, LedgerError> {
        let epoch = match numbered {
            Some((epoch, _)) => epoch.number,
            None => self.ledger.epoch().await?.number,
        };
        let number = numbered.map(|(_, number)| *number);
        let item = |pending: &Pending| SealItem {
            number: number.filter(|_| pending.wanted),
            ..pending.item.clone()
        };
        self.ledger.seal(epoch, items.iter().map(item).collect(), patience).await
    }
}

#[async_trait]
impl Act for Granting {
    type Item = Pending;
    type Verdict = GrantVerdict;
    type Lane = Option<ResourceName>;

    const NAME: &'static str = "seal";
    const DISTINCT: bool = true;

    /// A lock on several resources is kept in order with others by the first of them.
    fn lane(item: &Pending) -> Option<ResourceName> {
        item.item.resources.first().cloned()
    }

    /// Mints for all items and seals them; those whose number did not rise, again.
    ///
    /// A number that does not rise above a fence: the fence was raised in between. A number minted
    /// after that which still does not rise means that the mint has gone back.
    ///
    /// An error of the first round is the batch's: nothing was sealed. A later round has verdicts to
    /// keep, so its error goes to its own items; only an unknown outcome reruns them all, and finds
    /// those that were sealed by their ids.
    async fn run(
        &self,
        items: Arc<[Pending]>,
        patience: Patience,
    ) -> Result<Vec<GrantVerdict>, LedgerError> {
        let mut verdicts: Vec<Option<GrantVerdict>> = items.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..items.len()).collect();
        for round in 1..=ROUNDS_MAX {
            let batch: Vec<Pending> = open.iter().map(|&i| items[i].clone()).collect();
            let decided = match self.round(&batch, patience).await {
                Ok(decided) => decided,
                Err(error) if round == 1 || matches!(error, LedgerError::Unknown(_)) => {
                    return Err(error);
                }
                Err(error) => {
                    let failed = || GrantVerdict::NoNumber(error.clone().into());
                    batch.iter().map(|_| failed()).collect()
                }
            };
            let mut again = Vec::new();
            for (&i, verdict) in open.iter().zip(decided) {
                let too_low = matches!(verdict, GrantVerdict::Sealed(SealVerdict::NumberTooLow));
                // A rerun whose number did not rise is buried: it must not be sent again.
                let first = items[i].item.attempt == Attempt::First;
                if too_low && first && self.minting && round < ROUNDS_MAX {
                    again.push(i);
                } else {
                    verdicts[i] = Some(verdict);
                }
            }
            open = again;
            if open.is_empty() {
                break;
            }
        }
        let undecided = || GrantVerdict::NoNumber(EngineError::MintRegressed(REGRESSED.into()));
        Ok(verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(undecided)).collect())
    }

    fn is_busy(verdict: &GrantVerdict) -> bool {
        matches!(verdict, GrantVerdict::Sealed(SealVerdict::Busy))
    }

    fn is_first(item: &Pending) -> bool {
        item.item.attempt == Attempt::First
    }

    fn rerun(item: &mut Pending, wanted: bool) {
        item.item.attempt = Attempt::Rerun;
        item.wanted = wanted || item.proposed;
    }

    /// A grant whose caller has gone is given back, unless the caller can come back for it.
    fn undelivered(&self, item: Pending, verdict: GrantVerdict) {
        let (SealVerdict::Sealed(grant, _) | SealVerdict::Again(grant)) = (match verdict {
            GrantVerdict::Sealed(verdict) => verdict,
            GrantVerdict::NoNumber(_) => return,
        }) else {
            return;
        };
        if !item.proposed {
            let releases = Arc::clone(&self.releases);
            let release = async move {
                if releases.submit(grant.lock).await.is_err() {
                    tracing::warn!("an undelivered lock could not be released; it will expire");
                }
            };
            self.runtime.spawn.spawn("release-undelivered", Box::pin(release));
        }
    }
}
