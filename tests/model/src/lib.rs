//! Exhaustive models of Fencegate: every interleaving of small systems of three clients, whose every
//! decision is made by fence-core's own acts and rule.
pub mod check;
pub mod history;
pub mod ledger;
pub mod locks;
pub mod mutants;
pub mod disasters;
pub mod blobs;
pub mod drained;
