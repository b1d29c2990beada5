//! What came out of a comparison: the figures of each path and its rival, and their ratios.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::paths::{Bounds, Figure, Path};
use crate::prepared::Size;
use crate::sample::Sample;

/// The median of some figures, and the least and the most of them.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of at least one figure.
    pub fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
        let (half, last) = (figures.len() / 2, figures.len().saturating_sub(1));
        let median =
            if figures.len() % 2 == 1 { at(half) } else { (at(half.max(1) - 1) + at(half)) / 2.0 };
        Self { median, least: at(0), most: at(last) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.least, self.most)
    }
}

/// What of a sample is compared: its name in JSON, its heading, and itself.
pub type Column = (&'static str, &'static str, fn(&Sample) -> f64);

/// All that is.
pub const COLUMNS: [Column; 6] = [
    ("per_second", "rate/s", |sample| sample.per_second),
    ("p50_us", "p50 us", |sample| sample.p50_us as f64),
    ("p99_us", "p99 us", |sample| sample.p99_us as f64),
    ("p999_us", "p99.9 us", |sample| sample.p999_us as f64),
    ("cpu_us", "CPU us", |sample| sample.cpu_us),
    ("memory_mib", "memory MiB", |sample| sample.memory_mib),
];

/// All rounds of a path.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Which.
    pub path: Path,
    /// Through the gateway, round by round.
    pub ours: Vec<Sample>,
    /// Its rival, in the same rounds.
    pub rival: Vec<Sample>,
    /// Ours by the rival's, taken round by round; none without a rival.
    pub ratios: BTreeMap<&'static str, Spread>,
    /// By what one of the ratios is judged.
    pub bounds: Option<Bounds>,
}

impl Row {
    /// Compares them.
    pub fn new(path: Path, ours: Vec<Sample>, rival: Vec<Sample>) -> Self {
        let ratio = |of: fn(&Sample) -> f64| {
            Spread::of(ours.iter().zip(&rival).map(|(ours, rival)| of(ours) / of(rival)))
        };
        let columns = COLUMNS.iter().filter(|_| !rival.is_empty());
        let ratios = columns.map(|(key, _, of)| (*key, ratio(*of))).collect();
        Self { path, ratios, bounds: path.bounds(), ours, rival }
    }

    /// The ratio that is judged.
    pub fn ratio(&self) -> Option<Spread> {
        let key = match self.bounds?.figure {
            Figure::Throughput => "per_second",
            Figure::P50 => "p50_us",
        };
        self.ratios.get(key).copied()
    }

    /// Whether it is as wanted.
    pub fn is_met(&self) -> Option<bool> {
        Some(self.is_within(self.bounds?.wanted))
    }

    /// Whether it is so far off that something must be broken.
    pub fn is_broken(&self) -> bool {
        self.bounds.is_some_and(|bounds| !self.is_within(bounds.broken))
    }

    /// Whether the ratio is on the good side of this one. A ratio that is no number is not.
    fn is_within(&self, bound: f64) -> bool {
        let judged = self.bounds.map(|bounds| bounds.figure).zip(self.ratio());
        judged.is_some_and(|(figure, ratio)| match figure {
            Figure::Throughput => ratio.median >= bound,
            Figure::P50 => ratio.median <= bound,
        })
    }
}

/// A comparison.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How many rounds.
    pub rounds: usize,
    /// How long each measurement took.
    pub seconds: f64,
    /// How large things were.
    pub size: Size,
    /// Path by path.
    pub rows: Vec<Row>,
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample(per_second: f64, p50_us: u64) -> Sample {
        Sample {
            per_second,
            p50_us,
            p99_us: 2 * p50_us,
            p999_us: 3 * p50_us,
            cpu_us: 1.0,
            cpu_any_us: 1.0,
            memory_mib: 1.0,
            load_cpu_us: 1.0,
            gateway: None,
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let ours = vec![sample(10.0, 1), sample(30.0, 2), sample(60.0, 1)];
        let rival = vec![sample(10.0, 1), sample(10.0, 1), sample(30.0, 1)];
        let row = Row::new(Path::Put, ours, rival);
        let ratio = row.ratio().unwrap();
        assert_eq!((ratio.median, ratio.least, ratio.most), (2.0, 1.0, 3.0));
        assert_eq!(row.is_met(), Some(true));
        let ratio = row.ratios["p99_us"];
        assert_eq!((ratio.median, ratio.least, ratio.most), (1.0, 1.0, 2.0));
    }

    #[test]
    fn of_times_less_is_wanted() {
        let row = Row::new(Path::HandOver, vec![sample(1.0, 30)], vec![sample(1.0, 10)]);
        assert_eq!(row.is_met(), Some(false));
        let row = Row::new(Path::HandOver, vec![sample(1.0, 20)], vec![sample(1.0, 10)]);
        assert_eq!(row.is_met(), Some(true));
    }

    #[test]
    fn a_row_far_off_is_broken() {
        let judged = |path, ours: (f64, u64), rival: (f64, u64)| {
            let row = Row::new(path, vec![sample(ours.0, ours.1)], vec![sample(rival.0, rival.1)]);
            (row.is_met(), row.is_broken())
        };
        assert_eq!(judged(Path::Put, (10.0, 1), (10.0, 1)), (Some(true), false));
        assert_eq!(judged(Path::Put, (9.0, 1), (10.0, 1)), (Some(false), false));
        assert_eq!(judged(Path::Put, (3.0, 1), (10.0, 1)), (Some(false), true));
        assert_eq!(judged(Path::PutAlone, (1.0, 33), (1.0, 10)), (Some(false), false));
        assert_eq!(judged(Path::PutAlone, (1.0, 75), (1.0, 10)), (Some(false), true));
        assert_eq!(judged(Path::Put, (0.0, 1), (0.0, 1)), (Some(false), true));
    }

    #[test]
    fn a_row_without_a_rival_is_not_judged() {
        let row = Row::new(Path::Ceiling, vec![sample(1.0, 1)], vec![]);
        assert_eq!((row.is_met(), row.is_broken()), (None, false));
    }
}
