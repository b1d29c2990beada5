//! Ledger and mint in memory: the reference for every adapter, and what a simulation runs on.

mod ledger;
mod mint;

pub use ledger::MemoryLedger;
pub use mint::MemoryMint;
