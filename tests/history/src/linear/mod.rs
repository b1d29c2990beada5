//! Linearizability, as a second opinion that looks at no version: is there an order of the calls, in
//! which each takes effect at some moment between its begin and its answer, that explains all answers?
//!
//! The model of a resource is its fence, and a register for each object. A grant raises the fence, a
//! write needs its token to be the one of the fence, a write refused as stale needs it to be below, a
//! read tells what the register holds, a replay needs its key to have taken effect. What was never
//! answered, or answered as unknown, takes effect at any moment after its begin or never. That a lock is
//! broken, or given back without an answer, is left out: it only makes the fence admit less. A history is
//! linearizable if it is so on each resource by itself, so each is searched alone; that a commit of many
//! is all or nothing across resources is left to [`check`](crate::check).
//!
//! The search is that of Wing and Gong, with Lowe's cache of what was tried: calls that took effect so
//! far, and the state that they led to. It can take exponential time, so it works on a window of calls
//! and within a budget. A window starts with the history; where it ends, [`until`] cuts. A ledger that
//! goes back is not in the model: cut before it.

mod model;
mod search;
mod steps;

use std::collections::BTreeMap;

use crate::record::Call;

/// What the search found for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// An order explains all answers.
    Linearizable,
    /// None does.
    NotLinearizable {
        /// The number of the call whose answer the longest order that was tried could not explain.
        stuck_at: u64,
    },
    /// The budget was used up before either was found.
    GaveUp,
}

/// Judges the calls of each resource. `budget` is how many effects the search may try on each.
///
/// The calls are all of a history that began before some moment, in the order in which they began, as
/// [`until`] gives them.
pub fn judge(calls: &[Call], budget: usize) -> BTreeMap<String, Verdict> {
    let steps = steps::by_resource(calls);
    steps.into_iter().map(|(name, steps)| (name, search::search(&steps, budget))).collect()
}

/// The window of calls that ends at a moment: what began before it, with the answers before it.
pub fn until<'a>(calls: impl IntoIterator<Item = &'a Call>, moment: u64) -> Vec<Call> {
    let begun = calls.into_iter().filter(|call| call.begun_at < moment);
    let cut = |call: &Call| {
        let answered = call.answered.clone().filter(|answered| answered.at < moment);
        Call { answered, ..call.clone() }
    };
    begun.map(cut).collect()
}
