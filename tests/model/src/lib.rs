//! Exhaustive models: every interleaving of small systems of two or three clients, in which every decision of the
//! ledger is made by fence-core's own acts and rule over its own rows. Storage, network, clock and crashes
//! are abstract; what decides is the code that the ledgers in memory and on SQLite run.
//!
//! - [`locks`]: locks and writes, lost answers, two resources, the ends of locks
//! - [`disasters`]: an etcd and a ledger that go back, alone and together
//! - [`blobs`]: intents, uploads, the collector, readers, rollbacks within the horizon
//! - [`parts`]: uploads in parts, and what becomes of each part
//! - [`drained`]: a drained upstream, whose effects come at any time until it answers
//! - [`access`]: whose a token is, and rules of access that change while requests are under way
//!
//! Each model says what it leaves out. [`mutants`] lists ways to build Fencegate wrong; [`catalogue`] has the
//! bounds, [`hunts`] the invariant by which each mutant is caught. That PL/pgSQL does as the acts do is what the
//! conformance suite and the schedules in `tests/it` are for.
//!
//! `cargo run -p fence-model` checks everything and prints what it found.

pub mod access;
pub mod blobs;
pub mod catalogue;
pub mod check;
pub mod disasters;
pub mod drained;
pub mod history;
pub mod hunts;
pub mod ledger;
pub mod locks;
pub mod mutants;
pub mod parts;
