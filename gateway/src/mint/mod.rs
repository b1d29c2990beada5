//! The mints: etcd for several gateways on one ledger, embedded for one gateway on its own.
//!
//! A mint only proposes numbers; the ledger refuses what does not rise.

mod checkpoints;
mod embedded;
mod etcd;
mod members;
pub mod room;

pub use embedded::EmbeddedMint;
pub use etcd::{EtcdMint, EtcdSettings};
