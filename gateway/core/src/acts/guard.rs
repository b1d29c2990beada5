//! What guards the acts: where ledger and mint stand, and which rules are in force.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::fences::FenceRow;
use super::now::Now;
use super::own_time::OwnTime;
use crate::lock::LockState;
use crate::mutants::{self, Mutant};
use crate::names::ResourceName;
use crate::ports::{By, Epoch, Place, ResourceView};

/// Rules may be put in force 2^20 times between two re-fences; then their generations only count on.
const RULES_PER_REFENCE_BITS: u32 = 20;

/// What guards the acts against a ledger or a mint that lost its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Rises with each new incarnation of the mint.
    pub epoch: i64,
    /// What the mint must carry.
    pub nonce: Uuid,
    /// Whether the mint has been seen to carry it.
    pub open: bool,
    /// Added to each number of the mint.
    pub base: i64,
    /// Tokens up to this one are void.
    pub floor: i64,
    /// Rises with each re-fence.
    pub generation: i64,
    /// Which ledger this is.
    pub ledger: Uuid,
    /// The generation of the rules of access: 0 while there are none.
    pub rules: i64,
    /// The ledger's own time.
    pub time: OwnTime,
}

impl Guard {
    /// Whether the rules are others than those under which this was allowed: then nothing is decided (I17).
    pub fn rules_moved(&self, by: &By) -> bool {
        let moved = by.rules.is_some_and(|allowed| allowed != self.rules);
        moved && !mutants::is(Mutant::StaleRulesAdmitted)
    }

    /// How the ledger and the mint belong together.
    pub fn as_epoch(&self) -> Epoch {
        Epoch {
            number: self.epoch,
            nonce: self.nonce,
            base: self.base,
            open: self.open,
            ledger: self.ledger,
        }
    }

    /// The generation of rules that are put in force now. After a re-fence it is higher than any that the ledger had
    /// before it went back, so that no two rules share one.
    pub fn next_rules(&self) -> i64 {
        (self.rules + 1).max(self.generation << RULES_PER_REFENCE_BITS)
    }

    /// A resource as everybody may see it: a lock that a re-fence voided keeps nobody out.
    pub fn view(
        &self,
        resource: &ResourceName,
        fence: &FenceRow,
        waiting: usize,
        now: Now,
    ) -> ResourceView {
        let view = fence.view(resource, waiting, now);
        match view.state.is_held() && fence.token.get() <= self.floor {
            true => ResourceView { state: LockState::Expired, breaks_in_ms: None, ..view },
            false => view,
        }
    }

    /// Whether the lock of a fence keeps others out: one that a re-fence voided does not.
    pub fn keeps_out(&self, fence: &FenceRow, now: Now) -> bool {
        fence.is_held(now) && fence.token.get() > self.floor
    }

    /// Where a ledger of one process stands.
    pub fn place(&self, highest: i64) -> Place {
        Place {
            epoch: self.as_epoch(),
            generation: self.generation,
            adoptions: 0,
            adopted_at: 0,
            floor: self.floor,
            highest,
            system_id: 0,
            timeline: String::new(),
            known_timeline: String::new(),
            inserted: 0,
            flushed: 0,
            started_us: 0,
            restarted: false,
            has_milestone: None,
            called_for: None,
            agreed: BTreeMap::new(),
        }
    }
}
