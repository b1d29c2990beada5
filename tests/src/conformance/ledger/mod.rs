//! The conformance suite of the ledger.

pub mod audit;
pub mod batches;
pub mod belts;
pub mod blobs;
pub mod breaks;
mod build;
pub mod compare;
pub mod disasters;
pub mod drains;
pub mod feed;
pub mod fences;
pub mod holds;
pub mod infinite;
pub mod keys;
pub mod marks;
mod moves;
pub mod queues;
pub mod random;
pub mod reads;
pub mod renewals;
pub mod reruns;
pub mod rule;
pub mod seals;
pub mod tidying;
pub mod transfers;
pub mod writes;
