//! Tests of the checkers: by hand, over random histories, against other searches, and of the tool.

mod brute;
mod build;
mod hand;
mod linear;
mod mutations;
mod random;
mod tiny;
mod tool;
