//! The mutants that take more than a condition. Without the feature `mutants` there is nothing here.

#[cfg(feature = "mutants")]
pub(super) use on::*;

#[cfg(not(feature = "mutants"))]
pub(super) use off::*;

#[cfg(not(feature = "mutants"))]
mod off {
    use crate::acts::{Now, Rows};
    use crate::names::{ObjectKey, ResourceName};
    use crate::ports::{Object, SealItem, WriteItem, WriteVerdict};
    use crate::rule::Refusal;
    use crate::token::Token;

    pub fn stays_down(_: &mut Rows, _: &SealItem, _: &ResourceName, _: Token, _: Now) -> bool {
        false
    }

    pub fn instead_of_commit(_: &mut Rows, _: &WriteItem) -> Option<WriteVerdict> {
        None
    }

    pub fn refused(_: &WriteItem, _: &Refusal) {}

    pub fn put(_: &Rows, _: &(ResourceName, ObjectKey), object: Object) -> Object {
        object
    }
}

#[cfg(feature = "mutants")]
mod on {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use crate::acts::{GrantRow, Now, Rows};
    use crate::lock::Ttl;
    use crate::mutants::{self, Mutant};
    use crate::names::{ObjectKey, ResourceName};
    use crate::ports::{Attempt, Object, SealItem, WriteItem, WriteVerdict};
    use crate::rule::{Hold, Refusal};
    use crate::token::Token;

    thread_local! {
        static REFUSALS: RefCell<BTreeMap<(ResourceName, String), Refusal>> =
            const { RefCell::new(BTreeMap::new()) };
    }

    /// Whether a resource is not sealed, although its lock is given out.
    pub fn stays_down(
        rows: &mut Rows,
        item: &SealItem,
        resource: &ResourceName,
        token: Token,
        now: Now,
    ) -> bool {
        let Some(fence) = rows.fences.get(resource) else { return false };
        if mutants::is(Mutant::SealWhatIsFree) && item.resources.len() > 1 {
            return fence.is_held(now);
        }
        if !mutants::is(Mutant::SealAtFirstWrite) {
            return false;
        }
        let grant = GrantRow {
            lock: item.lock,
            owner: item.owner.clone(),
            principal: item.principal.clone(),
            writers: item.writers.clone(),
            ordinal: fence.grants + 1,
            by: None,
            at: None,
        };
        rows.grants.insert((resource.clone(), token), grant);
        // Held from now on, as everybody sees it, but its fence stands where it stood.
        if let Some(fence) = rows.fences.get_mut(resource) {
            fence.deadline_ms = now.elapsed_ms + item.ttl.unwrap_or(Ttl::DEFAULT).as_ms();
            fence.grants += 1;
        }
        true
    }

    /// What becomes of a write before it is judged.
    pub fn instead_of_commit(rows: &mut Rows, item: &WriteItem) -> Option<WriteVerdict> {
        if mutants::is(Mutant::SealAtFirstWrite) {
            let grant = rows.grants.get(&(item.resource.clone(), item.token)).cloned();
            if let (Some(grant), Some(fence)) = (grant, rows.fences.get_mut(&item.resource))
                && item.token > fence.token
            {
                fence.token = item.token;
                fence.lock = grant.lock;
                fence.hold = Hold::Held;
                fence.last_sequence = 0;
            }
        }
        if mutants::is(Mutant::AbsentIsNotApplied) && item.attempt == Attempt::Rerun {
            return Some(WriteVerdict::Buried);
        }
        if mutants::is(Mutant::KeepRefusals)
            && let Some(key) = &item.idempotency
        {
            let at = (item.resource.clone(), key.key.clone());
            return REFUSALS.with_borrow(|kept| kept.get(&at).cloned()).map(WriteVerdict::Refused);
        }
        None
    }

    /// What is stored of a put.
    pub fn put(rows: &Rows, at: &(ResourceName, ObjectKey), object: Object) -> Object {
        match rows.objects.get(at) {
            Some(before) if mutants::is(Mutant::AboutKept) && object.about.is_none() => {
                Object { about: before.object.about.clone(), ..object }
            }
            _ => object,
        }
    }

    /// A write was refused.
    pub fn refused(item: &WriteItem, refusal: &Refusal) {
        if mutants::is(Mutant::KeepRefusals)
            && let Some(key) = &item.idempotency
        {
            let at = (item.resource.clone(), key.key.clone());
            REFUSALS.with_borrow_mut(|kept| drop(kept.insert(at, refusal.clone())));
        }
    }
}
