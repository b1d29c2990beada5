//! The tests of the SQL, tested: each mutant of a function of `schema/postgres` is wrong in a way that
//! breaks naive designs, and makes the test fail that is named here, which passes on the function as it is.
//! `docs/proof.md` has the list.

mod access;
mod adoptions;
mod blobs;
mod buckets;
mod commits;
mod events;
mod guards;
mod history;
mod locks;
mod uploads;
mod upstreams;
mod writes;

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread;

use fence_tests::mutants::{Edit, failure_of};

use crate::schedules;

/// A function that is wrong, and the test that notices.
struct Mutant {
    name: &'static str,
    what: &'static str,
    caught_by: &'static str,
    test: fn(),
    /// What the test says then, so that it fails for this reason and no other.
    says: &'static str,
    edits: &'static [Edit],
}

/// A mutant: its name, what is wrong, the test that catches it, what that says, and the edits of functions. Of one that
/// is shared with other kinds of tests the name, what is wrong and the edits are there.
macro_rules! mutant {
    ($shared:expr, caught by $test:path, which says $says:literal) => {
        Mutant {
            name: $shared.name,
            what: $shared.what,
            caught_by: stringify!($test),
            test: $test,
            says: $says,
            edits: $shared.edits,
        }
    };
    ($name:literal: $what:literal, caught by $test:path, which says $says:literal,
     $($function:literal: $from:expr => $to:expr),+ $(,)?) => {
        Mutant {
            name: $name,
            what: $what,
            caught_by: stringify!($test),
            test: $test,
            says: $says,
            edits: &[$(Edit { function: $function, from: $from, to: $to }),+],
        }
    };
}
use mutant;

/// The mutants, by what they are about.
const THEMES: [(&str, &[Mutant]); 12] = [
    ("one write", writes::MUTANTS),
    ("a commit over several resources", commits::MUTANTS),
    ("locks", locks::MUTANTS),
    ("guards, epochs, re-fences", guards::MUTANTS),
    ("rules of access", access::MUTANTS),
    ("adoptions", adoptions::MUTANTS),
    ("drained upstreams", upstreams::MUTANTS),
    ("events", events::MUTANTS),
    ("history", history::MUTANTS),
    ("blobs", blobs::MUTANTS),
    ("buckets of S3", buckets::MUTANTS),
    ("uploads in parts", uploads::MUTANTS),
];

/// How many of a theme are tried at once: they wait for locks more than they compute.
const THREADS: usize = 3;

fn all() -> impl Iterator<Item = &'static Mutant> {
    THEMES.iter().flat_map(|(_, mutants)| mutants.iter())
}

/// Name, what is wrong, and the test that notices, for each of them.
fn listed() -> Vec<(&'static str, &'static str, &'static str)> {
    all().map(|mutant| (mutant.name, mutant.what, mutant.caught_by)).collect()
}

/// Why a mutant is not caught, or not by what it should be.
fn survival(mutant: &Mutant) -> Option<String> {
    match failure_of(mutant.test, mutant.edits) {
        Err(why) => Some(why),
        Ok(None) => Some("it passes".to_owned()),
        Ok(Some(said)) if !said.contains(mutant.says) => Some(format!("it says {said:?}")),
        Ok(Some(_)) => None,
    }
}

/// Fails unless each of these is caught. `FENCE_TEST_MUTANT=name` runs those alone whose names contain this.
fn are_caught(mutants: &'static [Mutant]) {
    let wanted = std::env::var("FENCE_TEST_MUTANT").unwrap_or_default();
    let are_there = all().any(|mutant| mutant.name.contains(&wanted));
    assert!(are_there, "no mutant's name contains {wanted:?}; docs/proof.md has them all");
    let left = Mutex::new(mutants.iter().filter(|mutant| mutant.name.contains(&wanted)));
    let next = || left.lock().expect("no thread panics with it").next();
    let survivors = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(mutant) = next() {
                    let Mutant { name, caught_by, .. } = mutant;
                    match survival(mutant) {
                        None => println!("{name}  SQL schedule  {caught_by}"),
                        Some(why) => {
                            let line = format!("{name}: not caught by {caught_by}: {why}");
                            survivors.lock().expect("no thread panics with it").push(line);
                        }
                    }
                }
            });
        }
    });
    let survivors = survivors.into_inner().expect("no thread panicked with it");
    assert!(survivors.is_empty(), "{} survive:\n{}", survivors.len(), survivors.join("\n"));
}

/// A test for each theme.
mod each_mutant_is_caught {
    macro_rules! of {
        ($($theme:ident),+ $(,)?) => { $(#[test] fn $theme() { super::are_caught(super::$theme::MUTANTS); })+ };
    }
    of!(
        access, adoptions, blobs, buckets, commits, events, guards, history, locks, uploads,
        upstreams, writes,
    );
}

/// What a test notices is the edit, and not that there was one.
#[test]
fn an_edit_that_changes_nothing_is_not_noticed() {
    const NOTHING: &[Edit] = &[
        Edit { function: "write", from: "-- Step 2.", to: "-- Still step 2." },
        Edit { function: "seal", from: "END $function$", to: "END; $function$" },
    ];
    let test = schedules::writes::a_write_with_the_old_token_behind_a_seal_is_stale;
    assert_eq!(failure_of(test, NOTHING), Ok(None));
}

#[test]
fn a_mutant_of_a_text_that_is_gone_is_an_error() {
    const GONE: &[Edit] = &[Edit { function: "write", from: "no such text", to: "" }];
    let test = schedules::writes::a_write_with_the_old_token_behind_a_seal_is_stale;
    let error = failure_of(test, GONE).expect_err("it cannot be made");
    assert!(error.contains("it has 0 times"), "{error}");
}

#[test]
fn each_mutant_has_a_name_of_its_own_and_says_why_it_is_caught() {
    let names: HashSet<_> = all().map(|mutant| mutant.name).collect();
    assert_eq!(names.len(), all().count());
    assert!(all().all(|mutant| !mutant.says.is_empty()));
}

/// The table in `docs/proof.md`.
fn table() -> String {
    let mut table = "\n| mutant | what is wrong | caught by |\n|---|---|---|\n".to_owned();
    for (name, what, caught_by) in listed() {
        table.push_str(&format!("| `{name}` | {what} | `{caught_by}` |\n"));
    }
    table
}

/// `FENCE_TEST_WRITE_DOCS=1` writes it anew.
#[test]
fn the_page_lists_the_mutants() {
    let (begin, end) = ("<!-- sql-mutants:begin -->\n", "<!-- sql-mutants:end -->");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/proof.md");
    let page = std::fs::read_to_string(path).expect("the page can be read");
    let (before, rest) = page.split_once(begin).expect("the table begins");
    let (found, after) = rest.split_once(end).expect("the table ends");
    let table = format!("{}\n", table());
    if std::env::var_os("FENCE_TEST_WRITE_DOCS").is_some() {
        let page = format!("{before}{begin}{table}{end}{after}");
        std::fs::write(path, page).expect("the page can be written");
    } else {
        assert_eq!(found, table, "run this test with FENCE_TEST_WRITE_DOCS=1");
    }
}
