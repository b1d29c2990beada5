//! The ratios of an earlier comparison, and how this one stands beside them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path as File;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::paths::Figure;
use crate::report::Row;

/// Below this part of what was recorded there is a warning.
const WARNS: f64 = 0.8;
/// Below this part of it the comparison fails.
const FAILS: f64 = 0.5;

/// Median ratios by the names of their paths.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Record(BTreeMap<String, f64>);

impl Record {
    /// Those of a comparison.
    pub fn of(rows: &[Row]) -> Self {
        let ratio = |row: &Row| Some((row.path.name(), row.ratio()?.median));
        Self(rows.iter().filter_map(ratio).filter(|(_, ratio)| ratio.is_finite()).collect())
    }

    /// Those in a file.
    ///
    /// # Errors
    /// A file that is none of ours.
    pub fn read(file: &File) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{}", file.display()))
    }

    /// Puts them into a file.
    ///
    /// # Errors
    /// One that cannot be written.
    pub fn write(&self, file: &File) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(file, text).with_context(|| format!("{}", file.display()))
    }

    /// What is worse than it was: warnings, and what makes the comparison fail.
    pub fn judge(&self, rows: &[Row]) -> (Vec<String>, Vec<String>) {
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        for row in rows {
            let Some((before, now)) = self.0.get(&row.path.name()).zip(row.ratio()) else {
                continue;
            };
            // Of times less is better: twice as long is half as well.
            let (what, as_well) = match row.wanted {
                Some((Figure::P50, _)) => ("p50", before / now.median),
                _ => ("rate", now.median / before),
            };
            let line = format!(
                "{}: {what} is {:.2} of the rival's, recorded {before:.2}: {as_well:.2} as good",
                row.path.name(),
                now.median
            );
            match as_well {
                WARNS.. => {}
                FAILS.. => warnings.push(line),
                // What is no number is no good either.
                _ => errors.push(line),
            }
        }
        (warnings, errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Path;
    use crate::report::tests::sample;

    fn judged(path: Path, ours: (f64, u64), rival: (f64, u64)) -> (usize, usize) {
        let (ours, rival) = (sample(ours.0, ours.1), sample(rival.0, rival.1));
        let record = Record(BTreeMap::from([(path.name(), 1.0)]));
        let (warnings, errors) = record.judge(&[Row::new(path, vec![ours], vec![rival])]);
        (warnings.len(), errors.len())
    }

    #[test]
    fn a_lower_rate_is_worse() {
        assert_eq!(judged(Path::Put, (9.0, 1), (10.0, 1)), (0, 0));
        assert_eq!(judged(Path::Put, (90.0, 1), (10.0, 1)), (0, 0));
        assert_eq!(judged(Path::Put, (7.0, 1), (10.0, 1)), (1, 0));
        assert_eq!(judged(Path::Put, (4.0, 1), (10.0, 1)), (0, 1));
    }

    #[test]
    fn a_longer_time_is_worse() {
        assert_eq!(judged(Path::PutAlone, (1.0, 11), (1.0, 10)), (0, 0));
        assert_eq!(judged(Path::PutAlone, (1.0, 3), (1.0, 10)), (0, 0));
        assert_eq!(judged(Path::HandOver, (1.0, 15), (1.0, 10)), (1, 0));
        assert_eq!(judged(Path::ManyResources, (1.0, 30), (1.0, 10)), (0, 1));
    }

    #[test]
    fn what_is_no_number_is_worse() {
        assert_eq!(judged(Path::Put, (0.0, 1), (0.0, 1)), (0, 1));
    }

    #[test]
    fn what_was_not_recorded_is_not_judged() {
        let row = Row::new(Path::Get, vec![sample(1.0, 1)], vec![sample(10.0, 1)]);
        let (warnings, errors) = Record(BTreeMap::new()).judge(&[row]);
        assert!(warnings.is_empty() && errors.is_empty());
    }
}
