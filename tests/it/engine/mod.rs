//! The engine on ledgers, mints and stores that do as they are told.

pub mod blobs;
pub mod breaks;
pub mod commits;
pub mod fences;
pub mod grants;
pub mod lanes;
pub mod marks;
pub mod outcomes;
pub mod rig;
pub mod rules;
pub mod s3;
pub mod starts;
pub mod taken_back;
pub mod uploads;
pub mod watch;
