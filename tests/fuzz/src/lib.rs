//! What must hold for any input: plain functions that panic if it does not.
//!
//! An ordinary test gives each of them its committed corpus; `run.sh` lets libFuzzer look for more.
//! Inputs are text as far as they can be, so that a seed is written by hand and a finding can be read.
#![expect(clippy::unwrap_used, reason = "what must hold is said by panicking")]

mod bodies;
mod chunks;
mod credentials;
mod framing;
mod headers;
mod multipart;
mod names;
mod paths;
mod requests;
mod router;
mod rules;
mod s3_address;
mod s3_bodies;
mod s3_operation;
mod settings;
mod signatures;
mod tokens;
mod words;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

pub use bodies::bodies;
pub use chunks::chunks;
pub use credentials::credentials;
pub use framing::framing;
pub use headers::headers;
pub use multipart::multipart;
pub use names::names;
pub use paths::paths;
pub use router::{router, strangers};
pub use rules::rules;
pub use s3_address::s3_address;
pub use s3_bodies::s3_bodies;
pub use s3_operation::s3_operation;
pub use settings::settings;
pub use signatures::signatures;
pub use tokens::tokens;
pub use words::words;

/// What is given an input.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora and binaries.
pub const TARGETS: &[(&str, Target)] = &[
    ("tokens", tokens),
    ("names", names),
    ("paths", paths),
    ("words", words),
    ("headers", headers),
    ("settings", settings),
    ("bodies", bodies),
    ("multipart", multipart),
    ("framing", framing),
    ("router", router),
    ("credentials", credentials),
    ("rules", rules),
    ("strangers", strangers),
    ("s3_address", s3_address),
    ("s3_operation", s3_operation),
    ("s3_bodies", s3_bodies),
    ("signatures", signatures),
    ("chunks", chunks),
];

/// The first line of an input, and what follows it.
fn first_line(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, b""),
    }
}

/// The header lines of an input, up to an empty one, and what follows them. Lines that are no headers are
/// left out.
fn header_lines(mut input: &[u8]) -> (HeaderMap, &[u8]) {
    let mut lines = HeaderMap::new();
    while !input.is_empty() {
        let (line, rest) = first_line(input);
        input = rest;
        if line.is_empty() {
            break;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            lines.append(name, value);
        }
    }
    (lines, input)
}
