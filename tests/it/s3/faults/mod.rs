//! S3 where something is wrong: requests that are spoiled, gateways that stand still, gateways that are killed.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

mod again;
mod bodies;
mod documents;
mod ended_locks;
mod kills;
mod pauses;
mod put_back;
mod refused;
mod resumed;
pub mod rig;
mod shares;
mod signatures;
mod stalls;
mod wholes;
