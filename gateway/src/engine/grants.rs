//! Grants: look, mint, seal, answer.
//!
//! The look refuses a held resource without touching the mint. The mint numbers all grants that are
//! waiting in one call, and one ledger act seals them. An answer goes out only once the ledger holds
//! the token (I5).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fence_core::ports::{
    Attempt, Ended, Epoch, Grant, Holder, Ledger, LedgerError, MINT_RESOURCES_MAX, Mint, MintError,
    MintItem, Patience, Runtime, SealItem, SealVerdict,
};
use fence_core::{LockEnd, LockId, ResourceName, Ttl};

use super::batcher::{Act, Batcher, Failure};
use super::error::EngineError;
use super::locks::Release;
use super::metrics;

/// A wish for a lock.
#[derive(Debug, Clone)]
pub struct Acquire {
    /// The resource.
    pub resource: ResourceName,
    /// The caller's name for itself.
    pub owner: String,
    /// How long the lock lasts without renewal.
    pub ttl: Ttl,
    /// The caller's own choice of an id, with which it can repeat the call.
    pub id: Option<LockId>,
}

/// A lock that was acquired.
#[derive(Debug, Clone)]
pub struct Acquired {
    /// The lock.
    pub grant: Grant,
    /// Whether it had been granted before under the same id.
    pub again: bool,
}

/// How often a grant is numbered anew before the mint is declared to have lost its place.
const ROUNDS_MAX: u32 = 3;

/// What became of a grant.
pub(super) enum GrantVerdict {
    /// The ledger decided.
    Sealed(SealVerdict),
    /// No number could be had.
    NoNumber(EngineError),
}

/// Locks that have ended and whose traces in the mint may go with a later mint.
#[derive(Clone, Default)]
pub(super) struct Traces(Arc<Mutex<VecDeque<Ended>>>);

impl Traces {
    /// Traces beyond this many are left behind: nobody decides on them.
    const MAX: usize = 10_000;
    /// How many go with one mint.
    const PER_MINT: usize = 27;

    /// Remembers traces to remove.
    pub(super) fn add(&self, ended: impl IntoIterator<Item = Ended>) {
        let mut traces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = Self::MAX.saturating_sub(traces.len());
        traces.extend(ended.into_iter().take(room));
    }

    fn take(&self) -> Vec<Ended> {
        let mut traces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = traces.len().min(Self::PER_MINT);
        traces.drain(..count).collect()
    }
}

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

const REGRESSED: &str =
    "the mint's numbers do not rise above the tokens that the ledger has sealed";

/// The look: who holds a resource, as the act of a batcher.
pub(super) struct Look {
    pub(super) ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Act for Look {
    type Item = ResourceName;
    type Verdict = Option<Holder>;
    type Lane = ();

    const NAME: &'static str = "look";

    fn lane(_: &ResourceName) {}

    async fn run(
        &self,
        items: Arc<[ResourceName]>,
        _: Patience,
    ) -> Result<Vec<Option<Holder>>, LedgerError> {
        self.ledger.holders(&items).await
    }
}

/// The queues that an acquisition goes through.
pub(super) struct Grants {
    pub(super) looks: Batcher<Look>,
    pub(super) reentries: Batcher<Granting>,
    pub(super) grants: Batcher<Granting>,
    pub(super) runtime: Runtime,
}

impl Grants {
    /// Acquires a lock, or says who holds it.
    pub(super) async fn acquire(&self, request: Acquire) -> Result<Acquired, EngineError> {
        let began = self.runtime.clock.elapsed();
        let outcome = self.look_and_seal(request).await;
        let word = match &outcome {
            Ok(acquired) if acquired.again => "again",
            Ok(_) => "granted",
            Err(EngineError::Held(_)) => "held",
            Err(error) => error.code().as_str(),
        };
        ::metrics::counter!(metrics::ACQUISITIONS, "outcome" => word).increment(1);
        let took = self.runtime.clock.elapsed().saturating_sub(began);
        ::metrics::histogram!(metrics::ACQUIRE_SECONDS).record(took);
        outcome
    }

    async fn look_and_seal(&self, request: Acquire) -> Result<Acquired, EngineError> {
        let holder = self.looks.submit(request.resource.clone()).await.map_err(unsent)?;
        let pending = Pending {
            proposed: request.id.is_some(),
            wanted: true,
            item: SealItem {
                lock: request.id.unwrap_or_else(|| self.runtime.ids.lock()),
                resources: vec![request.resource],
                owner: request.owner,
                ttl: request.ttl,
                number: None,
                attempt: Attempt::First,
            },
        };
        let verdict = match holder {
            Some(holder) if request.id.is_none() => return Err(EngineError::Held(holder)),
            // Held, but perhaps by this very id; or free by now, and then it needs a number.
            Some(_) => match self.reentries.submit(pending.clone()).await {
                Ok(GrantVerdict::Sealed(SealVerdict::NumberTooLow)) => {
                    self.grants.submit(pending).await
                }
                decided => decided,
            },
            None => self.grants.submit(pending).await,
        };
        match verdict {
            Ok(GrantVerdict::Sealed(verdict)) => acquired(verdict),
            Ok(GrantVerdict::NoNumber(error)) => Err(error),
            Err(failure) => Err(unsent(failure)),
        }
    }
}

/// Why a queue gave no verdict.
pub(super) fn unsent(failure: Failure) -> EngineError {
    match failure {
        Failure::Full => EngineError::Overloaded("locks"),
        Failure::Closed => EngineError::ShuttingDown,
        Failure::NotApplied(error) => error.into(),
        Failure::Busy => EngineError::LedgerUnavailable(
            "the resource is in use by another transaction on the ledger".into(),
        ),
        Failure::Unknown => EngineError::OutcomeUnknown { operation: None },
    }
}

fn acquired(verdict: SealVerdict) -> Result<Acquired, EngineError> {
    match verdict {
        SealVerdict::Sealed(grant, taken_over) => {
            for taken in taken_over {
                record_hold(taken.held_ms, LockEnd::Superseded);
            }
            Ok(Acquired { grant, again: false })
        }
        SealVerdict::Again(grant) => Ok(Acquired { grant, again: true }),
        SealVerdict::Held(holder) => Err(EngineError::Held(holder)),
        SealVerdict::Frozen(resource) => Err(EngineError::Frozen(resource)),
        SealVerdict::Ended(how) => Err(EngineError::LockEnded(how)),
        SealVerdict::Conflict => Err(EngineError::LockConflict),
        SealVerdict::Breaking => Err(EngineError::LockBreaking),
        SealVerdict::NumberTooLow => Err(EngineError::MintRegressed(REGRESSED.into())),
        SealVerdict::Busy => Err(unsent(Failure::Busy)),
    }
}

/// Records how long a lock was held.
pub(super) fn record_hold(held_ms: i64, how: LockEnd) {
    let seconds = held_ms.max(0) as f64 / 1000.0;
    ::metrics::histogram!(metrics::HOLD_SECONDS, "end" => how.as_str()).record(seconds);
}

/// The most resources that one mint numbers.
pub(super) const BATCH_MAX: usize = MINT_RESOURCES_MAX;
