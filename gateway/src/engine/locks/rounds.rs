//! Mint and seal: numbers all grants that are waiting in one call, and seals them in one act, in as many rounds as
//! it takes (I5).

use fence_core::ResourceName;
use fence_core::ports::{
    Attempt, Ended, Epoch, LedgerError, MintError, MintItem, Patience, SealItem, SealVerdict,
};

use super::seal::{Granting, Pending};
use crate::engine::EngineError;
use crate::spans;

/// How often a grant is numbered anew before its caller is told to try again.
const ROUNDS_MAX: u32 = 3;

/// What the mint gave to a batch.
struct Numbered {
    epoch: Epoch,
    /// A number per item; none for those that want none.
    numbers: Vec<Option<i64>>,
}

impl Numbered {
    /// Whether a number is worth no more than this token.
    fn falls_to(&self, token: i64) -> bool {
        self.numbers.iter().flatten().any(|number| self.epoch.base + number <= token)
    }
}

/// What one round of minting and sealing brought: the numbers, and a verdict per item.
type Round = (Option<Numbered>, Vec<Result<SealVerdict, EngineError>>);

impl Granting {
    /// A number for each grant that wants one, and the epoch they belong to.
    ///
    /// The epoch is read once more if the mint carries another nonce than expected: it may have
    /// moved on. If it has not, the mint has lost its place, and a new epoch begins, once.
    async fn number(&self, items: &[Pending]) -> Result<Numbered, EngineError> {
        let wanted: Vec<MintItem> = items
            .iter()
            .filter(|pending| pending.wants_number())
            .map(|pending| MintItem {
                resources: pending.item.resources.clone(),
                owner: pending.item.owner.clone(),
            })
            .collect();
        for attempt in 0..3 {
            let epoch = self.epochs.current().await?;
            let ended = self.traces.take();
            let numbers = self.mint.mint(epoch.nonce, &wanted, &ended);
            match self.can_grant.asked(spans::part("mint.number", numbers).await) {
                Ok(numbers) => {
                    let mut numbers = numbers.into_iter();
                    let number = |pending: &Pending| match pending.wants_number() {
                        true => numbers.next(),
                        false => None,
                    };
                    return Ok(Numbered { epoch, numbers: items.iter().map(number).collect() });
                }
                Err(error) => {
                    self.traces.add(ended);
                    match error {
                        MintError::OtherIncarnation { .. } if attempt == 0 => self.epochs.forget(),
                        MintError::OtherIncarnation { .. } if attempt == 1 => {
                            self.epochs.switch(epoch.number, &error.to_string()).await?;
                        }
                        error => return Err(error.into()),
                    }
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
    async fn round(&self, items: &[Pending], patience: Patience) -> Result<Round, LedgerError> {
        let mut moved = false;
        loop {
            let numbered = match items.iter().any(Pending::wants_number) {
                true => self.number(items).await.map(Some),
                false => Ok(None),
            };
            let sealed = match &numbered {
                Ok(numbered) => self.seal(items, numbered.as_ref(), patience).await,
                Err(why) => {
                    return Ok((None, self.without_number(items, why, patience).await?));
                }
            };
            match sealed {
                Err(LedgerError::EpochMoved) if !moved => {
                    self.epochs.forget();
                    moved = true;
                }
                sealed => {
                    let verdicts = sealed?.into_iter().map(Ok).collect();
                    return Ok((numbered.ok().flatten(), verdicts));
                }
            }
        }
    }

    /// No number to be had: what can be said of each item.
    async fn without_number(
        &self,
        items: &[Pending],
        why: &EngineError,
        patience: Patience,
    ) -> Result<Vec<Result<SealVerdict, EngineError>>, LedgerError> {
        let sent_before = |pending: &&Pending| pending.item.attempt != Attempt::First;
        let reruns: Vec<Pending> = items.iter().filter(sent_before).cloned().collect();
        let mut sealed = match reruns.is_empty() {
            true => Vec::new(),
            false => self.seal(&reruns, None, patience).await?,
        }
        .into_iter();
        let verdict = |pending: &Pending| {
            let found = if sent_before(&pending) { sealed.next() } else { None };
            match found {
                None | Some(SealVerdict::NumberTooLow) => Err(why.clone()),
                Some(verdict) => Ok(verdict),
            }
        };
        Ok(items.iter().map(verdict).collect())
    }

    /// Seals `items` under their numbers, or under none.
    async fn seal(
        &self,
        items: &[Pending],
        numbered: Option<&Numbered>,
        patience: Patience,
    ) -> Result<Vec<SealVerdict>, LedgerError> {
        let epoch = match numbered {
            Some(numbered) => numbered.epoch.number,
            None => self.ledger.epoch().await?.number,
        };
        let item = |(at, pending): (usize, &Pending)| SealItem {
            number: numbered.and_then(|numbered| numbered.numbers[at]),
            ..pending.item.clone()
        };
        let items = items.iter().enumerate().map(item).collect();
        let sealed = spans::part("ledger.commit", self.ledger.seal(epoch, items, patience)).await;
        self.can_write.asked(sealed)
    }

    /// Numbers and seals until each grant has a verdict.
    ///
    /// A number that does not rise above a fence: the fence was raised in between. Those grants are
    /// numbered again, and a number minted *after* the highest token was read which does not rise above
    /// that means that the mint has gone back: a new epoch begins, once, and they are numbered again.
    ///
    /// An error of the first round is the batch's: nothing was sealed. A later round has verdicts to
    /// keep, so its error goes to its own items; only an unknown outcome reruns them all, and finds
    /// those that were sealed by their ids.
    pub(super) async fn decide(
        &self,
        items: &[Pending],
        patience: Patience,
    ) -> Result<Vec<Result<SealVerdict, EngineError>>, LedgerError> {
        let mut verdicts: Vec<_> = items.iter().map(|_| Err(overtaken())).collect();
        let mut open: Vec<usize> = (0..items.len()).collect();
        let mut highest = None;
        let mut switched = false;
        for round in 1..=ROUNDS_MAX {
            let batch: Vec<Pending> = open.iter().map(|&i| items[i].clone()).collect();
            let (numbered, decided) = match self.round(&batch, patience).await {
                Ok(round) => round,
                Err(error) if round == 1 || matches!(error, LedgerError::Unknown(_)) => {
                    return Err(error);
                }
                Err(error) => {
                    let failed = batch.iter().map(|_| Err(error.clone().into()));
                    (None, failed.collect())
                }
            };
            if let Some(numbered) = &numbered {
                self.traces.add(in_vain(&batch, &decided, &numbered.numbers));
            }
            let too_low = |verdict: &Result<_, _>| matches!(verdict, Ok(SealVerdict::NumberTooLow));
            let lost_place = match (&numbered, highest) {
                (Some(numbered), Some(highest))
                    if numbered.falls_to(highest) && decided.iter().any(too_low) =>
                {
                    match std::mem::replace(&mut switched, true) {
                        false => self.epochs.switch(numbered.epoch.number, WENT_BACK).await.err(),
                        true => Some(EngineError::MintRegressed(WENT_BACK.into())),
                    }
                }
                _ => None,
            };
            let mut again = Vec::new();
            for (&i, verdict) in open.iter().zip(decided) {
                verdicts[i] = match verdict {
                    Ok(SealVerdict::NumberTooLow) if items[i].reentry => verdict,
                    Ok(SealVerdict::NumberTooLow) => {
                        // A rerun whose number did not rise is buried: it must not be sent again.
                        if items[i].item.attempt == Attempt::First && lost_place.is_none() {
                            again.push(i);
                        }
                        Err(lost_place.clone().unwrap_or_else(overtaken))
                    }
                    verdict => verdict,
                };
            }
            open = again;
            if open.is_empty() {
                break;
            }
            highest = self.ledger.place(None).await.ok().map(|place| place.highest);
        }
        Ok(verdicts)
    }
}

/// Traces in the mint of grants that came to nothing.
fn in_vain(
    items: &[Pending],
    decided: &[Result<SealVerdict, EngineError>],
    numbers: &[Option<i64>],
) -> Vec<Ended> {
    let is_traced = |verdict: &Result<SealVerdict, _>| {
        use SealVerdict::{Again, Drains, Sealed};
        matches!(verdict, Ok(Sealed(..) | Drains { .. } | Again(_)))
    };
    let mut ended = Vec::new();
    for ((pending, verdict), number) in items.iter().zip(decided).zip(numbers) {
        if let Some(number) = *number
            && !is_traced(verdict)
        {
            let trace = |resource: &ResourceName| Ended { resource: resource.clone(), number };
            ended.extend(pending.item.resources.iter().map(trace));
        }
    }
    ended
}

fn overtaken() -> EngineError {
    EngineError::MintUnavailable("other grants were faster; nothing was granted".into())
}

const WENT_BACK: &str =
    "the mint's numbers do not rise above the tokens that the ledger has sealed";

#[cfg(test)]
mod tests {
    use fence_core::ports::{By, Holder, SealKind};
    use fence_core::{LockId, LockState, Metadata};
    use uuid::Uuid;

    use super::*;
    use crate::engine::access::Permit;

    fn pending(names: &[&str], reentry: bool) -> Pending {
        let resources = names.iter().map(|name| ResourceName::new(*name).expect("a name"));
        Pending {
            item: SealItem {
                kind: SealKind::Lock,
                lock: LockId(Uuid::nil()),
                resources: resources.collect(),
                owner: "ann".into(),
                ttl: None,
                max_hold: None,
                metadata: Metadata::default(),
                number: None,
                attempt: Attempt::First,
                waits: None,
                by: By::default(),
                principal: None,
                writers: Vec::new(),
            },
            proposed: false,
            reentry,
            permit: Permit::default(),
        }
    }

    #[test]
    fn what_was_numbered_in_vain_leaves_no_trace() {
        let resource = |name| ResourceName::new(name).expect("a name");
        let held = Holder {
            resource: resource("b"),
            owner: "bob".into(),
            state: LockState::Leased,
            age_ms: 0,
            remaining_ms: 1,
        };
        let drains = SealVerdict::Drains { resource: resource("d"), taken_over: Vec::new() };
        let items = [
            pending(&["a", "b"], false),
            pending(&["c"], true),
            pending(&["d"], false),
            pending(&["e"], false),
        ];
        let decided =
            [Ok(SealVerdict::Held(held)), Ok(SealVerdict::Conflict), Ok(drains), Err(overtaken())];
        let ended = |(name, number)| Ended { resource: resource(name), number };
        assert_eq!(
            in_vain(&items, &decided, &[Some(7), None, Some(8), Some(9)]),
            [("a", 7), ("b", 7), ("e", 9)].map(ended)
        );
    }
}
