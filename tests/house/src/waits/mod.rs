//! The waits of the tests, each of which stands in a list with its reason: a test waits for what it is about, and for a
//! time only where time is what it is about. The list does not become longer without a reason.

mod find;
mod holders;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};

use anyhow::{Context, Result, bail, ensure};

pub use find::find;

pub const LIST: &str = "tests/house/waits.txt";

/// The first words of reasons.
const PURPOSES: [&str; 11] = [
    "poll",
    "load",
    "lapse",
    "late",
    "begun",
    "silence",
    "work",
    "faults",
    "bench",
    "simulated",
    "bound",
];

/// In the place of a reason that is yet to be given.
const MISSING: &str = "?";

const HEAD: &str = "\
# The waits of the tests: path | function | sleep or elapsed | how many | what for: the reason.
# `cargo run -p fence-house -- waits --write` writes this list anew, with the reasons that are known and `?` for others.
#   poll       the pause of a loop that looks again
#   load       the pace of callers, or for how long they go on
#   lapse      a lease, a deadline or a slot has to pass
#   late       a part of the test answers or acts late, on purpose
#   begun      gives something time to begin that shows nowhere outside: too short on a slow machine
#   silence    nothing is to happen for a while
#   work       is under way while something else happens, and would be cut short
#   faults     the pace and the length of faults
#   bench      is part of what is measured
#   simulated  on a clock of the test's own: takes no time
#   bound      something has to happen within a time by the clock on the wall
";

/// The file and the function that hold waits, and of which kind they are: `sleep` or `elapsed`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    path: String,
    function: String,
    kind: String,
}

/// The waits of a place, in one line of the list.
struct Line<'a>(&'a Place, usize, &'a str);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(Place { path, function, kind }, count, reason) = self;
        write!(f, "{path} | {function} | {kind} | {count} | {reason}")
    }
}

/// A list: how many waits a place has, and what for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct List(BTreeMap<Place, (usize, String)>);

impl List {
    pub fn parse(text: &str) -> Result<Self> {
        let mut list = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let (place, entry) = entry(line).with_context(|| format!("{LIST}:{number}: {line}"))?;
            ensure!(list.0.insert(place, entry).is_none(), "{LIST}:{number}: named twice: {line}");
        }
        Ok(list)
    }

    /// Lists the waits that were found, with the reasons that are known.
    pub fn renewed(&self, found: &BTreeMap<Place, usize>) -> String {
        let mut text = HEAD.to_owned();
        for (place, count) in found {
            let reason = self.0.get(place).map_or(MISSING, |(_, reason)| reason);
            let _ = writeln!(text, "{}", Line(place, *count, reason));
        }
        text
    }

    /// Says what is wrong with the list, and which line to add, to change or to take out.
    pub fn faults(&self, found: &BTreeMap<Place, usize>) -> Vec<String> {
        let mut faults = Vec::new();
        for (place, count) in found {
            let (known, reason) =
                self.0.get(place).map_or((0, MISSING), |(known, reason)| (*known, reason.as_str()));
            let line = Line(place, *count, reason);
            if known == 0 {
                faults.push(format!(
                    "not in {LIST}: wait for what the test is about, or add, with its reason: {line}"
                ));
            } else if known < *count {
                faults.push(format!(
                    "{known} in {LIST}: wait for what the test is about, or change to: {line}"
                ));
            } else if known > *count {
                faults.push(format!("{known} in {LIST}: change to: {line}"));
            } else if reason == MISSING {
                faults.push(format!("without a reason in {LIST}: {line}"));
            }
        }
        for (place, (count, reason)) in &self.0 {
            if !found.contains_key(place) {
                faults.push(format!("gone: take out of {LIST}: {}", Line(place, *count, reason)));
            }
        }
        faults
    }

    /// Counts the waits by purpose.
    pub fn purposes(&self) -> BTreeMap<&str, usize> {
        let mut purposes = BTreeMap::new();
        for (count, reason) in self.0.values() {
            *purposes.entry(reason.split(':').next().unwrap_or_default()).or_default() += count;
        }
        purposes
    }
}

fn entry(line: &str) -> Result<(Place, (usize, String))> {
    let fields: Vec<&str> = line.splitn(5, " | ").collect();
    let [path, function, kind, count, reason] = fields[..] else {
        bail!("not `path | function | sleep or elapsed | how many | what for: the reason`")
    };
    let [path, function, kind] = [path, function, kind].map(str::to_owned);
    if reason != MISSING {
        let (purpose, words) = reason.split_once(": ").context("no reason")?;
        ensure!(PURPOSES.contains(&purpose), "`{purpose}` is none of {PURPOSES:?}");
        ensure!(!words.trim().is_empty(), "no reason");
    }
    let count = count.parse().ok().filter(|count| *count > 0).context("not how many")?;
    Ok((Place { path, function, kind }, (count, reason.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    fn places(places: &[(&str, usize)]) -> BTreeMap<Place, usize> {
        let place = |function: &str| Place {
            path: "t/a.rs".to_owned(),
            function: function.to_owned(),
            kind: "sleep".to_owned(),
        };
        places.iter().map(|(function, count)| (place(function), *count)).collect()
    }

    #[test]
    fn every_wait_has_a_reason_and_every_reason_a_wait() {
        let list = std::fs::read_to_string(format!("{}/{LIST}", tree::ROOT)).unwrap();
        let faults = List::parse(&list).unwrap().faults(&find(&tree::here().unwrap()));
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    }

    #[test]
    fn faults_say_which_line_to_change() {
        let text = "# a\n\nt/a.rs | f | sleep | 2 | poll: x\nt/a.rs | g | sleep | 1 | late: y\n";
        let list = List::parse(text).unwrap();
        let of = |found: &[(&str, usize)]| list.faults(&places(found)).join("\n");
        assert_eq!(of(&[("f", 2), ("g", 1)]), "");
        let gone = "gone: take out of tests/house/waits.txt: t/a.rs | g | sleep | 1 | late: y";
        assert_eq!(of(&[("f", 2)]), gone);
        let fewer = "2 in tests/house/waits.txt: change to: t/a.rs | f | sleep | 1 | poll: x";
        assert_eq!(of(&[("f", 1), ("g", 1)]), fewer);
        let more = of(&[("f", 3), ("g", 1)]);
        assert!(more.starts_with("2 in ") && more.contains("wait for what"), "{more}");
        let new = of(&[("f", 2), ("g", 1), ("h", 1)]);
        assert!(new.starts_with("not in ") && new.ends_with("t/a.rs | h | sleep | 1 | ?"), "{new}");
    }

    #[test]
    fn a_list_is_read_and_written() {
        let text = format!("{HEAD}t/a.rs | f | sleep | 2 | poll: x | y\n");
        let list = List::parse(&text).unwrap();
        assert_eq!(list.renewed(&places(&[("f", 2)])), text);
        assert_eq!(list.purposes(), BTreeMap::from([("poll", 2)]));
        let renewed = list.renewed(&places(&[("f", 1), ("g", 1)]));
        let lines = "| f | sleep | 1 | poll: x | y\nt/a.rs | g | sleep | 1 | ?\n";
        assert!(renewed.ends_with(lines), "{renewed}");
        let faults = List::parse(&renewed).unwrap().faults(&places(&[("f", 1), ("g", 1)]));
        assert_eq!(
            faults,
            ["without a reason in tests/house/waits.txt: t/a.rs | g | sleep | 1 | ?"]
        );
    }

    #[test]
    fn bad_lines_are_refused() {
        for end in [
            "",
            " | 1",
            " | 1 | why",
            " | x | poll: c",
            " | 0 | poll: c",
            " | 1 | fun: c",
            " | 1 | poll: ",
        ] {
            let line = format!("a | b | sleep{end}");
            let refused = List::parse(&line).unwrap_err();
            assert_eq!(refused.to_string(), format!("{LIST}:1: {line}"));
        }
        let twice = "a | b | sleep | 1 | poll: c\na | b | sleep | 2 | poll: d\n";
        assert!(List::parse(twice).unwrap_err().to_string().contains(":2: named twice"));
    }
}
