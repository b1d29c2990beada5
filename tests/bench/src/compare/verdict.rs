//! What is judged of a row, and by what: processor time first, then the rate.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::estimate::Estimate;
use crate::paths::Path;

/// Rounds of a row that was outside, measured again alone.
pub const ROUNDS_ALONE: usize = 10;
/// Processor time of all servers for one answer, as a part of the base's: at most this, or the upper end of the A/A
/// interval if that is higher.
const CPU_MAX: f64 = 1.03;
/// The same of a row that is slower on purpose, as a page in `docs/decisions` says.
const CPU_MAX_BOUGHT: f64 = 1.06;
/// The rate as a part of the base's: at least this, less the spread of A/A.
const RATE_MIN: f64 = 0.97;

/// A figure of the new version and of the base's twin, each as a ratio to the base.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Figure {
    /// The base's own, at the median.
    pub base: f64,
    /// That of the new version, at the median.
    pub now: f64,
    /// The new version beside the base.
    pub ratio: Estimate,
    /// The base beside itself: A/A.
    pub twin: Estimate,
}

/// A row of the comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The path.
    pub path: Path,
    /// Processor time of all servers for one answer, in microseconds.
    pub cpu_us: Figure,
    /// Answers in a second.
    pub per_second: Figure,
    /// The page that says what the row's slowness bought.
    pub bought: Option<PathBuf>,
    /// Whether it was measured again, alone.
    pub is_again: bool,
}

impl Row {
    /// The highest ratio of processor time that is inside.
    pub fn cpu_max(&self) -> f64 {
        let max = if self.bought.is_some() { CPU_MAX_BOUGHT } else { CPU_MAX };
        max.max(self.cpu_us.twin.upper)
    }

    /// The lowest ratio of rates that is inside.
    pub fn rate_min(&self) -> f64 {
        RATE_MIN - self.per_second.twin.spread()
    }

    /// The reasons why it is outside; none if it is not. A figure that is no number is outside.
    pub fn faults(&self) -> Vec<String> {
        let (cpu, rate) = (self.cpu_us.ratio.ratio, self.per_second.ratio.ratio);
        let mut faults = Vec::new();
        if cpu.is_nan() || cpu > self.cpu_max() {
            let max = self.cpu_max();
            faults.push(format!("processor time is {cpu:.3} of the base's, at most {max:.3}"));
        }
        if rate.is_nan() || rate < self.rate_min() {
            let min = self.rate_min();
            faults.push(format!("the rate is {rate:.3} of the base's, at least {min:.3}"));
        }
        faults
    }
}

/// Measures all rows, and those that are outside again, each alone and in more rounds, which decides.
///
/// # Errors
/// What could not be measured.
pub async fn judged(
    paths: &[Path],
    rounds: usize,
    mut measure: impl AsyncFnMut(&[Path], usize) -> Result<Vec<Row>>,
) -> Result<Vec<Row>> {
    let mut rows = measure(paths, rounds).await?;
    for row in &mut rows {
        let faults = row.faults();
        if faults.is_empty() {
            continue;
        }
        let name = row.path.name();
        println!("{name}: {}; again, alone, in {ROUNDS_ALONE} rounds", faults.join("; "));
        let again = measure(&[row.path], ROUNDS_ALONE).await?;
        *row = again.into_iter().next().context("a row was measured")?;
        row.is_again = true;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(ratio: f64, reach: f64) -> Estimate {
        Estimate { ratio, lower: ratio - reach, upper: ratio + reach }
    }

    /// A row with these ratios of processor time and rate, and A/A intervals of 1 that reach so far.
    fn row(path: Path, [cpu, rate]: [f64; 2], [cpu_reach, rate_reach]: [f64; 2]) -> Row {
        let figure = |ratio, reach| Figure {
            base: 1.0,
            now: ratio,
            ratio: estimate(ratio, 0.01),
            twin: estimate(1.0, reach),
        };
        let (cpu_us, per_second) = (figure(cpu, cpu_reach), figure(rate, rate_reach));
        Row { path, cpu_us, per_second, bought: None, is_again: false }
    }

    fn faults(ratios: [f64; 2], reaches: [f64; 2]) -> usize {
        row(Path::Put, ratios, reaches).faults().len()
    }

    #[test]
    fn processor_time_may_rise_by_three_parts_of_a_hundred() {
        assert_eq!(faults([1.029, 1.0], [0.01, 0.01]), 0);
        assert_eq!(faults([1.031, 1.0], [0.01, 0.01]), 1);
        assert_eq!(faults([0.5, 1.0], [0.01, 0.01]), 0);
    }

    #[test]
    fn or_as_far_as_the_base_differs_from_itself() {
        assert_eq!(faults([1.045, 1.0], [0.05, 0.01]), 0);
        assert_eq!(faults([1.055, 1.0], [0.05, 0.01]), 1);
    }

    #[test]
    fn the_rate_may_fall_by_as_much_and_the_spread() {
        assert_eq!(faults([1.0, 0.965], [0.01, 0.01]), 0);
        assert_eq!(faults([1.0, 0.955], [0.01, 0.01]), 1);
        assert_eq!(faults([1.0, 0.90], [0.01, 0.08]), 0);
        assert_eq!(faults([1.2, 0.80], [0.01, 0.08]), 2);
    }

    #[test]
    fn a_row_whose_slowness_bought_something_may_take_more() {
        let mut slower = row(Path::Put, [1.055, 1.0], [0.01, 0.01]);
        assert_eq!(slower.faults().len(), 1);
        slower.bought = Some("docs/decisions/0001-one-number-one-grant.md".into());
        assert_eq!(slower.faults().len(), 0);
        slower.cpu_us.ratio = estimate(1.07, 0.01);
        assert_eq!(slower.faults().len(), 1);
    }

    #[test]
    fn no_number_is_outside() {
        assert_eq!(faults([f64::NAN, f64::NAN], [0.01, 0.01]), 2);
    }

    /// Judges by these processor times, of the first measurement and, by row, of the one alone. Returns the rows that are
    /// outside, and all that was measured.
    async fn ends(
        first: &[(Path, f64)],
        alone: &[(Path, f64)],
    ) -> (Vec<Path>, Vec<(Vec<Path>, usize)>) {
        let mut asked = Vec::new();
        let paths: Vec<Path> = first.iter().map(|(path, _)| *path).collect();
        let rows = judged(&paths, 5, async |paths, rounds| {
            let figures = if asked.is_empty() { first } else { alone };
            asked.push((paths.to_vec(), rounds));
            let of = |path: &Path| figures.iter().find(|(of, _)| of == path).map(|(_, cpu)| *cpu);
            let measured = |path: &Path| row(*path, [of(path).unwrap(), 1.0], [0.01, 0.01]);
            Ok(paths.iter().map(measured).collect())
        });
        let rows = rows.await.unwrap();
        let outside = rows.iter().filter(|row| !row.faults().is_empty());
        (outside.map(|row| row.path).collect(), asked)
    }

    #[tokio::test]
    async fn rows_inside_are_measured_once() {
        let (outside, asked) = ends(&[(Path::Put, 1.0), (Path::Get, 1.02)], &[]).await;
        assert_eq!(outside, []);
        assert_eq!(asked, [(vec![Path::Put, Path::Get], 5)]);
    }

    #[tokio::test]
    async fn a_row_outside_is_measured_again_alone_which_decides() {
        let first = [(Path::Put, 1.1), (Path::Get, 1.0), (Path::Lock, 1.2)];
        let (outside, asked) = ends(&first, &[(Path::Put, 1.01), (Path::Lock, 1.3)]).await;
        assert_eq!(outside, [Path::Lock]);
        let all = vec![Path::Put, Path::Get, Path::Lock];
        let alone = |path| (vec![path], ROUNDS_ALONE);
        assert_eq!(asked, [(all, 5), alone(Path::Put), alone(Path::Lock)]);
    }
}
