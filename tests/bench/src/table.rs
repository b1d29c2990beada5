//! A comparison as a table for people.

use std::fmt;

use crate::beside::ROUNDS;
use crate::paths::{Figure, Path};
use crate::prepared::LARGE;
use crate::report::{COLUMNS, Report, Row, Spread};
use crate::sample::Sample;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, seconds, size, rows } = self;
        writeln!(
            f,
            "Medians of {rounds} rounds of {seconds} s, ours and its rival in turn; below them the"
        )?;
        writeln!(f, "ratios, taken round by round, as median (least-most).")?;
        if *rounds < ROUNDS {
            writeln!(
                f,
                "Fewer than {ROUNDS} rounds: this shows whether something broke, not how fast it is."
            )?;
        }
        let (resources, waiters) = (size.resources, size.waiters);
        writeln!(f, "many-resources: {resources} of them. hand-over: {waiters} waiters.\n")?;
        write!(f, "| path | |")?;
        COLUMNS.iter().try_for_each(|(_, heading, _)| write!(f, " {heading} |"))?;
        writeln!(f, " load CPU us | gateway MiB | wanted |")?;
        writeln!(f, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|")?;
        rows.iter().try_for_each(|row| lines(f, row))?;
        writeln!(f)?;
        writeln!(
            f,
            "CPU: processor time of all servers of that side for one answer; memory: theirs together,"
        )?;
        writeln!(
            f,
            "afterwards. gateway: the most that it had so far. Latencies are corrected for coordinated"
        )?;
        writeln!(
            f,
            "omission. load CPU: what the load generator itself takes for one answer, or pgbench."
        )?;
        rows.iter().try_for_each(|row| remark(f, row))
    }
}

fn lines(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let (ours, rival) = row.path.about();
    let wanted = row.bounds.map_or(String::new(), |bounds| {
        let not = match row.is_met() {
            _ if row.is_broken() => ": BROKEN",
            Some(true) => "",
            _ => ": NOT MET",
        };
        match bounds.figure {
            Figure::Throughput => format!("rate >= {:.2}{not}", bounds.wanted),
            Figure::P50 => format!("p50 <= {:.2}{not}", bounds.wanted),
        }
    });
    figures(f, &row.path.name(), &ours, &row.ours)?;
    if row.rival.is_empty() {
        return Ok(());
    }
    figures(f, "", &rival, &row.rival)?;
    write!(f, "| | ratio |")?;
    COLUMNS.iter().try_for_each(|(key, _, _)| write!(f, " {} |", row.ratios[key]))?;
    writeln!(f, " | | {wanted} |")
}

fn figures(f: &mut fmt::Formatter<'_>, name: &str, what: &str, samples: &[Sample]) -> fmt::Result {
    write!(f, "| {name} | {what} |")?;
    for (_, _, of) in COLUMNS {
        write!(f, " {} |", short(median(samples, of)))?;
    }
    let most = samples.iter().filter_map(|sample| Some(sample.gateway?.peak_mib));
    let most = most.reduce(f64::max).map_or(String::new(), short);
    writeln!(f, " {} | {most} | |", short(median(samples, |sample| sample.load_cpu_us)))
}

/// What the table cannot say in its columns.
fn remark(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    match row.path {
        Path::Large => {
            let mib = (LARGE >> 20) as f64;
            let gateway =
                |sample: &Sample| sample.gateway.map_or(f64::NAN, |gateway| gateway.cpu_us);
            let [gateway, all, direct] = [
                median(&row.ours, gateway),
                median(&row.ours, |sample| sample.cpu_us),
                median(&row.rival, |sample| sample.cpu_us),
            ]
            .map(|us| us / 1000.0 / mib);
            writeln!(
                f,
                "A MiB of an 8 MiB PUT takes {gateway:.2} ms of the gateway's processor time, {all:.2} ms with \
                 all servers; {direct:.2} ms of the S3 server's if put there directly."
            )
        }
        Path::Ceiling => {
            let both = median(&row.ours, |sample| sample.load_cpu_us);
            let (rate, p50) = (
                median(&row.ours, |sample| sample.per_second),
                median(&row.ours, |sample| sample.p50_us as f64),
            );
            writeln!(
                f,
                "The ceiling: an empty answer and the question for it take {both:.1} us of processor time, load \
                 generator and HTTP server together, at {rate:.0}/s and a p50 of {p50:.0} us."
            )
        }
        _ => Ok(()),
    }
}

fn median(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    Spread::of(samples.iter().map(of)).median
}

/// A figure with as many digits as it is worth.
fn short(figure: f64) -> String {
    match figure {
        100.0.. => format!("{figure:.0}"),
        0.01.. => format!("{figure:.1}"),
        _ => String::new(),
    }
}
