//! What must hold for any input: plain functions that panic if it does not.
//!
//! An ordinary test gives each of them its committed corpus; `run.sh` lets libFuzzer look for more.
//! Inputs are text as far as they can be, so that a seed is written by hand and a finding can be read.
#![expect(clippy::unwrap_used, reason = "what must hold is said by panicking")]

mod bodies;
mod framing;
mod headers;
mod multipart;
mod names;
mod paths;
mod requests;
mod router;
mod settings;
mod tokens;
mod words;

pub use bodies::bodies;
pub use framing::framing;
pub use headers::headers;
pub use multipart::multipart;
pub use names::names;
pub use paths::paths;
pub use router::router;
pub use settings::settings;
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
];

/// The first line of an input, and what follows it.
fn first_line(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, b""),
    }
}
