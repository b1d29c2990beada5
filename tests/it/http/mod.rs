//! What is so of every answer, and of connections, doors and shares.

pub mod admin_door;
pub mod bad_inputs;
pub mod credentials;
pub mod doors;
pub mod error_pages;
pub mod hangups;
pub mod judge;
pub mod long_polls;
pub mod matrix;
pub mod nginx;
pub mod openapi;
pub mod overload;
pub mod problems;
pub mod refusals;
pub mod resource_polls;
pub mod room;
pub mod shares;
pub mod tls;
pub mod told_why;
