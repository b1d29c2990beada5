//! The server: an HTTP front to storage that takes no write without a fence token.
//!
//! Data flows one way: `http -> engine -> ports <- adapters`; `s3` is another front beside `http`, on its connections. `wiring` alone names concrete
//! adapters; the engine knows no HTTP, SQL or etcd; a handler reaches storage only through it.

#[cfg(test)]
mod arrows;
pub mod blobs;
pub mod cli;
pub mod config;
pub mod data_dir;
mod dev;
pub mod drill;
pub mod engine;
mod files;
pub mod http;
pub mod ledger;
mod log_scope;
pub mod mint;
pub mod runtime;
pub mod s3;
mod seen;
pub mod spans;
pub mod telemetry;
mod this_machine;
pub mod wiring;
mod witness;
