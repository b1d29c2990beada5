//! S3: buckets, and the keys that are given out for locks; and clients of S3, as they come from their makers, against a
//! gateway: under a lock, after it is lost, and where answers are lost. What drives them is in `tests/s3`.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests take their own time and start their own tasks"
)]

mod bouncing;
mod buckets;
mod commands;
pub mod faults;
mod job;
mod keys;
#[cfg(feature = "long")]
mod long;
mod ordinary;
mod retries;
mod roots;
mod roots_apart;
mod site;
mod sources;
mod tools;
mod wire;
