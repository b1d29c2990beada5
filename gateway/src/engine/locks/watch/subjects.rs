//! What can be watched: a lock by its id, and a resource by its name.

use fence_core::ports::{Grant, Ledger, LedgerError, LockRecord, ResourceView};
use fence_core::{LockId, LockState, ResourceName};

/// What a hub watches.
pub trait Subject: Send + Sync + 'static {
    /// What it is called by.
    type Key: Ord + Clone + Send + Sync + 'static;
    /// What the ledger says of it.
    type Record: Send + Sync + 'static;

    /// The name of the task.
    const TASK: &'static str;

    /// Reads these, in their order; `None` for what is unknown.
    fn read(
        ledger: &dyn Ledger,
        keys: &[Self::Key],
    ) -> impl Future<Output = Result<Vec<Option<Self::Record>>, LedgerError>> + Send;

    /// The resources that it is about.
    fn resources(record: &Self::Record) -> &[ResourceName];

    /// Whether watchers are told of this after that.
    fn is_news(before: &Self::Record, now: &Self::Record) -> bool;

    /// Whether a break has come due that only has to be stored.
    fn is_due_to_break(record: &Self::Record) -> bool;

    /// In how long from this sight it changes by itself, if it does.
    fn next_change_ms(record: &Self::Record) -> Option<i64>;
}

/// A lock, whose holder watches it: its state, its break, its end, a renewal, that two thirds of its ttl have gone,
/// or that one of its resources is frozen or not any more.
pub struct OneLock;

impl Subject for OneLock {
    type Key = LockId;
    type Record = LockRecord;

    const TASK: &'static str = "watch";

    async fn read(
        ledger: &dyn Ledger,
        ids: &[LockId],
    ) -> Result<Vec<Option<LockRecord>>, LedgerError> {
        ledger.locks(ids).await
    }

    fn resources(record: &LockRecord) -> &[ResourceName] {
        &record.grant.resources
    }

    fn is_news(before: &LockRecord, now: &LockRecord) -> bool {
        fn face(record: &LockRecord) -> impl PartialEq + '_ {
            let ended = record.ended.map(|(how, _)| how);
            let due = record.break_due.map(|due| due.at);
            let Grant { state, ttl, .. } = &record.grant;
            (ended, *state, *ttl, record.renewed_at, due, record.is_late(), &record.frozen)
        }
        face(before) != face(now)
    }

    fn is_due_to_break(record: &LockRecord) -> bool {
        record.ended.is_none() && record.break_due.is_some_and(|due| due.in_ms <= 0)
    }

    fn next_change_ms(record: &LockRecord) -> Option<i64> {
        if record.ended.is_some() {
            return None;
        }
        let grant = &record.grant;
        let late = (!record.is_late()).then(|| grant.remaining_ms - record.last_third_ms());
        let expired = (grant.state != LockState::Expired).then_some(grant.remaining_ms);
        let broken = record.break_due.map(|due| due.in_ms);
        [late, expired, broken].into_iter().flatten().min()
    }
}

/// A resource, which anybody may watch: all that [`ResourceView::face`] is made of.
pub struct OneResource;

impl Subject for OneResource {
    type Key = ResourceName;
    type Record = ResourceView;

    const TASK: &'static str = "watch_resources";

    async fn read(
        ledger: &dyn Ledger,
        names: &[ResourceName],
    ) -> Result<Vec<Option<ResourceView>>, LedgerError> {
        ledger.views(names).await
    }

    fn resources(view: &ResourceView) -> &[ResourceName] {
        std::slice::from_ref(&view.resource)
    }

    fn is_news(before: &ResourceView, now: &ResourceView) -> bool {
        before.face() != now.face()
    }

    fn is_due_to_break(view: &ResourceView) -> bool {
        view.breaks_in_ms.is_some_and(|left_ms| left_ms <= 0)
    }

    fn next_change_ms(view: &ResourceView) -> Option<i64> {
        let live = [LockState::Leased, LockState::Breaking, LockState::Draining];
        live.contains(&view.state).then_some(view.remaining_ms)
    }
}
