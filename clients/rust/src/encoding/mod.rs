//! How names and bodies go over the wire, byte for byte.

pub mod multipart;
pub mod path;
pub mod sse;
