//! S3 under a lock: what `fence run` tells S3 tools, and `fence s3-key`. A key comes from a lock, and never from a
//! resource: a source that gave the key of whoever has the resource *now* would hand a late writer the token of its
//! successor (I18).

mod endpoint;
mod environment;
pub mod key;
pub mod options;
mod template;
