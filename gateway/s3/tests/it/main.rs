//! The words of S3, against what others have published and signed, and against any input.

mod checksums;
mod chunks;
mod examples;
mod keys;
mod recorded;
mod refusals;
