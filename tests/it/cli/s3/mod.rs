//! `fence run` and `fence s3-key` where locks have keys of S3.

mod keys;
mod variables;
