//! What a session asks about locks that are there: to renew them, give them back, break them; and marks of operators.

use std::time::Duration;

use fence_core::ports::{
    Attempt, BreakItem, BreakVerdict, By, Ledger as _, Mark, MarkItem, MarkVerdict, ReleaseItem,
    ReleaseVerdict, RenewItem, RenewVerdict,
};
use fence_core::{LockId, ResourceName, Ttl};
use fence_history::{Answer, Asked};
use futures::FutureExt as _;
use uuid::Uuid;

use super::session::{End, Sending, Session, failed, name, only, refused, token, word};
use super::stage::Known;

fn said<V: std::fmt::Debug>(end: &End<V>, done: impl Fn(&V) -> bool) -> Answer {
    match end {
        End::Decided(verdict) if done(verdict) => Answer::Done,
        End::Decided(verdict) => refused(word(verdict)),
        End::Undone => failed("undone"),
        End::Unknown => Answer::Unknown { operation: None },
    }
}

impl Session {
    /// Starts the ttl of a lock again.
    pub async fn renew(&mut self, lock: Uuid) {
        let call = self.begin(0, Asked::Renew { lock });
        let ttl = self.chance(0.3).then(|| Ttl::from_ms(120));
        let send: Sending<RenewVerdict> = Box::new(move |ledger, _, patience| {
            let item = RenewItem { lock: LockId(lock), ttl, by: By::default() };
            async move { only(ledger.renew([item].into(), patience).await) }.boxed()
        });
        let busy = |verdict: &RenewVerdict| *verdict == RenewVerdict::Busy;
        let end = self.settle(Attempt::First, &send, busy).await;
        let done = |verdict: &RenewVerdict| matches!(verdict, RenewVerdict::Renewed { .. });
        self.stage.answer(call, said(&end, done));
    }

    /// Gives a lock back.
    pub async fn release(&mut self, lock: Uuid) {
        let call = self.begin(0, Asked::Release { lock });
        let send: Sending<ReleaseVerdict> = Box::new(move |ledger, _, patience| {
            let item = ReleaseItem::from(LockId(lock));
            async move { only(ledger.release([item].into(), patience).await) }.boxed()
        });
        let busy = |verdict: &ReleaseVerdict| *verdict == ReleaseVerdict::Busy;
        let end = self.settle(Attempt::First, &send, busy).await;
        let done = |verdict: &ReleaseVerdict| {
            !matches!(verdict, ReleaseVerdict::Kept | ReleaseVerdict::Unknown)
        };
        self.stage.answer(call, said(&end, done));
    }

    /// Fences somebody off.
    pub async fn break_lock(&mut self, known: &Known) {
        let Some((resource, _)) = self.one_of(&known.versions) else { return };
        let call = self.begin(0, Asked::Break { resource: resource.clone() });
        let item = BreakItem {
            resource: name(&resource),
            token: token(known.token),
            after: Duration::from_millis(if self.chance(0.5) { 0 } else { self.draw(1, 60) }),
            reason: "a schedule".into(),
            request_id: "schedule".into(),
            by: By::default(),
        };
        let send: Sending<BreakVerdict> = Box::new(move |ledger, _, patience| {
            let item = item.clone();
            async move { only(ledger.break_locks([item].into(), patience).await) }.boxed()
        });
        let busy = |verdict: &BreakVerdict| *verdict == BreakVerdict::Busy;
        let end = self.settle(Attempt::First, &send, busy).await;
        let done = |verdict: &BreakVerdict| {
            matches!(verdict, BreakVerdict::Broken { .. } | BreakVerdict::Breaking { .. })
        };
        self.stage.answer(call, said(&end, done));
    }

    /// Freezes or protects a resource for a moment.
    pub async fn mark(&mut self) {
        let Some(resource) = self.some_resources().pop() else { return };
        let [begin, end] = match self.chance(0.7) {
            true => [Mark::Freeze, Mark::Unfreeze],
            false => [Mark::Protect, Mark::Unprotect],
        };
        self.mark_with(begin, &resource).await;
        match self.chance(0.3) {
            true => self.pause(100, 600).await,
            false => self.pause(2, 40).await,
        }
        self.mark_with(end, &resource).await;
    }

    /// Lifts all marks: one that was given up may have been set since its resource was freed.
    pub async fn lift(&mut self) {
        for resource in self.stage.resources.clone() {
            self.mark_with(Mark::Unfreeze, &resource).await;
            self.mark_with(Mark::Unprotect, &resource).await;
        }
    }

    async fn mark_with(&mut self, mark: Mark, resource: &ResourceName) {
        let item = MarkItem {
            resource: resource.clone(),
            mark,
            reason: "a schedule".into(),
            request_id: "schedule".into(),
            by: By::default(),
        };
        let send: Sending<MarkVerdict> = Box::new(move |ledger, _, patience| {
            let item = item.clone();
            async move { only(ledger.mark([item].into(), patience).await) }.boxed()
        });
        let busy = |verdict: &MarkVerdict| *verdict == MarkVerdict::Busy;
        while self.settle_surely(Attempt::First, &send, busy).await.is_none() {}
    }
}
