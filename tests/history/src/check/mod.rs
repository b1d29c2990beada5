//! The checkers: what must hold of every history, whatever was broken while it was made.
//!
//! None of them searches: answers name versions and operations, so each is a sweep over sorted
//! records. All judge what the ledger holds in the end, what callers were told, and real time.
//! A rollback explains losses, and nothing else.

mod drained;
mod formed;
mod grants;
mod healed;
mod keys;
mod order;
mod outcomes;
mod reads;
mod seals;
mod sets;
mod values;
mod verdicts;
mod view;

use crate::record::History;
use crate::report::{Checker, Report};
use view::View;

pub use healed::HEALED_WITHIN_US;
pub use outcomes::REMEMBERED_US;

/// Judges a history. The time it takes grows with the number of records, times its logarithm.
pub fn check(history: &History) -> Report {
    let view = View::of(history);
    let mut report = Report { malformed: formed::faults(history, &view), ..Report::default() };
    if !report.malformed.is_empty() {
        return report;
    }
    Checker::ALL.into_iter().for_each(|checker| report.looked(checker, 0));
    order::versions(&view, &mut report);
    order::tokens(&view, &mut report);
    order::sequences(&view, &mut report);
    seals::before_use(&view, &mut report);
    verdicts::told(&view, &mut report);
    verdicts::asked_for(&view, &mut report);
    outcomes::stable(&view, &mut report);
    reads::in_time(&view, &mut report);
    values::true_values(&view, &mut report);
    values::no_dangling(&view, &mut report);
    sets::nothing_lost(&view, &mut report);
    keys::at_most_once(&view, &mut report);
    healed::soon(&view, &mut report);
    grants::of_the_ledger(&view, &mut report);
    drained::nothing_older(&view, &mut report);
    report
}
