//! What the engine needs from the outside: a ledger, a mint, a clock, ids and a place to run.
//!
//! A lost race is a value, an outcome that is unknown has a name, an error means "could not
//! decide". Adapters implement these traits; one conformance suite holds them all to the same
//! behaviour.

mod act;
mod audit_tree;
mod blobs;
mod buckets;
mod by;
mod commits;
mod disasters;
mod events;
mod ledger;
mod listing;
mod locks;
mod mint;
mod multipart;
mod operators;
mod own_time;
mod queue;
mod records;
mod rulebook;
mod runtime;
mod uploads;
mod upstreams;
mod views;
mod writes;

pub use act::*;
pub use audit_tree::*;
pub use blobs::*;
pub use buckets::*;
pub use by::*;
pub use commits::*;
pub use disasters::*;
pub use events::*;
pub use ledger::*;
pub use listing::*;
pub use locks::*;
pub use mint::*;
pub use multipart::*;
pub use operators::*;
pub use own_time::*;
pub use queue::*;
pub use records::*;
pub use rulebook::*;
pub use runtime::*;
pub use uploads::*;
pub use upstreams::*;
pub use views::*;
pub use writes::*;
