//! What a ledger and a mint remember of each other, so that either notices what the other lost.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::mutants::{self, Mutant};

/// How the ledger and the mint belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Rises with each new incarnation of the mint.
    pub number: i64,
    /// What the mint must carry.
    pub nonce: Uuid,
    /// Added to each number of the mint.
    pub base: i64,
    /// Whether the mint has been seen to carry the nonce.
    pub open: bool,
    /// Which ledger this is: the mint serves no other one.
    pub ledger: Uuid,
}

/// By how much a re-fence goes beyond the highest token that anybody remembers: when both stores
/// went back, nobody remembers the highest. Six days of 1,000 transactions on etcd a second, each of which uses
/// up 128 numbers.
pub const REFENCE_JUMP: i64 = 1 << 36;

/// What a re-fence goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refence {
    /// What the mint is to carry in the new epoch.
    pub nonce: Uuid,
    /// How far the mint's numbers are.
    pub number: i64,
    /// The highest base that the mint remembers; 0 if none.
    pub known_base: i64,
    /// The highest generation that the mint remembers; 0 if none.
    pub known_generation: i64,
    /// Why, for people.
    pub why: String,
    /// Re-fence even if nothing calls for it.
    pub forced: bool,
    /// Where the ledger stood before the mint was asked: if it stands elsewhere by now, what the mint
    /// said may be older than a re-fence, and nothing changes.
    pub seen: Option<Stand>,
}

/// How often the ledger passed to a server that was taken as it is. A later one is greater: what stands on an earlier
/// line is not the ledger any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// Rises with each re-fence, which voids all tokens.
    pub generation: i64,
    /// Rises with each adoption, which voids none.
    pub adoptions: i64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.adoptions {
            0 => write!(f, "generation {}", self.generation),
            adoptions => write!(f, "generation {}, adoption {adoptions}", self.generation),
        }
    }
}

/// What an adoption goes by: a new timeline that has lost nothing of the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// The line before, as the ledger and the mint know it.
    pub line: Line,
    /// The database system.
    pub system_id: i64,
    /// The timeline that the ledger was on.
    pub former: String,
    /// The one that it is on now.
    pub timeline: String,
    /// How far the mint has seen the ledger on the former one.
    pub witnessed: i64,
    /// The newest milestone that the mint knows of it.
    pub milestone: Milestone,
}

/// A row that a gateway left in the ledger, and then made known to the mint: a ledger without it has lost commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestone {
    /// Rises with each milestone of a line.
    pub number: i64,
    /// Tells milestones of one number apart, in copies of a ledger that went on each for itself.
    pub id: Uuid,
}

/// The start of a server that a gateway has looked at, and the milestone that it was found to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The line of the ledger on it.
    pub line: Line,
    /// The database system.
    pub system_id: i64,
    /// Its timeline.
    pub timeline: String,
    /// When it was started, in microseconds of Unix time.
    pub started_us: i64,
    /// The newest milestone that the mint knows; none before anything was granted.
    pub milestone: Option<Milestone>,
}

/// What an adoption came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// The ledger goes on, on its new timeline; no token is void.
    Done,
    /// Nothing calls for it any more, or the server is not where it was seen: look again.
    Moved,
    /// It is not proven that nothing was lost; why.
    Unproven(String),
}

/// On which line of history a ledger is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stand {
    /// Rises with each re-fence.
    pub generation: i64,
    /// The database system.
    pub system_id: i64,
    /// Its timeline.
    pub timeline: String,
}

impl Place {
    /// How often it passed to a server that was taken as it is.
    pub fn line(&self) -> Line {
        Line { generation: self.generation, adoptions: self.adoptions }
    }

    /// On which line of history it is.
    pub fn stand(&self) -> Stand {
        Stand {
            generation: self.generation,
            system_id: self.system_id,
            timeline: self.timeline.clone(),
        }
    }
}

/// Where a ledger stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The current epoch.
    pub epoch: Epoch,
    /// Rises with each re-fence.
    pub generation: i64,
    /// Rises with each adoption.
    pub adoptions: i64,
    /// Where the timeline before the last adoption ended; 0 if there was none in this generation.
    pub adopted_at: i64,
    /// Tokens up to this one are void.
    pub floor: i64,
    /// The highest token that was ever sealed; 0 for none.
    pub highest: i64,
    /// The database system; 0 for a ledger that is none.
    pub system_id: i64,
    /// Its timeline; empty for a ledger that has none.
    pub timeline: String,
    /// The timeline that its guards know: another one after a promotion.
    pub known_timeline: String,
    /// The position up to which it has written its log; 0 for a ledger that has none.
    pub inserted: i64,
    /// The position up to which the disk has it.
    pub flushed: i64,
    /// When its server was started, in microseconds of Unix time; 0 for a ledger that is none.
    pub started_us: i64,
    /// Set while no gateway has looked yet whether that server lost anything.
    pub restarted: bool,
    /// The answer to whether the ledger has the milestone that was asked for; `None` if none was, or one that was let go.
    pub has_milestone: Option<bool>,
    /// Why it must be re-fenced, if it must.
    pub called_for: Option<String>,
    /// What all its gateways have agreed on, by the names of the settings; empty where there is but one gateway.
    pub agreed: BTreeMap<String, String>,
}

/// How far a ledger has been, kept in the mint: a ledger that is behind it has lost commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// The generation of the ledger.
    pub generation: i64,
    /// How often it was adopted.
    #[serde(default)]
    pub adoptions: i64,
    /// The base of its epoch.
    pub base: i64,
    /// Its database system.
    pub system_id: i64,
    /// Its timeline.
    pub timeline: String,
    /// A position that no crash takes back.
    pub flushed: i64,
    /// The form of this record; see [`Witness::FORMAT`].
    #[serde(default)]
    pub format: u32,
    /// The ledger.
    #[serde(default)]
    pub ledger: Uuid,
    /// The newest milestone of the ledger that no crash takes back.
    #[serde(default)]
    pub milestone: Option<Milestone>,
}

impl Witness {
    /// The form that this binary writes, and the newest that it reads.
    pub const FORMAT: u32 = 2;

    /// The witness after `old` for a ledger that stands here, without a new position. `milestone` was left there since.
    pub fn following(old: Option<&Self>, place: &Place, milestone: Option<Milestone>) -> Self {
        let same = old.filter(|old| old.is_of(place));
        Self {
            format: Self::FORMAT,
            ledger: place.epoch.ledger,
            milestone: milestone.or_else(|| same.and_then(|old| old.milestone)),
            generation: place.generation,
            adoptions: place.adoptions,
            base: old.map_or(0, |old| old.base).max(place.epoch.base),
            system_id: place.system_id,
            timeline: place.timeline.clone(),
            flushed: same.map_or(0, |old| old.flushed),
        }
    }

    /// Why a ledger that stood here *after* this witness was read has lost commits, if it has.
    pub fn lost(&self, place: &Place) -> Option<String> {
        if self.generation > place.generation {
            return Some(format!(
                "the ledger is of generation {}, but {} was seen: it was restored from an older copy",
                place.generation, self.generation
            ));
        }
        if self.line() > place.line() {
            return Some(format!(
                "the ledger is of {}, but {} was seen: another server was adopted in its place",
                place.line(),
                self.line()
            ));
        }
        if self.generation < place.generation {
            return None;
        }
        if self.adoptions < place.adoptions {
            // Raised for the server before, and perhaps after the adoption had looked.
            return (self.flushed > place.adopted_at).then(|| {
                format!(
                    "the ledger was adopted at position {}, but {} was seen flushed before: it has lost commits",
                    place.adopted_at, self.flushed
                )
            });
        }
        if !self.is_of(place) {
            return Some(format!(
                "the ledger is on system {} and timeline {}, not on system {} and timeline {}",
                place.system_id, place.timeline, self.system_id, self.timeline
            ));
        }
        if self.flushed > place.inserted {
            return Some(format!(
                "the ledger is at position {}, but {} was seen flushed: it has lost commits",
                place.inserted, self.flushed
            ));
        }
        let lacks = place.has_milestone == Some(false) && !mutants::is(Mutant::MilestoneUnasked);
        let milestone = self.milestone.filter(|_| lacks)?;
        Some(format!("the ledger lacks milestone {}: it has lost commits", milestone.number))
    }

    /// Why a ledger that stood here *after* this was read must be re-fenced, if it must. `None` stands for a mint that
    /// knows nothing of the ledger.
    ///
    /// 1. It lacks what was seen of it.
    /// 2. Its server was started anew, and nothing says that it is no copy: one that has caught up looks as the ledger
    ///    did. Only the milestone tells. Where nothing was ever granted, nothing can be lost.
    pub fn against(witness: Option<&Self>, place: &Place) -> Option<String> {
        // Step 1.
        if let Some(why) = witness.and_then(|witness| witness.lost(place)) {
            return Some(why);
        }
        // Step 2.
        let is_sure = match Self::milestone_of(witness, place) {
            Some(_) => place.has_milestone == Some(true) || mutants::is(Mutant::MilestoneUnasked),
            None => place.highest == 0,
        };
        (place.restarted && !is_sure).then(|| {
            "the server of the ledger was started anew, and no milestone in the mint tells that it lost nothing".to_owned()
        })
    }

    /// The newest milestone that is known of a ledger that stands here.
    pub fn milestone_of(witness: Option<&Self>, place: &Place) -> Option<Milestone> {
        witness.filter(|witness| witness.is_of(place)).and_then(|witness| witness.milestone)
    }

    /// Of which line of the ledger it is.
    pub fn line(&self) -> Line {
        Line { generation: self.generation, adoptions: self.adoptions }
    }

    fn is_of(&self, place: &Place) -> bool {
        self.line() == place.line()
            && self.system_id == place.system_id
            && self.timeline == place.timeline
    }
}

/// Tokens and generations that no ledger has reached by some time: one re-fence a millisecond since 2020 would
/// have. There is room for that until 2159.
///
/// When ledger and mint have both been restored to before an earlier re-fence, nobody remembers how far
/// that one went. This does: it only ever adds to what they remember, so a clock that is wrong does no
/// harm that they would not have done alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// No token is higher.
    pub token: i64,
    /// No generation is higher.
    pub generation: i64,
}

impl Reached {
    /// 2020-01-01T00:00:00Z, in milliseconds of Unix time.
    const SINCE_MS: i64 = 1_577_836_800_000;
    /// By how much a token rises in a millisecond: a little more than [`REFENCE_JUMP`] in a minute.
    const A_MS: i64 = 1 << 21;

    /// By this time.
    pub fn by(now: Timestamp) -> Self {
        let ms = (now.as_millisecond() - Self::SINCE_MS).max(0);
        Self { token: ms.saturating_mul(Self::A_MS), generation: ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_re_fence_that_nobody_remembers_is_outdone() {
        let at = |ms| Reached::by(Timestamp::from_millisecond(ms).unwrap());
        let floor = |ms| at(ms).token + REFENCE_JUMP;
        let first = 1_800_000_000_000;
        // The first went this far, and a ledger and a mint from before it know nothing of that.
        assert!(
            at(first + 60_000).token >= floor(first),
            "and all that was granted in that minute"
        );
        assert!(floor(first + 1) > floor(first), "two of one backup do not meet");
        assert!(at(first + 1).generation > at(first).generation);
        assert_eq!(at(0), Reached { token: 0, generation: 0 }, "a clock before 2020 adds nothing");
        let late = at(4_300_000_000_000 + Reached::SINCE_MS);
        assert!(late.token.checked_add(REFENCE_JUMP).is_some(), "there is room for 136 years");
        assert!(late.generation.checked_mul(1 << 20).is_some(), "for the rules of each, too");
    }

    fn place() -> Place {
        Place {
            epoch: Epoch {
                number: 1,
                nonce: Uuid::from_u128(1),
                base: 0,
                open: true,
                ledger: Uuid::from_u128(2),
            },
            generation: 3,
            adoptions: 1,
            adopted_at: 50,
            floor: 0,
            highest: 900,
            system_id: 7,
            timeline: "00000003".into(),
            known_timeline: "00000003".into(),
            inserted: 5000,
            flushed: 5000,
            started_us: 1,
            restarted: true,
            has_milestone: Some(true),
            called_for: None,
            agreed: BTreeMap::new(),
        }
    }

    #[test]
    fn a_start_is_sure_by_the_milestone_alone() {
        let milestone = Milestone { number: 9, id: Uuid::from_u128(3) };
        let witness = Witness::following(None, &place(), Some(milestone));
        let against = |witness: &Witness, change: fn(&mut Place)| {
            let mut place = place();
            change(&mut place);
            Witness::against(Some(witness), &place)
        };
        assert_eq!(against(&witness, |_| ()), None);
        let lacks = against(&witness, |place| place.has_milestone = Some(false));
        assert!(lacks.is_some_and(|why| why.contains("lacks milestone 9")));
        // The position speaks for nothing: a log goes on.
        type Change = fn(&mut Place);
        let changes: [Change; 4] = [
            |place| place.has_milestone = None,
            |place| place.generation = 4,
            |place| place.adoptions = 2,
            |place| place.timeline = "00000004".into(),
        ];
        for change in changes {
            assert!(against(&witness, change).is_some());
        }
        let unmarked = Witness { milestone: None, ..witness };
        assert!(against(&unmarked, |place| place.has_milestone = None).is_some());
        assert_eq!(
            against(&unmarked, |place| (place.highest, place.has_milestone) = (0, None)),
            None
        );
        assert_eq!(against(&unmarked, |place| place.restarted = false), None);
        assert!(Witness::against(None, &place()).is_some());
    }
}
