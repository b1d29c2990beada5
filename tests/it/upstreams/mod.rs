//! What is forwarded to upstreams.

pub mod bad_inputs;
pub mod crowd;
pub mod draining;
pub mod fates;
pub mod requests;
pub mod rig;
pub mod secured;
