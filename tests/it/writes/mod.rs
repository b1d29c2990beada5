//! Writes and reads over real HTTP, commits, history and feed.

pub mod commit_bodies;
pub mod commit_readers;
pub mod commits;
pub mod deliveries;
pub mod events;
pub mod events_across;
pub mod feed;
pub mod feed_across;
pub mod idempotency;
pub mod puts;
pub mod reads;
pub mod seeing;
