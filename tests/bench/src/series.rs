//! The memory of a process over time: how much, and whether it grows.

use std::fmt;
use std::path::Path as File;
use std::time::{Duration, Instant};

use anyhow::Result;
use plotters::prelude::*;
use serde::Serialize;

use crate::plots::wrong;
use crate::report::Spread;
use crate::usage::{peak_mib, resident_mib};

/// How often it is looked at, at most and at least.
const OFTEN: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(5);
/// How often it is printed.
const TELLS: Duration = Duration::from_secs(10);
/// What flat memory may have grown after the first fifth, in MiB: the allocator's ups and downs.
const GROWTH_MAX_MIB: f64 = 20.0;

/// What was seen.
#[derive(Debug, Serialize)]
pub struct Series {
    name: String,
    /// Seconds since the beginning, and MiB.
    seen: Vec<(f64, f64)>,
    peak_mib: f64,
    limit_mib: f64,
    /// After the first fifth, at the end, and the slope between them.
    settled_mib: f64,
    end_mib: f64,
    slope_mib_per_minute: f64,
    must_be_flat: bool,
}

/// Watches a process for a while.
pub async fn watch(
    pid: u32,
    name: String,
    limit_mib: f64,
    must_be_flat: bool,
    lasts: Duration,
) -> Series {
    let every = (lasts / 200).clamp(OFTEN, SELDOM);
    let begun = Instant::now();
    let (mut seen, mut told) = (Vec::new(), Instant::now());
    while begun.elapsed() < lasts {
        seen.push((begun.elapsed().as_secs_f64(), resident_mib(pid)));
        if let Some((at_s, mib)) = seen.last().filter(|_| told.elapsed() >= TELLS) {
            println!("{name}: {mib:.1} MiB after {at_s:.0} of {} s", lasts.as_secs());
            told = Instant::now();
        }
        tokio::time::sleep(every).await;
    }
    Series::new(name, seen, peak_mib(pid), limit_mib, must_be_flat)
}

impl Series {
    fn new(
        name: String,
        seen: Vec<(f64, f64)>,
        peak_mib: f64,
        limit_mib: f64,
        must_be_flat: bool,
    ) -> Self {
        let settled = seen.split_at(seen.len() / 5).1;
        let few = (settled.len() / 8).max(1).min(settled.len());
        let median = |part: &[(f64, f64)]| Spread::of(part.iter().map(|(_, mib)| *mib)).median;
        Self {
            settled_mib: median(&settled[..few]),
            end_mib: median(&settled[settled.len() - few..]),
            slope_mib_per_minute: 60.0 * slope(settled),
            name,
            peak_mib,
            limit_mib,
            must_be_flat,
            seen,
        }
    }

    /// Whether it stayed below its limit, and did not grow if it must not.
    pub fn is_within(&self) -> bool {
        self.peak_mib > 0.0 && self.peak_mib < self.limit_mib && self.is_flat() != Some(false)
    }

    fn is_flat(&self) -> Option<bool> {
        self.must_be_flat.then_some(self.end_mib - self.settled_mib <= GROWTH_MAX_MIB)
    }

    /// Draws some.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn plot(all: &[Self], file: &File) -> Result<()> {
        let area = SVGBackend::new(file, (900, 300 * all.len() as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(wrong)?;
        for (part, series) in area.split_evenly((all.len(), 1)).iter().zip(all) {
            let last_s = series.seen.last().map_or(1.0, |(at_s, _)| *at_s);
            let mut chart = ChartBuilder::on(part)
                .margin(10)
                .caption(&series.name, ("sans-serif", 14))
                .x_label_area_size(30)
                .y_label_area_size(50)
                .build_cartesian_2d(0.0..last_s, 0.0..series.limit_mib.max(series.peak_mib) * 1.1)
                .map_err(wrong)?;
            let mut mesh = chart.configure_mesh();
            mesh.x_desc("seconds").y_desc("MiB resident; red: the limit").draw().map_err(wrong)?;
            let limit = vec![(0.0, series.limit_mib), (last_s, series.limit_mib)];
            chart.draw_series([PathElement::new(limit, RED)]).map_err(wrong)?;
            chart.draw_series(LineSeries::new(series.seen.iter().copied(), BLUE)).map_err(wrong)?;
        }
        area.present().map_err(wrong)
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, peak_mib, limit_mib, settled_mib, end_mib, .. } = self;
        let peak = if self.peak_mib < *limit_mib { "" } else { ": NOT MET" };
        let flat = match self.is_flat() {
            Some(true) => ", flat",
            Some(false) => ": NOT FLAT",
            None => "",
        };
        write!(
            f,
            "{name}: {peak_mib:.1} MiB at most, wanted below {limit_mib:.0}{peak}; {settled_mib:.1} MiB after the \
             first fifth, {end_mib:.1} at the end, {:+.2} MiB/min{flat}",
            self.slope_mib_per_minute
        )
    }
}

/// Of the straight line that is nearest to these points.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|(x, _)| *x), mean(|(_, y)| *y));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if under > 0.0 { over / under } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(mib: impl Fn(f64) -> f64, peak_mib: f64) -> Series {
        let seen = (0..600).map(|at| (f64::from(at), mib(f64::from(at)))).collect();
        Series::new("test".into(), seen, peak_mib, 200.0, true)
    }

    #[test]
    fn memory_that_settles_is_flat() {
        let settles = series(|at_s| 50.0 + 50.0 * (at_s / 60.0).min(1.0), 100.0);
        assert!(settles.is_within() && settles.slope_mib_per_minute.abs() < 0.01, "{settles}");
    }

    #[test]
    fn memory_that_grows_is_not() {
        let grows = series(|at_s| 50.0 + at_s / 10.0, 110.0);
        assert!(!grows.is_within() && (grows.slope_mib_per_minute - 6.0).abs() < 0.01, "{grows}");
    }

    #[test]
    fn too_much_is_too_much() {
        assert!(!series(|_| 100.0, 201.0).is_within());
    }
}
