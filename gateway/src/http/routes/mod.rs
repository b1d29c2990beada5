//! The calls, one file per resource of the API. A handler parses, asks the engine once, answers.

pub mod audit;
pub mod feed;
pub mod fences;
pub mod health;
pub mod locks;
pub mod objects;
pub mod operations;
pub mod operators;
mod puts;
pub mod rejections;
pub mod resources;
mod views;
pub mod watching;
pub mod writes;
