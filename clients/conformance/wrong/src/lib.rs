//! The Rust client with deliberate mistakes, to see that the conformance scenarios notice them. Each mistake is a hunk
//! in `patches/`, and is made only by a process that chose its name.

#![allow(
    clippy::all,
    clippy::disallowed_methods,
    clippy::allow_attributes,
    reason = "written by build.rs"
)]

include!(concat!(env!("OUT_DIR"), "/client/lib.rs"));

pub mod mutants;
