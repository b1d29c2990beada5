//! The calls, one file per resource of the API. A handler parses, asks the engine once, answers.

pub mod access;
pub mod audit;
pub mod buckets;
pub mod commits;
mod exported;
pub mod feed;
pub mod fences;
mod follow;
pub mod health;
mod intake;
pub mod intents;
pub mod line;
pub mod locks;
pub mod objects;
pub mod operations;
pub mod operators;
pub mod proof;
pub mod rejections;
pub mod resources;
pub mod s3_keys;
pub mod scrape;
pub mod status;
pub mod upstreams;
pub mod usage;
mod views;
pub mod watching;
pub mod writes;

pub use exported::Exported;
pub use intake::{refused, upload, upload_share};
pub use status::{Ground, VERSION};
