//! Ledger, mint and blobs in memory: the reference for every adapter, and what a simulation runs on.

mod audit_tree;
mod blobs;
mod buckets;
mod history;
mod ledger;
mod listing;
mod mint;
mod multipart;
mod rulebook;
mod state;
mod uploads;
mod upstreams;

pub use blobs::MemoryBlobs;
pub use mint::MemoryMint;
pub use state::MemoryLedger;
