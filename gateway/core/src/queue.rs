//! The queue: who waits for which resources, in which order, and whose turn it is.
//!
//! One ticket per waiter over all its resources is one total order, so waiters cannot deadlock. All of
//! this is about liveness: whatever the queue says, only a seal grants, on the locked fence.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use uuid::Uuid;

use crate::lock::LockId;
use crate::names::ResourceName;
use crate::ports::{InLine, LinePage};
use crate::principal::PrincipalName;

/// A gateway without heartbeat for this long is taken for dead, and its waiters are passed over.
pub const HEARTBEAT_MS_MAX: i64 = 5_000;
/// A waiter that does not take its turn for this long is passed over. It keeps its ticket.
pub const TURN_MS: i64 = 1_000;
/// How long the place of a waiter is kept whose caller is gone but can come back under its id.
pub const PLACE_KEPT_MS: i64 = 10_000;
/// Waiters of a gateway that has been silent for this long are removed.
pub const ABANDONED_MS: i64 = 10_000;

/// One caller in the queue. Times are on the clock of [`crate::acts::Now::elapsed_ms`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// The id that its lock will have.
    pub lock: LockId,
    /// Its place in the one order of all waiters.
    pub ticket: i64,
    /// What it waits for, sorted: all or none.
    pub resources: Vec<ResourceName>,
    /// Who waits.
    pub owner: String,
    /// The principal that waits.
    pub principal: Option<PrincipalName>,
    /// Since when.
    pub since: Timestamp,
    /// The gateway that serves its caller.
    pub gateway: Uuid,
    /// Until when the place is kept, if the caller is gone.
    pub kept_until_ms: Option<i64>,
    /// When it was told that it is its turn, if nothing of what it waits for was granted or renewed
    /// since.
    pub called_at_ms: Option<i64>,
}

impl Waiter {
    /// It was called and has not come.
    fn is_passed_over(&self, now_ms: i64) -> bool {
        self.called_at_ms.is_some_and(|called| called + TURN_MS <= now_ms)
    }

    /// Its caller is gone, and it could not have its turn now.
    fn waits_in_vain(&self, is_free: impl Fn(&ResourceName) -> bool) -> bool {
        self.kept_until_ms.is_some() && !self.resources.iter().all(is_free)
    }
}

/// What is known of a gateway.
#[derive(Debug, Clone, Copy)]
struct Heartbeat {
    at_ms: i64,
    /// Whether it can have numbers minted.
    able: bool,
}

/// All waiters, in memory.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    waiters: BTreeMap<i64, Waiter>,
    tickets: HashMap<LockId, i64>,
    lines: BTreeMap<ResourceName, BTreeSet<i64>>,
    gateways: HashMap<Uuid, Heartbeat>,
    last_ticket: i64,
    /// What changed since [`Queue::settle`], so that an act that was not committed can be undone.
    changes: Vec<Undo>,
}

#[derive(Debug, Clone)]
enum Undo {
    Joined(i64),
    Left(Waiter),
}

impl Queue {
    /// A gateway is alive, and can have numbers minted or not.
    pub fn beat(&mut self, gateway: Uuid, able: bool, now_ms: i64) {
        self.gateways.insert(gateway, Heartbeat { at_ms: now_ms, able });
    }

    /// The waiter with this id.
    pub fn get(&self, lock: LockId) -> Option<&Waiter> {
        self.waiters.get(self.tickets.get(&lock)?)
    }

    /// How many wait for a resource.
    pub fn length(&self, resource: &ResourceName) -> usize {
        self.lines.get(resource).map_or(0, BTreeSet::len)
    }

    /// How many waiters with an earlier ticket wait for one of the same resources, and itself; nothing of a waiter of
    /// another principal.
    pub fn position(&self, lock: LockId, principal: Option<&PrincipalName>) -> Option<usize> {
        let waiter = self.get(lock).filter(|waiter| waiter.principal.as_ref() == principal)?;
        let lines = waiter.resources.iter().filter_map(|name| self.lines.get(name));
        let before: BTreeSet<i64> =
            lines.flat_map(|line| line.range(..waiter.ticket)).copied().collect();
        Some(before.len() + 1)
    }

    /// Who is in line for a resource, present or not, in order.
    pub fn in_line(&self, resource: &ResourceName, page: LinePage, now_ms: i64) -> Vec<InLine> {
        let tickets = self.lines.get(resource).into_iter().flatten();
        let numbered = (1..).zip(tickets.filter_map(|ticket| self.waiters.get(ticket)));
        let behind = numbered.filter(|(_, waiter)| page.after.is_none_or(|at| waiter.ticket > at));
        let seen = behind.map(|(position, waiter)| InLine {
            ticket: waiter.ticket,
            owner: waiter.owner.clone(),
            since: waiter.since,
            position,
            present: waiter.kept_until_ms.is_none() && self.is_alive(waiter.gateway, now_ms),
        });
        seen.take(usize::try_from(page.limit).unwrap_or(0)).collect()
    }

    /// The first waiter in line for a resource, before this ticket if one is given, that is present,
    /// has not been passed over, and does not wait in vain: nobody behind it may have the resource.
    ///
    /// In vain waits whose caller is gone while something else that it waits for is not free: else
    /// callers that never come back would keep from all others, for a while each, what is free.
    pub fn first(
        &self,
        resource: &ResourceName,
        before: Option<i64>,
        now_ms: i64,
        is_free: impl Fn(&ResourceName) -> bool,
    ) -> Option<&Waiter> {
        let before = before.unwrap_or(i64::MAX);
        self.line(resource, now_ms)
            .take_while(|waiter| waiter.ticket < before)
            .find(|waiter| !waiter.is_passed_over(now_ms) && !waiter.waits_in_vain(&is_free))
    }

    /// Those in line for a resource who are present, in order.
    fn line(&self, resource: &ResourceName, now_ms: i64) -> impl Iterator<Item = &Waiter> {
        let tickets = self.lines.get(resource).into_iter().flatten();
        tickets
            .filter_map(|ticket| self.waiters.get(ticket))
            .filter(move |waiter| self.is_present(waiter, now_ms))
    }

    /// Who is to be called for a resource: the first waiter whose caller is there. Waiters before it whose
    /// callers are gone have their turns at the same time.
    ///
    /// When all who are there have been passed over, it begins again with the first.
    pub fn next(
        &self,
        resource: &ResourceName,
        now_ms: i64,
        is_free: impl Fn(&ResourceName) -> bool,
    ) -> (Vec<&Waiter>, Option<&Waiter>) {
        let mut gone = Vec::new();
        for waiter in self.line(resource, now_ms).filter(|one| !one.is_passed_over(now_ms)) {
            if waiter.kept_until_ms.is_none() {
                return (gone, Some(waiter));
            }
            if !waiter.waits_in_vain(&is_free) {
                gone.push(waiter);
            }
        }
        let again = self.line(resource, now_ms).find(|waiter| waiter.kept_until_ms.is_none());
        (gone, again)
    }

    /// Whose callers wait at this gateway, as far as the queue knows.
    pub fn of_gateway(&self, gateway: Uuid) -> Vec<LockId> {
        let here = |waiter: &&Waiter| waiter.gateway == gateway && waiter.kept_until_ms.is_none();
        self.waiters.values().filter(here).map(|waiter| waiter.lock).collect()
    }

    /// What else those wait for who are in line for these resources and whose callers are gone: whether
    /// they wait in vain depends on it.
    pub fn wanted_by_absent<'a>(
        &self,
        resources: impl Iterator<Item = &'a ResourceName>,
    ) -> BTreeSet<ResourceName> {
        resources
            .filter_map(|name| self.lines.get(name))
            .flatten()
            .filter_map(|ticket| self.waiters.get(ticket))
            .filter(|waiter| waiter.kept_until_ms.is_some())
            .flat_map(|waiter| waiter.resources.iter().cloned())
            .collect()
    }

    /// Whether somebody in line before this ticket keeps one of these resources from those behind.
    pub fn is_ahead(
        &self,
        resources: &[ResourceName],
        before: Option<i64>,
        now_ms: i64,
        is_free: impl Fn(&ResourceName) -> bool,
    ) -> bool {
        resources.iter().any(|name| self.first(name, before, now_ms, &is_free).is_some())
    }

    /// The gateway is alive and able, and the caller is there or may still come back.
    fn is_present(&self, waiter: &Waiter, now_ms: i64) -> bool {
        self.gateways
            .get(&waiter.gateway)
            .is_some_and(|beat| beat.able && beat.at_ms + HEARTBEAT_MS_MAX > now_ms)
            && waiter.kept_until_ms.is_none_or(|until| until > now_ms)
    }

    fn is_alive(&self, gateway: Uuid, now_ms: i64) -> bool {
        let beat = self.gateways.get(&gateway);
        beat.is_some_and(|beat| beat.at_ms + HEARTBEAT_MS_MAX > now_ms)
    }

    /// Adds a waiter at the end. Its ticket is given here.
    pub fn join(&mut self, mut waiter: Waiter) {
        self.last_ticket += 1;
        waiter.ticket = self.last_ticket;
        self.changes.push(Undo::Joined(waiter.ticket));
        self.put(waiter);
    }

    /// The caller of a waiter is back, perhaps at another gateway: it is as if it had never gone.
    pub fn rejoin(&mut self, lock: LockId, gateway: Uuid) {
        if let Some(waiter) = self.get_mut(lock) {
            waiter.gateway = gateway;
            waiter.kept_until_ms = None;
            waiter.called_at_ms = None;
        }
    }

    /// Removes a waiter.
    pub fn leave(&mut self, lock: LockId) -> Option<Waiter> {
        let ticket = self.tickets.get(&lock).copied()?;
        let waiter = self.remove(ticket)?;
        self.changes.push(Undo::Left(waiter.clone()));
        Some(waiter)
    }

    /// The caller of a waiter is gone; its place is kept for a while. Only by the gateway that serves
    /// it: the caller may be back at another one.
    pub fn keep(&mut self, lock: LockId, gateway: Uuid, now_ms: i64) {
        if let Some(waiter) = self.get_mut(lock)
            && waiter.gateway == gateway
        {
            waiter.kept_until_ms = Some(now_ms + PLACE_KEPT_MS);
        }
    }

    /// It is this waiter's turn, from now on unless it is already.
    pub fn call(&mut self, ticket: i64, now_ms: i64) {
        if let Some(waiter) = self.waiters.get_mut(&ticket)
            && (waiter.called_at_ms.is_none() || waiter.is_passed_over(now_ms))
        {
            waiter.called_at_ms = Some(now_ms);
        }
    }

    /// This waiter came, and could not be granted: its turn is not over.
    pub fn came(&mut self, lock: LockId) {
        if let Some(waiter) = self.get_mut(lock) {
            waiter.called_at_ms = None;
        }
    }

    /// A resource was granted or renewed: whoever was called and did not come is called again when
    /// the resource is free again.
    pub fn taken(&mut self, resource: &ResourceName) {
        for ticket in self.lines.get(resource).into_iter().flatten() {
            if let Some(waiter) = self.waiters.get_mut(ticket) {
                waiter.called_at_ms = None;
            }
        }
    }

    /// Removes waiters whose place was kept long enough, or whose gateway is gone. Says how many.
    pub fn sweep(&mut self, now_ms: i64) -> usize {
        self.gateways.retain(|_, beat| beat.at_ms + ABANDONED_MS > now_ms);
        let gone = |waiter: &&Waiter| {
            waiter.kept_until_ms.is_some_and(|until| until <= now_ms)
                || !self.gateways.contains_key(&waiter.gateway)
        };
        let gone: Vec<i64> = self.waiters.values().filter(gone).map(|w| w.ticket).collect();
        gone.iter().filter_map(|ticket| self.remove(*ticket)).count()
    }

    /// What has changed stays.
    pub fn settle(&mut self) {
        self.changes.clear();
    }

    /// Takes back what has changed since the last [`Queue::settle`]: its act was not committed.
    pub fn undo(&mut self) {
        while let Some(change) = self.changes.pop() {
            match change {
                Undo::Joined(ticket) => drop(self.remove(ticket)),
                Undo::Left(waiter) => self.put(waiter),
            }
        }
    }

    fn get_mut(&mut self, lock: LockId) -> Option<&mut Waiter> {
        self.waiters.get_mut(self.tickets.get(&lock)?)
    }

    fn put(&mut self, waiter: Waiter) {
        for name in &waiter.resources {
            self.lines.entry(name.clone()).or_default().insert(waiter.ticket);
        }
        self.tickets.insert(waiter.lock, waiter.ticket);
        self.waiters.insert(waiter.ticket, waiter);
    }

    fn remove(&mut self, ticket: i64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&ticket)?;
        self.tickets.remove(&waiter.lock);
        for name in &waiter.resources {
            if let Some(line) = self.lines.get_mut(name) {
                line.remove(&ticket);
                if line.is_empty() {
                    self.lines.remove(name);
                }
            }
        }
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn waiter(number: u128, names: &[&str], gateway: Uuid) -> Waiter {
        Waiter {
            lock: LockId(id(number)),
            ticket: 0,
            resources: names.iter().map(|name| ResourceName::new(*name).unwrap()).collect(),
            owner: "w".into(),
            principal: None,
            since: Timestamp::UNIX_EPOCH,
            gateway,
            kept_until_ms: None,
            called_at_ms: None,
        }
    }

    #[test]
    fn the_first_is_whoever_is_present_and_was_not_passed_over() {
        let (alive, dead, name) = (id(1), id(2), ResourceName::new("r").unwrap());
        let mut queue = Queue::default();
        queue.beat(alive, true, 0);
        queue.beat(dead, true, -HEARTBEAT_MS_MAX);
        let a = waiter(10, &["r"], dead);
        let (b, c) = (waiter(11, &["r"], alive), waiter(12, &["q", "r"], alive));
        let (b_id, c_id) = (b.lock, c.lock);
        for waiter in [a, b, c] {
            queue.join(waiter);
        }
        let first =
            |queue: &Queue, now_ms| queue.first(&name, None, now_ms, |_| true).map(|w| w.lock);
        assert_eq!(first(&queue, 0), Some(b_id));
        assert_eq!((queue.length(&name), queue.position(c_id, None)), (3, Some(3)));
        queue.call(2, 10);
        assert_eq!(first(&queue, 9 + TURN_MS), Some(b_id));
        assert_eq!(first(&queue, 10 + TURN_MS), Some(c_id));
        queue.taken(&name);
        assert_eq!(first(&queue, 10 + TURN_MS), Some(b_id));
        queue.beat(alive, false, 20);
        assert_eq!(first(&queue, 20), None);
    }

    #[test]
    fn a_place_is_kept_for_a_while_and_what_was_not_committed_is_undone() {
        let (one, two, name) = (id(1), id(2), ResourceName::new("r").unwrap());
        let mut queue = Queue::default();
        queue.beat(one, true, 0);
        queue.join(waiter(10, &["r"], one));
        let lock = queue.waiters[&1].lock;
        queue.settle();
        queue.keep(lock, two, 0);
        assert_eq!(queue.get(lock).unwrap().kept_until_ms, None, "not its gateway");
        queue.keep(lock, one, 0);
        queue.beat(one, true, PLACE_KEPT_MS);
        assert_eq!(
            queue.first(&name, None, PLACE_KEPT_MS - 1, |_| true).map(|w| w.lock),
            Some(lock)
        );
        assert!(queue.first(&name, None, PLACE_KEPT_MS, |_| true).is_none());
        assert!(queue.leave(lock).is_some() && queue.get(lock).is_none());
        queue.join(waiter(11, &["r"], one));
        queue.undo();
        assert_eq!((queue.length(&name), queue.get(lock).unwrap().ticket), (1, 1));
        assert_eq!(queue.sweep(PLACE_KEPT_MS), 1);
        assert_eq!(queue.length(&name), 0);
    }
}
