//! A tree that is kept in tiles: the roots of the full ones, and the leaves of those that are looked into.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::tree::{Hash, root};

/// How many leaves there are in a tile. A power of two: so a full tile is a complete subtree.
pub const TILE_LEAVES: usize = 256;

/// What is known of the tiles of a tree.
#[derive(Debug, Default)]
pub struct Tiles {
    /// The roots of the full ones, from the first on.
    pub roots: Vec<Hash>,
    /// The leaves of some, by the number of the tile.
    pub open: BTreeMap<usize, Vec<Hash>>,
}

impl Tiles {
    /// The root of a subtree of the tree; none if what it takes is not known.
    pub fn root_of(&self, range: Range<usize>) -> Option<Hash> {
        let (first, last) = (range.start / TILE_LEAVES, range.end.checked_sub(1)? / TILE_LEAVES);
        if first == last {
            return self.part(first, range.start % TILE_LEAVES..(range.end - 1) % TILE_LEAVES + 1);
        }
        // A subtree of several tiles begins with a whole one; its last may be cut.
        if !range.start.is_multiple_of(TILE_LEAVES) {
            return None;
        }
        let mut roots = self.roots.get(first..last)?.to_vec();
        roots.push(self.part(last, 0..(range.end - 1) % TILE_LEAVES + 1)?);
        Some(root(&roots))
    }

    fn part(&self, tile: usize, part: Range<usize>) -> Option<Hash> {
        match self.roots.get(tile) {
            Some(root) if part == (0..TILE_LEAVES) => Some(*root),
            _ => self.open.get(&tile)?.get(part).map(root),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::{consistency_proof, inclusion_proof, leaf_hash, roots_of};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn proofs_are_those_of_the_leaves(count in 1_usize..1_500, at in 0_usize..1_500, former in 1_usize..1_500) {
            let (at, former) = (at % count, 1 + former % count);
            let leaves: Vec<_> = (0..count).map(|number| leaf_hash(&number.to_be_bytes())).collect();
            let tiles = |open: &[usize]| {
                let all = leaves.chunks(TILE_LEAVES);
                let roots = all.clone().filter(|tile| tile.len() == TILE_LEAVES).map(root).collect();
                let wanted = |(tile, _): &(usize, &[Hash])| open.contains(tile);
                let open = all.enumerate().filter(wanted).map(|(tile, leaves)| (tile, leaves.to_vec())).collect();
                Tiles { roots, open }
            };
            let known = tiles(&[at / TILE_LEAVES, count / TILE_LEAVES]);
            prop_assert_eq!(
                inclusion_proof(count, at, |range| known.root_of(range)),
                inclusion_proof(count, at, roots_of(&leaves))
            );
            let known = tiles(&[former / TILE_LEAVES, count / TILE_LEAVES]);
            prop_assert_eq!(
                consistency_proof(count, former, |range| known.root_of(range)),
                consistency_proof(count, former, roots_of(&leaves))
            );
            prop_assert_eq!(known.root_of(0..count), Some(root(&leaves)));
            prop_assert_eq!(tiles(&[]).root_of(0..count).is_some(), count % TILE_LEAVES == 0);
        }
    }
}
