//! The checkers: what must hold of every history, whatever was broken while it was made.
//!
//! | | what holds | invariant | judged from |
//! |---|---|---|---|
//! | C1 | versions are 1, 2, 3 ...; a rollback keeps what it says | I6, I12 | the ledger |
//! | C2 | tokens never fall in version order | I3 | the ledger |
//! | C3 | sequence numbers rise under one token | I4 | the ledger, answers in time |
//! | C4 | nothing older is written once a grant was answered | I5 | grants against the ledger, answers in time |
//! | C5 | what was told is so, and what is there was asked for and not denied | I6, I8 | answers against the ledger |
//! | C6 | reads tell what was written last, and nothing goes back in time | I6, I8 | answers against the ledger, and in time |
//! | C7 | sets under a lock lose nothing: Jepsen's test of locks | I3, I5 | values in the ledger |
//! | C8 | one idempotency key, at most one effect | I7 | the ledger, answers |
//! | C9 | no pointer to a blob dangles | I9 | answers |
//! | C11 | soon after all is healed, all is granted and written | liveness | answers in time |
//! | C12 | tokens are grants of the ledger, of one lock each, and rising | I1, I2, I11, I15 | grants against the ledger, and in time |
//! | C13 | nothing older acts upstream once a grant was answered | I13 | effects in time |
//! | C14 | what was given back admits nothing any more | I6 | answers in time |
//! | C15 | nobody is refused without a reason | I8 | answers against the ledger |
//! | C16 | what is told of requests to drained upstreams is so | I8 | answers against effects |
//! | C17 | a token is its principal's and its writers', and what rules do not allow has no effect once they are in force | I16, I17 | answers in time, versions at the change |
//!
//! C10, the audit, is not in a history. The invariants are those of `ARCHITECTURE.md`.
//!
//! None of them searches: answers name versions and operations, so each is a sweep over sorted
//! records. A rollback explains losses and nothing else: what was told before it may be gone if its
//! version is above what was kept and its generation is one that ended.

mod access;
mod drained;
mod formed;
mod grants;
mod healed;
mod keys;
mod order;
mod outcomes;
mod reads;
mod refusals;
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

/// Judges a history. The time it takes grows with the number of records, times its logarithm, and with the
/// number of rollbacks, of which there are few.
///
/// A history that is none is not judged: see [`Report::malformed`]. What took no version is taken to be
/// lost by any rollback, since a history does not say whether it was kept.
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
    drained::told_truly(&view, &mut report);
    refusals::released_for_good(&view, &mut report);
    refusals::with_reason(&view, &mut report);
    access::of_its_principal(&view, &mut report);
    access::under_the_rules(&view, &mut report);
    access::read_under_the_rules(&view, &mut report);
    report
}
