//! The test harness: real Postgres, etcd and gateway processes on free ports, an HTTP client that
//! checks every answer against `openapi.yaml`, a TCP proxy that breaks connections, and raw
//! sockets for requests that no well-behaved client would send.
#![expect(
    clippy::disallowed_methods,
    reason = "the harness is a program of its own: it reads real clocks and makes real ids"
)]

pub mod access;
pub mod bare;
pub mod chaos;
pub mod client;
pub mod collector;
pub mod conformance;
pub mod disk;
pub mod etcd;
pub mod events;
pub mod failing_disk;
pub mod feed;
pub mod gateway;
pub mod mover;
pub mod multipart;
pub mod mutants;
pub mod nginx;
pub mod patches;
pub mod pgbouncer;
pub mod postgres;
pub mod process;
pub mod raw;
pub mod redis;
pub mod s3;
pub mod scripted;
pub mod secrets;
pub mod slow_disk;
pub mod spec;
pub mod stores;
pub mod survey;
pub mod upstream;
