//! The mutants that no random run notices, since they need an encounter of two calls that is rare, or show only where
//! nobody looks at random: a case of the conformance suite notices each, in memory and on SQLite.

use std::thread;

use fence_core::mutants::{self, Mutant};
use fence_core::ports::Ledger;
use fence_tests::conformance::ledger::{multipart, multipart_ends as ends, tidying};
use fence_tests::conformance::{memory_ledger, sqlite_ledger};
use futures::future::LocalBoxFuture;

/// A case, and what it says when it fails.
struct Case {
    run: fn(&dyn Ledger) -> LocalBoxFuture<'_, ()>,
    says: &'static str,
}

macro_rules! case {
    ($case:path, $says:literal) => {
        Case { run: |ledger| Box::pin($case(ledger)), says: $says }
    };
}

/// The case that notices a mutant; `None` for one that has none.
fn case_of(mutant: Mutant) -> Option<Case> {
    Some(match mutant {
        Mutant::AbortUnjudged => case!(ends::a_late_abort_ends_nothing, "left: Aborted"),
        Mutant::EarlierPartCounts => {
            case!(multipart::of_two_parts_the_one_begun_last_counts, "left: Stored")
        }
        Mutant::UnnamedPartsKept => case!(multipart::parts_become_an_object, "left: [(1"),
        Mutant::PartUnjudged => case!(ends::a_late_part_is_not_stored, "left: Stored"),
        Mutant::PartsGoAtOnce => {
            case!(ends::parts_stay_while_a_copy_may_have_them, "it may come back")
        }
        Mutant::AboutKept => {
            case!(ends::nothing_told_of_an_object_clings_to_the_next, "of the next nothing is told")
        }
        Mutant::KeySpacesMeet => {
            case!(multipart::keys_of_two_spaces_never_meet, "left: [true, true, true]")
        }
        Mutant::StampsByClock => case!(
            tidying::what_is_stamped_by_a_clock_that_went_back_is_kept_as_long,
            "it is forgotten early"
        ),
        Mutant::TimesAddUp => {
            case!(tidying::the_own_time_goes_on_by_what_has_passed_once, "their times add up")
        }
        _ => return None,
    })
}

#[derive(Debug, Clone, Copy)]
enum On {
    Memory,
    Sqlite,
}

/// What a case says with this mutant; `None` if it passes. All of it happens on one thread.
fn said(
    mutant: Option<Mutant>,
    run: fn(&dyn Ledger) -> LocalBoxFuture<'_, ()>,
    on: On,
) -> Option<String> {
    let play = move || {
        mutants::switch(mutant);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            match on {
                On::Memory => run(&memory_ledger()).await,
                On::Sqlite => run(&sqlite_ledger().await.ledger).await,
            }
        });
    };
    let panic = thread::spawn(play).join().err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).or(Some(String::new()))
}

#[test]
fn every_mutant_of_cases_is_noticed_by_its_case() {
    for (mutant, what) in Mutant::OF_CASES {
        let Case { run, says } =
            case_of(*mutant).unwrap_or_else(|| panic!("{mutant:?} has no case"));
        for on in [On::Memory, On::Sqlite] {
            let told = said(Some(*mutant), run, on);
            let told = told.unwrap_or_else(|| panic!("{mutant:?} passes {on:?}: {what}"));
            assert!(told.contains(says), "{mutant:?} {on:?}: {told}");
            assert_eq!(said(None, run, on), None, "without it the case passes");
        }
    }
}
