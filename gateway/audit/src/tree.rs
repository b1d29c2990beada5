//! The Merkle tree of RFC 6962 over the leaves of a log: its root, and proofs that a leaf is in it and that a shorter log is
//! the beginning of a longer one.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

/// A hash of the tree.
pub type Hash = [u8; 32];

/// The hash of a leaf (RFC 6962, 2.1).
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(leaf).finalize().into()
}

/// The hash of two subtrees beside each other.
fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// The root of the tree over these leaves; of none it is the hash of nothing.
pub fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest([]).into(),
        [leaf] => *leaf,
        leaves => {
            let (left, right) = leaves.split_at(split(leaves.len()));
            node_hash(&root(left), &root(right))
        }
    }
}

/// How many leaves are left of the middle: the largest power of two below their number.
fn split(len: usize) -> usize {
    1 << (usize::BITS - 1 - (len - 1).leading_zeros())
}

/// What a log needs to grow: the roots of its complete subtrees, the largest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    roots: Vec<Hash>,
}

impl Frontier {
    /// As it was stored; none unless there are as many roots as a tree of that size has complete subtrees.
    pub fn stored(size: u64, roots: Vec<Hash>) -> Option<Self> {
        (roots.len() == size.count_ones() as usize).then_some(Self { size, roots })
    }

    /// How many leaves there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots of its complete subtrees.
    pub fn roots(&self) -> &[Hash] {
        &self.roots
    }

    /// Takes one leaf more.
    pub fn push(&mut self, leaf: Hash) {
        let mut node = leaf;
        // Each one at the end of the size is a subtree that is complete now together with this one.
        for _ in 0..self.size.trailing_ones() {
            let left = self.roots.pop().unwrap_or(node);
            node = node_hash(&left, &node);
        }
        self.roots.push(node);
        self.size += 1;
    }

    /// The root of the whole.
    pub fn root(&self) -> Hash {
        let mut roots = self.roots.iter().rev();
        let Some(last) = roots.next() else { return root(&[]) };
        roots.fold(*last, |right, left| node_hash(left, &right))
    }
}

/// The roots of subtrees: of these leaves. None if one of them is not there.
pub fn roots_of(leaves: &[Hash]) -> impl Fn(Range<usize>) -> Option<Hash> {
    |range| leaves.get(range).map(root)
}

/// The proof that the leaf at this place is in the tree of so many; none if it is not, or if a root is missing.
pub fn inclusion_proof(
    size: usize,
    index: usize,
    root_of: impl Fn(Range<usize>) -> Option<Hash>,
) -> Option<Vec<Hash>> {
    if index >= size {
        return None;
    }
    let (mut within, mut proof) = (0..size, Vec::new());
    while within.len() > 1 {
        let middle = within.start + split(within.len());
        if index < middle {
            proof.push(root_of(middle..within.end)?);
            within.end = middle;
        } else {
            proof.push(root_of(within.start..middle)?);
            within.start = middle;
        }
    }
    proof.reverse();
    Some(proof)
}

/// The proof that a log of so many leaves, one at least, is the beginning of the log of `size`.
pub fn consistency_proof(
    size: usize,
    former: usize,
    root_of: impl Fn(Range<usize>) -> Option<Hash>,
) -> Option<Vec<Hash>> {
    if former == 0 || former > size {
        return None;
    }
    let (mut within, mut is_whole, mut proof) = (0..size, true, Vec::new());
    while former < within.end {
        let middle = within.start + split(within.len());
        if former <= middle {
            proof.push(root_of(middle..within.end)?);
            within.end = middle;
        } else {
            proof.push(root_of(within.start..middle)?);
            within.start = middle;
            is_whole = false;
        }
    }
    if !is_whole {
        proof.push(root_of(within)?);
    }
    proof.reverse();
    Some(proof)
}

/// Whether a leaf with this hash is at this place of a log of that size, which has this root (RFC 9162, 2.1.3.2).
pub fn is_included(leaf: &Hash, index: u64, size: u64, proof: &[Hash], expected: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last, mut node) = (index, size - 1, *leaf);
    for beside in proof {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            node = node_hash(beside, &node);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            node = node_hash(&node, beside);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && node == *expected
}

/// Whether the log with the first size and root is the beginning of that with the second (RFC 9162, 2.1.4.2).
pub fn is_beginning(former: (u64, &Hash), latter: (u64, &Hash), proof: &[Hash]) -> bool {
    let ((former, former_root), (latter, latter_root)) = (former, latter);
    if former == 0 || former > latter {
        return false;
    }
    if former == latter {
        return proof.is_empty() && former_root == latter_root;
    }
    let (mut at, mut last) = (former - 1, latter - 1);
    let skipped = at.trailing_ones();
    at >>= skipped;
    last >>= skipped;
    // A complete tree is its own first node, and is not repeated.
    let (first, rest) = match (former.is_power_of_two(), proof.split_first()) {
        (true, _) => (*former_root, proof),
        (false, Some((first, rest))) => (*first, rest),
        (false, None) => return false,
    };
    let (mut of_former, mut of_latter) = (first, first);
    for beside in rest {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            of_former = node_hash(beside, &of_former);
            of_latter = node_hash(beside, &of_latter);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            of_latter = node_hash(&of_latter, beside);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && of_former == *former_root && of_latter == *latter_root
}

#[cfg(test)]
mod tests {
    use ct_merkle::mem_backed_tree::MemoryBackedTree;
    use proptest::prelude::*;

    use super::*;

    /// The leaves of the vectors of RFC 6962's own implementation.
    const LEAVES: [&str; 8] = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ];
    const ROOTS: [&str; 8] = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];

    fn leaves(count: usize) -> Vec<Hash> {
        (0..count).map(|number| leaf_hash(&number.to_be_bytes())).collect()
    }

    #[test]
    fn the_vectors_of_certificate_transparency_come_out() {
        let leaves = LEAVES.map(|leaf| leaf_hash(&hex::decode(leaf).expect("hex")));
        let mut frontier = Frontier::default();
        assert_eq!(
            hex::encode(frontier.root()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        for (at, expected) in ROOTS.iter().enumerate() {
            frontier.push(leaves[at]);
            assert_eq!(hex::encode(frontier.root()), *expected, "of {}", at + 1);
            assert_eq!(root(&leaves[..=at]), frontier.root());
        }
        let path = |proof: Option<Vec<Hash>>| {
            proof.expect("a proof").iter().map(hex::encode).collect::<Vec<_>>()
        };
        assert_eq!(path(inclusion_proof(5, 1, roots_of(&leaves))).len(), 3);
        assert_eq!(
            path(inclusion_proof(3, 2, roots_of(&leaves))),
            ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]
        );
        assert_eq!(
            path(consistency_proof(5, 2, roots_of(&leaves))),
            [
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
            ]
        );
    }

    proptest! {
        #[test]
        fn another_implementation_agrees(count in 1_usize..140, at in 0_usize..140, former in 1_usize..140) {
            let (at, former) = (at % count, 1 + former % count);
            let mut other = MemoryBackedTree::<Sha256, Vec<u8>>::new();
            (0..count).for_each(|number| other.push(number.to_be_bytes().to_vec()));
            let leaves = leaves(count);
            let all = root(&leaves);
            prop_assert_eq!(other.root().as_bytes().to_vec(), all.to_vec());
            let proof = inclusion_proof(count, at, roots_of(&leaves)).unwrap();
            prop_assert_eq!(other.prove_inclusion(at).as_bytes().to_vec(), proof.concat());
            let proof = consistency_proof(count, former, roots_of(&leaves)).unwrap();
            prop_assert_eq!(other.prove_consistency(count - former).as_bytes().to_vec(), proof.concat());
        }

        #[test]
        fn proofs_hold_for_what_they_prove_and_for_nothing_else(
            count in 1_usize..80, at in 0_usize..80, former in 1_usize..80, bit in 0_usize..256, of in 0_usize..9,
        ) {
            let (at, former) = (at % count, 1 + former % count);
            let (leaves, size) = (leaves(count), count as u64);
            let (all, then) = (root(&leaves), root(&leaves[..former]));
            let flipped = |hash: &Hash| { let mut hash = *hash; hash[bit / 8] ^= 1 << (bit % 8); hash };

            let proof = inclusion_proof(count, at, roots_of(&leaves)).unwrap();
            prop_assert!(is_included(&leaves[at], at as u64, size, &proof, &all));
            prop_assert!(!is_included(&flipped(&leaves[at]), at as u64, size, &proof, &all));
            prop_assert!(!is_included(&leaves[at], at as u64, size, &proof, &flipped(&all)));
            prop_assert!(!is_included(&leaves[at], size, size, &proof, &all));
            let mut longer = proof.clone();
            longer.push(all);
            prop_assert!(!is_included(&leaves[at], at as u64, size, &longer, &all));

            let proof = consistency_proof(count, former, roots_of(&leaves)).unwrap();
            let (old, new) = ((former as u64, &then), (size, &all));
            prop_assert!(is_beginning(old, new, &proof));
            prop_assert!(!is_beginning((former as u64, &flipped(&then)), new, &proof));
            prop_assert!(!is_beginning(old, (size, &flipped(&all)), &proof));
            prop_assert!(!is_beginning((0, &then), new, &proof));
            if let Some(at) = of.checked_rem(proof.len()) {
                let mut other = proof.clone();
                other[at] = flipped(&other[at]);
                prop_assert!(!is_beginning(old, new, &other));
                other.remove(at);
                prop_assert!(!is_beginning(old, new, &other));
            }
        }

        #[test]
        fn a_frontier_goes_on_from_where_it_was_stored(count in 0_usize..200, more in 0_usize..50) {
            let leaves = leaves(count + more);
            let mut frontier = Frontier::default();
            leaves[..count].iter().for_each(|leaf| frontier.push(*leaf));
            let mut again = Frontier::stored(count as u64, frontier.roots().to_vec()).unwrap();
            prop_assert!(Frontier::stored(count as u64 + 1, [frontier.roots(), &[[0; 32], [0; 32]]].concat()).is_none());
            leaves[count..].iter().for_each(|leaf| again.push(*leaf));
            prop_assert_eq!(again.root(), root(&leaves));
        }
    }
}
