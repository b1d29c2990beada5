//! Bodies in chunks, as `Content-Encoding: aws-chunked` has them: what S3 clients send when they do not know a digest
//! before they begin to send.
//!
//! ```text
//! 400;chunk-signature=<64 digits>\r\n        the size in hexadecimal digits; a signature if chunks are signed
//! <1,024 bytes>\r\n
//! 0;chunk-signature=<64 digits>\r\n          the last chunk, which is empty
//! x-amz-checksum-crc32c:sOO8/Q==\r\n         trailers, if the request announced them
//! x-amz-trailer-signature:<64 digits>\r\n    their signature, if chunks are signed
//! \r\n
//! ```
//!
//! Each signature covers the one before it, and the first that of the request: nothing can be moved, left out or repeated.

mod announced;
mod decoder;
mod encoder;
mod error;
mod seed;
mod trailers;

pub use announced::Announced;
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use error::ChunkError;
pub use seed::Seed;
pub use trailers::Trailers;
