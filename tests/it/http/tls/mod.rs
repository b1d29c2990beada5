//! TLS on the gateway's own listeners: who is let in, for how long, and how certificates change.

mod line;
pub(crate) mod rig;

pub mod bearers;
pub mod callers;
pub mod handshakes;
pub mod lists;
pub mod names;
pub mod open;
pub mod own;
