//! Correct random histories: a tiny sequential ledger, and clients who use it at random while answers
//! are lost, writes come late, and the ledger goes back.

mod choices;
mod ledger;
mod world;

use fence_history::History;

/// What a random history is like.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub clients: u32,
    pub calls: u64,
    pub resources: u32,
    /// Of a hundred calls, how many meet with an accident.
    pub accidents: u64,
    /// How often the ledger goes back.
    pub rollbacks: u32,
    /// Only locks without proposed ids, releases, single writes without demands, and reads.
    pub plain: bool,
}

impl Shape {
    /// All there is, without rollbacks.
    pub const FULL: Self =
        Self { clients: 5, calls: 250, resources: 3, accidents: 12, rollbacks: 0, plain: false };
}

/// The history of a seed.
pub fn history(seed: u64, shape: Shape) -> History {
    world::World::new(seed, shape).run()
}

/// Random numbers that a seed repeats (splitmix64).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.below(from.len() as u64);
        from.get(usize::try_from(at).ok()?)
    }
}
