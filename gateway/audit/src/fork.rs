//! What the audit says of a re-fence: the tree goes on from where the ledger has gone back to, and what came after that is
//! lost. So the loss is seen, and nothing is silently overwritten.

use std::fmt;
use std::str::FromStr;

use crate::checkpoint::Checkpoint;
use crate::tree::Hash;

/// The first step of the tree in a generation of the ledger, as the audit says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// The new generation.
    pub generation: i64,
    /// How many leaves the tree had then.
    pub size: u64,
    /// The newest checkpoint of an earlier generation that was kept somewhere, if one was found.
    pub former: Option<Former>,
}

/// A checkpoint of an earlier generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Former {
    /// Its generation.
    pub generation: i64,
    /// How many leaves it has.
    pub size: u64,
    /// Their root.
    pub root: Hash,
}

impl From<&Checkpoint> for Former {
    fn from(checkpoint: &Checkpoint) -> Self {
        let Checkpoint { generation, size, root, .. } = *checkpoint;
        Self { generation, size, root }
    }
}

impl Fork {
    /// How many leaves were lost, as far as that is known.
    pub fn lost(&self) -> Option<u64> {
        self.former.map(|former| former.size.saturating_sub(self.size))
    }

    /// Whether a checkpoint is of what was lost by this.
    pub fn explains(&self, checkpoint: &Checkpoint) -> bool {
        self.former.is_some_and(|former| {
            let is_that = (checkpoint.size, checkpoint.root) == (former.size, former.root);
            let is_before = checkpoint.size > self.size && checkpoint.size < former.size;
            checkpoint.generation <= former.generation && (is_that || is_before)
        })
    }
}

impl fmt::Display for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generation, size, former } = self;
        write!(f, "generation {generation} goes on from {size} leaves; ")?;
        match former {
            Some(Former { generation, size, root }) => {
                write!(f, "generation {generation} had {size}, root {}", hex::encode(root))
            }
            None => f.write_str("what came after them, if anything, is not known"),
        }
    }
}

/// Why a text says of no fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it does not say where the tree goes on")]
pub struct NoFork;

impl FromStr for Fork {
    type Err = NoFork;

    fn from_str(text: &str) -> Result<Self, NoFork> {
        let parse = || {
            let rest = text.strip_prefix("generation ")?;
            let (generation, rest) = rest.split_once(" goes on from ")?;
            let (size, rest) = rest.split_once(" leaves; ")?;
            let former = rest.strip_prefix("generation ").and_then(|rest| {
                let (generation, rest) = rest.split_once(" had ")?;
                let (size, root) = rest.split_once(", root ")?;
                let root = hex::decode(root).ok()?.try_into().ok()?;
                Some(Former {
                    generation: generation.parse().ok()?,
                    size: size.parse().ok()?,
                    root,
                })
            });
            Some(Self { generation: generation.parse().ok()?, size: size.parse().ok()?, former })
        };
        parse().filter(|fork| fork.to_string() == text).ok_or(NoFork)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_written() {
        let former = Some(Former { generation: 1, size: 1260, root: [7; 32] });
        for fork in [
            Fork { generation: 2, size: 1204, former },
            Fork { generation: 9, size: 0, former: None },
        ] {
            assert_eq!(fork.to_string().parse(), Ok(fork));
        }
        assert_eq!(Fork { generation: 2, size: 1204, former }.lost(), Some(56));
        for bad in [
            "",
            "generation 2 goes on from +4 leaves; what came after them, if anything, is not known",
        ] {
            assert_eq!(bad.parse::<Fork>(), Err(NoFork));
        }
    }
}
