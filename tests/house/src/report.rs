//! Prints a count, beside that of another commit where there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Result, Write};

use crate::count::{Count, Functions};
use crate::place::Section;
use crate::waits::List;

/// The most lines of code that a file of production code may have.
const LONGEST: usize = 500;

pub fn lines(out: &mut impl Write, now: &Count, then: Option<&Count>) -> Result<()> {
    for section in Section::ALL {
        writeln!(out, "lines of {}", section.title())?;
        let keys = |count: &Count| {
            count.lines.keys().filter(|(of, _)| *of == section).cloned().collect::<Vec<_>>()
        };
        let both: BTreeSet<_> =
            keys(now).into_iter().chain(then.map(keys).unwrap_or_default()).collect();
        for key in both {
            let lines = |count: &Count| count.lines.get(&key).copied().unwrap_or_default();
            row(out, &key.1, lines(now), then.map(lines))?;
        }
        row(out, "in all", now.total(section), then.map(|then| then.total(section)))?;
        writeln!(out)?;
    }
    Ok(())
}

pub fn files(out: &mut impl Write, now: &Count) -> Result<()> {
    let long = now.files.iter().filter(|(lines, _)| *lines > LONGEST).count();
    writeln!(
        out,
        "files above {LONGEST} lines of code, of {}: {long}; the longest",
        now.files.len()
    )?;
    for (lines, path) in now.files.iter().take(long.max(10)) {
        row(out, path, *lines, None)?;
    }
    writeln!(out)
}

pub fn docs(out: &mut impl Write, now: &Count, then: Option<&Count>, all: bool) -> Result<()> {
    writeln!(out, "doc comments that begin with neither a noun nor a verb")?;
    let wrong =
        |count: &Count, section| count.wrong_docs.iter().filter(|(of, _)| *of == section).count();
    for section in Section::ALL.into_iter().filter(|section| *section != Section::Generated) {
        let whole = now.docs.get(&section).copied().unwrap_or_default();
        let name = format!("{}; of {whole}", section.title());
        row(out, &name, wrong(now, section), then.map(|then| wrong(then, section)))?;
    }
    let words = |count: &Count| {
        let mut words: BTreeMap<String, usize> = BTreeMap::new();
        for (_, doc) in &count.wrong_docs {
            *words.entry(doc.word.clone()).or_default() += 1;
        }
        words
    };
    let (words, before) = (words(now), then.map(words));
    let mut order: Vec<_> = words.iter().collect();
    order.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (word, count) in order {
        let before = before.as_ref().map(|before| before.get(word).copied().unwrap_or_default());
        row(out, &format!("  {word}"), *count, before)?;
    }
    if all {
        for (_, doc) in &now.wrong_docs {
            writeln!(out, "{}: {}", doc.place, doc.line)?;
        }
    }
    writeln!(out)
}

pub fn functions(out: &mut impl Write, now: &Count, then: Option<&Count>) -> Result<()> {
    writeln!(out, "helpers, tests, and helpers for each test")?;
    let sum = |count: &Count| {
        count.functions.values().fold(Functions::default(), |sum, of| Functions {
            tests: sum.tests + of.tests,
            helpers: sum.helpers + of.helpers,
        })
    };
    for (folder, of) in &now.functions {
        ratio(
            out,
            folder,
            *of,
            then.map(|then| then.functions.get(folder).copied().unwrap_or_default()),
        )?;
    }
    ratio(out, "in all", sum(now), then.map(sum))?;
    writeln!(out)
}

pub fn waits(out: &mut impl Write, list: &List, faults: &[String]) -> Result<()> {
    let purposes = list.purposes();
    writeln!(out, "waits of the tests, as listed: {}", purposes.values().sum::<usize>())?;
    for (purpose, count) in purposes {
        row(out, purpose, count, None)?;
    }
    faults.iter().try_for_each(|fault| writeln!(out, "{fault}"))
}

fn row(out: &mut impl Write, name: &str, now: usize, then: Option<usize>) -> Result<()> {
    match then {
        Some(then) => {
            let change = now.cast_signed() - then.cast_signed();
            writeln!(out, "  {name:<52} {now:>7}  was {then:>7}  {change:>+7}")
        }
        None => writeln!(out, "  {name:<52} {now:>7}"),
    }
}

fn ratio(out: &mut impl Write, name: &str, now: Functions, then: Option<Functions>) -> Result<()> {
    let each = |of: Functions| match of.tests {
        0 => "-".to_owned(),
        tests => format!("{:.1}", of.helpers as f64 / tests as f64),
    };
    let before = then.map_or_else(String::new, |then| format!("  was {:>5}", each(then)));
    writeln!(out, "  {name:<38} {:>6} {:>6} {:>7}{before}", now.helpers, now.tests, each(now))
}
