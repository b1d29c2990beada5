//! A new epoch of the mint, and a re-fence. Both raise the base above every token ever sealed.

use uuid::Uuid;

use super::rows::Guard;
use crate::mutants::{self, Mutant};
use crate::ports::{REFENCE_JUMP, Refence, Stand};

/// Begins a new epoch, not open yet, unless the epoch is another one than `expected` already.
/// `highest` is the highest token that was ever sealed.
pub fn switch_epoch(guard: &mut Guard, highest: i64, expected: i64, nonce: Uuid) {
    if guard.epoch != expected {
        return;
    }
    guard.epoch += 1;
    guard.nonce = nonce;
    guard.open = false;
    if !mutants::is(Mutant::EpochKeepsBase) {
        guard.base = guard.base.max(guard.floor).max(highest);
    }
}

/// Voids every token that may ever have been sealed: those that are known here, those that the mint
/// counted, and, should it have forgotten them too, as many more as the jump covers.
///
/// Nothing calls for it from inside a ledger of one process, so nothing changes unless it is forced.
pub fn refence(guard: &mut Guard, highest: i64, refence: &Refence) {
    let elsewhere = |seen: &Stand| seen.generation != guard.generation;
    if !refence.forced || refence.seen.as_ref().is_some_and(elsewhere) {
        return;
    }
    let counted = refence.number.saturating_add(guard.base.max(refence.known_base));
    let floor = guard.floor.max(counted).max(highest).saturating_add(REFENCE_JUMP);
    guard.epoch += 1;
    guard.nonce = refence.nonce;
    guard.open = false;
    guard.base = floor;
    guard.floor = floor;
    guard.generation = guard.generation.max(refence.known_generation) + 1;
}
