//! What a session asks to be granted: locks on one resource or some, in line or not, fences without a lock, transfers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fence_core::ports::{
    Attempt, By, Grant, JoinItem, JoinVerdict, Ledger as _, LedgerError, Patience, SealItem,
    SealKind, SealVerdict,
};
use fence_core::{LockId, MaxHold, Metadata, ResourceName, Ttl};
use fence_history::{Answer, Asked};
use fencegate::ledger::postgres::PgLedger;
use futures::FutureExt as _;

use super::session::{End, Sending, Session, failed, name, only, refused, word};
use super::stage::{Known, STRIDE, Stage};

/// How long a resource may take to be served once nothing is disturbed. A checker says it if that was not enough.
const SERVED_WITHIN: Duration = Duration::from_secs(35);

fn is_busy(verdict: &SealVerdict) -> bool {
    *verdict == SealVerdict::Busy
}

fn texts(resources: &[ResourceName]) -> Vec<String> {
    resources.iter().map(ToString::to_string).collect()
}

fn granted(grant: &Grant, again: bool) -> Answer {
    let versions = texts(&grant.resources).into_iter().zip(grant.versions.iter().copied());
    Answer::Granted {
        lock: grant.lock.0,
        token: grant.token.get(),
        versions: versions.collect(),
        again,
    }
}

/// What a caller is told.
fn told(end: &End<SealVerdict>) -> Answer {
    match end {
        End::Decided(SealVerdict::Sealed(grant, _)) => granted(grant, false),
        End::Decided(SealVerdict::Again(grant)) => granted(grant, true),
        End::Decided(other) => refused(word(other)),
        End::Undone => failed("undone"),
        End::Unknown => Answer::Unknown { operation: None },
    }
}

/// Numbers some locks with the mint, and seals them in the epoch that stands. By its id some lock is numbered and sealed
/// only once others with higher numbers were, or gets a number that somebody has had before.
async fn seal(
    stage: &Stage,
    ledger: &PgLedger,
    mut items: Vec<SealItem>,
    patience: Patience,
) -> Result<Vec<SealVerdict>, LedgerError> {
    let epoch = match stage.epoch() {
        Some(epoch) => epoch,
        None => {
            let epoch = ledger.epoch().await?;
            stage.set_epoch(Some(epoch.clone()));
            epoch
        }
    };
    let mut late_ms = 0;
    for item in &mut items {
        let number = stage.mint();
        let chance = u64::try_from(item.lock.0.as_u128() % 100).unwrap_or(0);
        let is_used = (90..94).contains(&chance) && number > STRIDE;
        item.number = Some(if is_used { number - STRIDE } else { number });
        late_ms = late_ms.max(if chance < 15 { chance + 1 } else { 0 });
    }
    tokio::time::sleep(Duration::from_millis(late_ms)).await;
    ledger.seal(epoch.number, items.into(), patience).await
}

impl Session {
    fn sealing(&mut self, kind: SealKind, resources: Vec<ResourceName>) -> SealItem {
        let is_calm = resources.iter().all(|resource| self.stage.is_calm(resource.as_str()));
        let ttl_ms = if is_calm { self.draw(500, 3000) } else { self.draw(20, 250) };
        let waits = self.chance(0.5).then(|| self.stage.gateways[0]);
        SealItem {
            kind,
            lock: LockId(self.id()),
            resources,
            owner: self.unique("owner"),
            ttl: Some(match self.chance(0.01) {
                true => Ttl::INFINITE,
                false => Ttl::from_ms(i64::try_from(ttl_ms).unwrap_or(100)),
            }),
            max_hold: self.chance(0.05).then(|| MaxHold::from_ms(300)),
            metadata: Metadata::default(),
            // The mint gives it one when it is sent.
            number: None,
            attempt: Attempt::First,
            waits,
            by: By::default(),
            principal: None,
            writers: Vec::new(),
        }
    }

    async fn settle_seal(&mut self, first: Attempt, item: &SealItem) -> End<SealVerdict> {
        let (stage, item) = (Arc::clone(&self.stage), item.clone());
        let send: Sending<SealVerdict> = Box::new(move |ledger, attempt, patience| {
            let (stage, item) = (Arc::clone(&stage), SealItem { attempt, ..item.clone() });
            async move { only(seal(&stage, &ledger, vec![item], patience).await) }.boxed()
        });
        self.settle(first, &send, is_busy).await
    }

    /// Writes down what came of a call, and returns the lock if it is one.
    fn close(&mut self, call: u64, answer: Answer) -> Option<Known> {
        let lock = match &answer {
            Answer::Granted { lock, .. } => Some(*lock),
            _ => None,
        };
        self.stage.answer(call, answer);
        self.stage.grants().into_iter().rfind(|known| Some(known.lock) == lock)
    }

    /// A lock on some resources; perhaps after a wait in line.
    pub async fn acquire(&mut self) -> Option<Known> {
        let resources = self.some_resources();
        let item = self.sealing(SealKind::Lock, resources);
        let asked = Asked::Acquire { lock: Some(item.lock.0), resources: texts(&item.resources) };
        let call = self.begin(0, asked);
        let until = Instant::now() + Duration::from_millis(self.draw(0, 500));
        let mut is_there = false;
        let answer = loop {
            let end = self.settle_seal(Attempt::First, &item).await;
            match &end {
                End::Decided(SealVerdict::Drains { .. }) => is_there = true,
                End::Decided(SealVerdict::NumberTooLow) => {}
                End::Decided(
                    SealVerdict::Held(_) | SealVerdict::Queued | SealVerdict::Draining(_),
                ) if item.waits.is_some() => is_there |= self.join(&item).await,
                _ => break told(&end),
            }
            if Instant::now() > until {
                break refused("gave-up");
            }
            self.pause(2, 30).await;
        };
        let gave_up = is_there && !matches!(answer, Answer::Granted { .. });
        let known = self.close(call, answer);
        if gave_up {
            self.release(item.lock.0).await;
        }
        known
    }

    /// Stands in line, if there is one. Whether it may be there afterwards.
    async fn join(&mut self, item: &SealItem) -> bool {
        let join = JoinItem {
            lock: item.lock,
            resources: item.resources.clone(),
            owner: item.owner.clone(),
            gateway: self.stage.gateways[0],
            waiters_max: 20,
            by: By::default(),
        };
        let send: Sending<JoinVerdict> = Box::new(move |ledger, _, patience| {
            let join = join.clone();
            async move { only(ledger.join([join].into(), patience).await) }.boxed()
        });
        let busy = |verdict: &JoinVerdict| *verdict == JoinVerdict::Busy;
        match self.settle(Attempt::First, &send, busy).await {
            End::Decided(verdict) => verdict == JoinVerdict::Waiting,
            End::Undone => false,
            End::Unknown => true,
        }
    }

    /// Locks on one resource each, in one act.
    pub async fn acquire_some(&mut self) {
        let mut items = Vec::new();
        for resource in self.some_resources() {
            items.push(self.sealing(SealKind::Lock, vec![resource]));
        }
        let asked = |item: &SealItem| Asked::Acquire {
            lock: Some(item.lock.0),
            resources: texts(&item.resources),
        };
        let calls: Vec<u64> =
            (0..).zip(&items).map(|(caller, item)| self.begin(caller, asked(item))).collect();
        let (_, ledger) = self.gateway();
        let verdicts = seal(&self.stage, &ledger, items.clone(), Patience::Skip).await;
        match verdicts {
            Ok(verdicts) => {
                for ((call, item), verdict) in calls.into_iter().zip(items).zip(verdicts) {
                    let end = match is_busy(&verdict) {
                        true => self.settle_seal(Attempt::First, &item).await,
                        false => End::Decided(verdict),
                    };
                    self.close(call, told(&end));
                }
            }
            Err(error) if self.stage.leaves_unknown(&error) => {
                for (call, item) in calls.into_iter().zip(items) {
                    let end = self.settle_seal(Attempt::Rerun, &item).await;
                    self.close(call, told(&end));
                }
            }
            Err(_) => calls.into_iter().for_each(|call| drop(self.close(call, failed("undone")))),
        }
    }

    /// A fence without a lock.
    pub async fn fence(&mut self) {
        let Some(resource) = self.some_resources().pop() else { return };
        if self.stage.is_calm(resource.as_str()) {
            return self.write_as_anybody().await;
        }
        let order = self.stage.mint() / STRIDE + i64::from(self.chance(0.3)) * -4;
        let order = self.chance(0.4).then_some(order.max(1));
        let force = self.chance(0.5);
        let item = self.sealing(SealKind::Fence { order, force }, vec![resource.clone()]);
        let asked = Asked::Fence { lock: item.lock.0, resource: resource.to_string() };
        let call = self.begin(0, asked);
        let end = self.settle_seal(Attempt::First, &item).await;
        let drains = matches!(end, End::Decided(SealVerdict::Drains { .. }));
        let known = self.close(call, told(&end));
        if drains {
            self.release(item.lock.0).await;
        }
        if let Some(known) = known {
            self.write_under(&known).await;
        }
    }

    /// Sets a fence on a resource, whoever holds it, and writes under it, until both are done.
    pub async fn serve(&mut self, resource: &ResourceName) {
        let until = Instant::now() + SERVED_WITHIN;
        while Instant::now() < until {
            let kind = SealKind::Fence { order: None, force: true };
            let item = self.sealing(kind, vec![resource.clone()]);
            let asked = Asked::Fence { lock: item.lock.0, resource: resource.to_string() };
            let call = self.begin(0, asked);
            let end = self.settle_seal(Attempt::First, &item).await;
            if let Some(known) = self.close(call, told(&end))
                && self.put_plainly(&known).await
            {
                return;
            }
            self.pause(10, 50).await;
        }
    }

    /// Hands a lock over.
    pub async fn transfer(&mut self, known: &Known) -> Option<Known> {
        let resources: Vec<_> = known.versions.iter().map(|(resource, _)| name(resource)).collect();
        let kind = SealKind::Transfer { from: LockId(known.lock) };
        let item = SealItem { max_hold: None, ..self.sealing(kind, resources) };
        let asked = Asked::Transfer {
            from: known.lock,
            to: Some(item.lock.0),
            resources: texts(&item.resources),
        };
        let call = self.begin(0, asked);
        let end = self.settle_seal(Attempt::First, &item).await;
        let drains = matches!(end, End::Decided(SealVerdict::Drains { .. }));
        let next = self.close(call, told(&end));
        if drains {
            self.release(item.lock.0).await;
        }
        next
    }
}
