//! All tests over real servers, in one binary.

mod blobs;
mod cli;
mod disasters;
mod engine;
mod files;
mod http;
mod ledger;
mod locks;
mod operating;
mod rust_client;
mod s3;
mod schedules;
mod setup;
mod upstreams;
mod writes;
