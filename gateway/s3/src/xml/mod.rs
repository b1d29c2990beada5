//! Bodies of S3 in XML: those of requests are read, those of answers are written.

pub mod read;
pub mod write;

/// The namespace of S3. Requests come with it, with another, or without: nothing depends on it.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
