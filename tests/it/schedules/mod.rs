//! Interleavings of acts on a real Postgres that are forced, step by step.

pub mod access;
pub mod adoption;
pub mod blobs;
pub mod commits;
pub mod common;
pub mod deadlocks;
pub mod disasters;
pub mod events;
pub mod fences;
pub mod forced;
pub mod ghosts;
pub mod guard;
pub mod guard_order;
pub mod multipart;
pub mod own_time;
pub mod place;
pub mod records;
pub mod rows;
pub mod rule;
pub mod skipped;
pub mod sql_races;
pub mod starts;
pub mod stuck_rows;
pub mod tables;
pub mod upstreams;
pub mod writes;
