//! Recorded histories: what callers asked and were told, and what the ledger held in the end. The
//! checkers judge them without knowing how they came about, so that a simulation, a run against real
//! servers and a saved file are all judged by the same code.

mod record;

pub use record::*;
