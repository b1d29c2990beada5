//! Whose turn it is, and the ratios that come of it.

/// A side of a comparison of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The version before.
    Base,
    /// The version that is judged.
    New,
    /// The version before once more, on servers of its own: what it differs from `Base` by is no difference of versions.
    Twin,
}

/// The turns of a block, after which `Base` has another. So it goes A B and back, B A, for both of the others; the mean
/// moment of each is that of `Base`, and a machine that becomes slower steadily does so for all; nobody has two turns in
/// a row, of which the second would find what the first left behind; and the other two stand in the same place.
pub const BLOCK: [Who; 6] = [Who::Base, Who::New, Who::Twin, Who::Base, Who::Twin, Who::New];

/// The ratio of two turns of a side to the three of `Base` around them, block by block. Of those, the first and the last
/// are shared with the blocks before and after, and count half.
pub fn ratios(base: &[f64], other: &[f64]) -> Vec<f64> {
    let blocks = other.chunks_exact(2).enumerate();
    let ratio = |(block, turns): (usize, &[f64])| {
        let [first, middle, last] = base.get(2 * block..2 * block + 3)?.try_into().ok()?;
        Some((turns[0] + turns[1]) / 2.0 / ((first + 2.0 * middle + last) / 4.0))
    };
    blocks.filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of each side, if the machine goes so at each turn, and the new version takes so many times as long.
    fn measured(blocks: usize, times: f64, machine: impl Fn(usize) -> f64) -> [Vec<f64>; 3] {
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        for at in 0..=blocks * BLOCK.len() {
            let who = BLOCK[at % BLOCK.len()];
            figures[who as usize].push(machine(at) * if who == Who::New { times } else { 1.0 });
        }
        figures
    }

    fn is_near(ratios: &[f64], wanted: f64) -> bool {
        ratios.iter().all(|ratio| (ratio - wanted).abs() < 1e-9)
    }

    #[test]
    fn each_side_has_its_turns() {
        let [base, new, twin] = measured(5, 1.0, |_| 1.0);
        assert_eq!([base.len(), new.len(), twin.len()], [11, 10, 10]);
        assert_eq!(ratios(&base, &new).len(), 5);
        assert!(BLOCK.iter().zip(BLOCK.iter().skip(1)).all(|(one, next)| one != next));
    }

    #[test]
    fn a_slower_version_shows_and_its_twin_does_not() {
        let [base, new, twin] = measured(4, 1.2, |_| 50.0);
        assert!(is_near(&ratios(&base, &new), 1.2));
        assert!(is_near(&ratios(&base, &twin), 1.0));
    }

    #[test]
    fn a_machine_that_becomes_slower_shows_in_no_ratio() {
        let [base, new, twin] = measured(4, 1.0, |at| 100.0 + 3.0 * at as f64);
        assert!(is_near(&ratios(&base, &new), 1.0));
        assert!(is_near(&ratios(&base, &twin), 1.0));
    }
}
