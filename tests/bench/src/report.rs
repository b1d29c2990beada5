//! The table of a comparison, its JSON, its plot, and how it stands beside an earlier one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path as File;

use anyhow::{Result, anyhow};
use clap::ValueEnum as _;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use crate::paths::{Figure, Path, Sample};

/// The median of some figures, and the least and the most of them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
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

/// All rounds of a path.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Which.
    pub path: Path,
    /// Through the gateway, round by round.
    pub ours: Vec<Sample>,
    /// Its rival, in the same rounds.
    pub rival: Vec<Sample>,
    /// Ours by the rival's, round by round.
    pub ratio: Option<Spread>,
    /// What the ratio is of, and what is wanted: at least of throughput, at most of p50.
    pub wanted: Option<(Figure, f64)>,
}

impl Row {
    /// Compares them.
    pub fn new(path: Path, ours: Vec<Sample>, rival: Vec<Sample>) -> Self {
        let wanted = path.wanted();
        let ratio = wanted.filter(|_| !rival.is_empty()).map(|(figure, _)| {
            let of = |sample: &Sample| match figure {
                Figure::Throughput => sample.per_second,
                Figure::P50 => sample.p50_us as f64,
            };
            Spread::of(ours.iter().zip(&rival).map(|(ours, rival)| of(ours) / of(rival)))
        });
        Self { path, ours, rival, ratio, wanted }
    }

    fn is_met(&self) -> Option<bool> {
        let ((figure, wanted), ratio) = (self.wanted?, self.ratio?);
        Some(match figure {
            Figure::Throughput => ratio.median >= wanted,
            Figure::P50 => ratio.median <= wanted,
        })
    }
}

/// A comparison.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How many rounds, and how long each measurement took, in seconds.
    pub rounds: (usize, f64),
    /// Path by path.
    pub rows: Vec<Row>,
}

/// The ratios of an earlier comparison, by path.
pub type Record = BTreeMap<String, f64>;

fn name(path: Path) -> String {
    path.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

fn about(path: Path) -> (String, String) {
    let help = path.to_possible_value().and_then(|value| Some(value.get_help()?.to_string()));
    let help = help.unwrap_or_default();
    let (ours, rival) = help.split_once("; ").unwrap_or((&help, ""));
    (ours.to_owned(), rival.to_owned())
}

impl Report {
    /// Its ratios, to be compared with later.
    pub fn record(&self) -> Record {
        self.rows.iter().filter_map(|row| Some((name(row.path), row.ratio?.median))).collect()
    }

    /// What is worse than it was: a warning below 0.8 of the recorded ratio, an error below 0.5.
    pub fn against(&self, record: &Record) -> (Vec<String>, Vec<String>) {
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        for row in &self.rows {
            let Some((before, now)) = record.get(&name(row.path)).zip(row.ratio) else { continue };
            let of_it = match row.wanted {
                Some((Figure::P50, _)) => before / now.median,
                _ => now.median / before,
            };
            let line = format!(
                "{}: {:.2}, recorded {before:.2}: {of_it:.2} of it",
                name(row.path),
                now.median
            );
            match of_it {
                ..0.5 => errors.push(line),
                0.5..0.8 => warnings.push(line),
                _ => {}
            }
        }
        (warnings, errors)
    }

    /// Draws the ratios.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn plot(&self, file: &File) -> Result<()> {
        let rows: Vec<_> = self.rows.iter().filter_map(|row| Some((row, row.ratio?))).collect();
        let most = rows.iter().map(|(_, ratio)| ratio.most).fold(2.0, f64::max);
        let area = SVGBackend::new(file, (900, 60 + 40 * rows.len() as u32)).into_drawing_area();
        let wrong = |error: &dyn fmt::Display| anyhow!("the plot: {error}");
        area.fill(&WHITE).map_err(|error| wrong(&error))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(110)
            .build_cartesian_2d((0.05..most * 1.1).log_scale(), 0.0..rows.len() as f64)
            .map_err(|error| wrong(&error))?;
        let label = |at: &f64| {
            let row = rows.get(rows.len().wrapping_sub(1).wrapping_sub(*at as usize));
            row.filter(|_| at.fract() < 0.01).map_or(String::new(), |(row, _)| name(row.path))
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(rows.len() + 1)
            .y_label_formatter(&label)
            .x_desc("ratio to the rival (of throughput: more is better; of p50: less)")
            .draw()
            .map_err(|error| wrong(&error))?;
        for (index, (row, ratio)) in rows.iter().enumerate() {
            let y = (rows.len() - 1 - index) as f64;
            let color = if row.is_met() == Some(true) { BLUE } else { RED };
            let bar =
                Rectangle::new([(0.05, y + 0.1), (ratio.median, y + 0.6)], color.mix(0.6).filled());
            let spread =
                PathElement::new(vec![(ratio.least, y + 0.35), (ratio.most, y + 0.35)], BLACK);
            let wanted = row.wanted.map_or(1.0, |(_, wanted)| wanted);
            let mark = PathElement::new(
                vec![(wanted, y + 0.05), (wanted, y + 0.65)],
                BLACK.stroke_width(2),
            );
            chart.draw_series([bar]).map_err(|error| wrong(&error))?;
            chart.draw_series([spread, mark]).map_err(|error| wrong(&error))?;
        }
        area.present().map_err(|error| wrong(&error))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rounds, seconds) = self.rounds;
        writeln!(f, "Medians of {rounds} rounds, {seconds} s each, ours and its rival in turn.\n")?;
        writeln!(
            f,
            "| path | | rate/s | p50 us | p99 us | p99.9 us | CPU us | gateway MiB | ratio | wanted |"
        )?;
        writeln!(f, "|---|---|--:|--:|--:|--:|--:|--:|---|---|")?;
        for row in &self.rows {
            let (ours, rival) = about(row.path);
            let ratio = row.ratio.map_or(String::new(), |ratio| ratio.to_string());
            let wanted = match (row.wanted, row.is_met()) {
                (Some((figure, wanted)), Some(met)) => {
                    let (sign, of) = match figure {
                        Figure::Throughput => (">=", "rate"),
                        Figure::P50 => ("<=", "p50"),
                    };
                    format!("{of} {sign} {wanted}{}", if met { "" } else { ": NOT MET" })
                }
                _ => String::new(),
            };
            line(f, &name(row.path), &ours, &row.ours, &ratio, &wanted)?;
            if !row.rival.is_empty() {
                line(f, "", &rival, &row.rival, "", "")?;
            }
        }
        Ok(())
    }
}

fn line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    what: &str,
    samples: &[Sample],
    ratio: &str,
    wanted: &str,
) -> fmt::Result {
    let median = |of: fn(&Sample) -> f64| Spread::of(samples.iter().map(of)).median;
    let mib = samples.iter().filter_map(|sample| sample.gateway_mib).fold(0.0, f64::max);
    let mib = if mib > 0.0 { format!("{mib:.0}") } else { String::new() };
    writeln!(
        f,
        "| {name} | {what} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {mib} | {ratio} | {wanted} |",
        median(|sample| sample.per_second),
        median(|sample| sample.p50_us as f64),
        median(|sample| sample.p99_us as f64),
        median(|sample| sample.p999_us as f64),
        median(|sample| sample.cpu_us),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(per_second: f64, p50_us: u64) -> Sample {
        let gateway_mib = None;
        Sample { per_second, p50_us, p99_us: p50_us, p999_us: p50_us, cpu_us: 1.0, gateway_mib }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let ours = vec![sample(10.0, 1), sample(30.0, 1), sample(60.0, 1)];
        let rival = vec![sample(10.0, 1), sample(10.0, 1), sample(30.0, 1)];
        let row = Row::new(Path::Put, ours, rival);
        let ratio = row.ratio.unwrap();
        assert_eq!((ratio.median, ratio.least, ratio.most), (2.0, 1.0, 3.0));
        assert_eq!(row.is_met(), Some(true));
    }

    #[test]
    fn what_became_worse_is_told() {
        let rows = vec![
            Row::new(Path::Put, vec![sample(7.0, 1)], vec![sample(10.0, 1)]),
            Row::new(Path::PutAlone, vec![sample(1.0, 30)], vec![sample(1.0, 10)]),
            Row::new(Path::Get, vec![sample(10.0, 1)], vec![sample(10.0, 1)]),
        ];
        let report = Report { rounds: (1, 1.0), rows };
        let record = Record::from([
            ("put".to_owned(), 1.0),
            ("put-alone".to_owned(), 1.0),
            ("get".to_owned(), 1.0),
        ]);
        let (warnings, errors) = report.against(&record);
        assert!(warnings.len() == 1 && warnings[0].starts_with("put: 0.70"), "{warnings:?}");
        assert!(errors.len() == 1 && errors[0].starts_with("put-alone: 3.00"), "{errors:?}");
    }
}
