//! The sequential model of one resource: what a step needs, and what it does.

use std::collections::BTreeSet;

/// What a call does to a resource at one moment. Objects, values and keys are numbered; 0 is the value
/// of an object that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Seals a token above the fence; of a transfer, while `from` holds it.
    Raise { token: i64, from: Option<i64> },
    /// Seals a token that nobody was told.
    RaiseHidden,
    /// Finds its token in force.
    Holds { token: i64 },
    /// Ends the lock of a token, if it is still the one of the fence.
    End { token: i64 },
    /// Changes registers (no object: all of them) under a token, once under its key.
    Write { token: i64, key: Option<u32>, deeds: Vec<(Option<u32>, u32)> },
    /// Finds that its key took effect.
    Replay { key: u32 },
    /// Finds its token superseded.
    Stale { token: i64 },
    /// Finds a value.
    Read { object: u32, value: u32 },
}

impl Step {
    /// Whether it only looks: it may then take its place as soon as what it looks for is there.
    pub(super) fn only_looks(&self) -> bool {
        match self {
            Self::Holds { .. } | Self::Replay { .. } | Self::Stale { .. } | Self::Read { .. } => {
                true
            }
            Self::Raise { .. } | Self::RaiseHidden | Self::End { .. } | Self::Write { .. } => false,
        }
    }
}

/// The state of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The highest token sealed that somebody was told.
    highest: i64,
    /// Whether a token above it was sealed that nobody was told.
    hidden: bool,
    /// Whether the lock of the highest has ended.
    ended: bool,
    /// The value of each object that was ever there.
    registers: Vec<u32>,
    /// The keys that took effect.
    keys: BTreeSet<u32>,
}

impl State {
    fn is_at(&self, token: i64) -> bool {
        token == self.highest && !self.hidden
    }

    fn admits(&self, token: i64) -> bool {
        self.is_at(token) && !self.ended
    }

    /// Whether a step finds its token superseded as soon as a hidden one is sealed, and no earlier.
    pub(super) fn waits_for_hidden(&self, step: &Step) -> bool {
        matches!(step, Step::Stale { token } if self.is_at(*token))
    }

    /// Whether a step can never again take effect.
    pub(super) fn is_past(&self, step: &Step) -> bool {
        match step {
            Step::Write { token, key, .. } => {
                *token < self.highest
                    || (*token == self.highest && !self.admits(*token))
                    || key.is_some_and(|key| self.keys.contains(&key))
            }
            _ => false,
        }
    }

    /// The state after a step; `None` if it cannot be taken here.
    pub(super) fn after(&self, step: &Step) -> Option<Self> {
        let mut next = self.clone();
        let can = match step {
            Step::Raise { token, from } => {
                (next.highest, next.hidden, next.ended) = (*token, false, false);
                *token > self.highest && from.is_none_or(|from| self.admits(from))
            }
            Step::RaiseHidden => {
                (next.hidden, next.ended) = (true, false);
                true
            }
            Step::Holds { token } => self.admits(*token),
            Step::End { token } => {
                next.ended |= self.is_at(*token);
                true
            }
            Step::Write { token, key, deeds } => {
                deeds.iter().for_each(|(object, value)| next.set(*object, *value));
                self.admits(*token) && key.is_none_or(|key| next.keys.insert(key))
            }
            Step::Replay { key } => self.keys.contains(key),
            Step::Stale { token } => {
                *token < self.highest || (*token == self.highest && self.hidden)
            }
            Step::Read { object, value } => {
                self.registers.get(*object as usize).copied().unwrap_or(0) == *value
            }
        };
        can.then_some(next)
    }

    fn set(&mut self, object: Option<u32>, value: u32) {
        let Some(object) = object else { return self.registers.fill(0) };
        let object = object as usize;
        if self.registers.len() <= object {
            self.registers.resize(object + 1, 0);
        }
        if let Some(register) = self.registers.get_mut(object) {
            *register = value;
        }
    }
}
