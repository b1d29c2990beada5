//! Payloads that are too large for the ledger.

pub mod digests;
pub mod hooked_blobs;
pub mod kills;
pub mod objects;
pub mod pauses;
pub mod rig;
pub mod sizes;
pub mod standby_blobs;
pub mod sweeping;
