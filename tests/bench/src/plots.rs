//! A comparison as plots: the ratios, and the figures that they are of.

use std::fmt::Debug;
use std::path::Path as File;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{COLUMNS, Column, Report, Row, Spread};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the ratio of each path that is judged.
///
/// # Errors
/// A file that cannot be written.
pub fn ratios(report: &Report, file: &File) -> Result<()> {
    let rows: Vec<_> = report.rows.iter().filter_map(|row| Some((row, row.ratio()?))).collect();
    let most = rows.iter().map(|(_, ratio)| ratio.most).fold(2.0, f64::max);
    let area = SVGBackend::new(file, (900, 60 + 40 * rows.len() as u32)).into_drawing_area();
    area.fill(&WHITE).map_err(wrong)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(110)
        .build_cartesian_2d((0.05..most * 1.1).log_scale(), 0.0..rows.len() as f64)
        .map_err(wrong)?;
    let label = |at: &f64| {
        let row = rows.get(rows.len().wrapping_sub(1).wrapping_sub(*at as usize));
        row.filter(|_| at.fract() < 0.01).map_or(String::new(), |(row, _)| row.path.name())
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(rows.len() + 1)
        .y_label_formatter(&label)
        .x_desc("ratio to the rival (of the rate: more is better; of p50: less)")
        .draw()
        .map_err(wrong)?;
    for (index, (row, ratio)) in rows.iter().enumerate() {
        let y = (rows.len() - 1 - index) as f64;
        let color = if row.is_met() == Some(true) { BLUE } else { RED };
        let bar =
            Rectangle::new([(0.05, y + 0.1), (ratio.median, y + 0.6)], color.mix(0.6).filled());
        let spread = PathElement::new(vec![(ratio.least, y + 0.35), (ratio.most, y + 0.35)], BLACK);
        let wanted = row.bounds.map_or(1.0, |bounds| bounds.wanted);
        let mark =
            PathElement::new(vec![(wanted, y + 0.05), (wanted, y + 0.65)], BLACK.stroke_width(2));
        chart.draw_series([bar]).map_err(wrong)?;
        chart.draw_series([spread, mark]).map_err(wrong)?;
    }
    area.present().map_err(wrong)
}

/// Draws every figure of each path, ours above that of its rival.
///
/// # Errors
/// A file that cannot be written.
pub fn figures(report: &Report, file: &File) -> Result<()> {
    let (wide, high) = (2, COLUMNS.len().div_ceil(2));
    let size = (1400, (high * (60 + 30 * report.rows.len())) as u32);
    let area = SVGBackend::new(file, size).into_drawing_area();
    area.fill(&WHITE).map_err(wrong)?;
    for (part, column) in area.split_evenly((high, wide)).iter().zip(COLUMNS) {
        panel(part, &report.rows, column)?;
    }
    area.present().map_err(wrong)
}

fn panel(area: &Area<'_>, rows: &[Row], (_, heading, of): Column) -> Result<()> {
    let bars =
        |row: &Row| [&row.ours, &row.rival].map(|samples| Spread::of(samples.iter().map(of)));
    let bars: Vec<_> = rows.iter().map(bars).collect();
    let drawn = || bars.iter().flatten().filter(|bar| bar.median > 0.0);
    let least = drawn().map(|bar| bar.least).filter(|least| *least > 0.0).fold(f64::MAX, f64::min);
    let most = drawn().map(|bar| bar.most).fold(1.0, f64::max);
    let from = least.min(most) / 2.0;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .caption(format!("{heading} (blue: the gateway; grey: its rival)"), ("sans-serif", 14))
        .x_label_area_size(25)
        .y_label_area_size(110)
        .build_cartesian_2d((from..most * 1.2).log_scale(), 0.0..rows.len() as f64)
        .map_err(wrong)?;
    let label = |at: &f64| {
        let row = rows.get(rows.len().wrapping_sub(1).wrapping_sub(*at as usize));
        row.filter(|_| at.fract() < 0.01).map_or(String::new(), |row| row.path.name())
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_y_mesh().y_labels(rows.len() + 1).y_label_formatter(&label);
    mesh.draw().map_err(wrong)?;
    for (index, pair) in bars.iter().enumerate() {
        let y = (rows.len() - 1 - index) as f64;
        for (bar, (y, color)) in pair.iter().zip([(y + 0.45, BLUE), (y + 0.1, BLACK)]) {
            if bar.median > 0.0 {
                let shape = [(from, y), (bar.median, y + 0.3)];
                let bar_drawn = Rectangle::new(shape, color.mix(0.5).filled());
                let least = bar.least.max(from);
                let ends = vec![(least, y + 0.15), (bar.most, y + 0.15)];
                chart.draw_series([bar_drawn]).map_err(wrong)?;
                chart.draw_series([PathElement::new(ends, BLACK)]).map_err(wrong)?;
            }
        }
    }
    Ok(())
}

/// What plotters says.
pub fn wrong(error: impl Debug) -> anyhow::Error {
    anyhow!("the plot: {error:?}")
}
