//! Commands, starts and stops, settings, logs and records, as an operator sees them.

pub mod access;
pub mod access_calls;
pub mod access_open;
pub mod access_stopped;
pub mod agreed;
pub mod asvs;
pub mod audit_places;
pub mod audit_tree;
pub mod clocks;
pub mod commands;
pub mod dev;
pub mod drill;
pub mod gauges;
pub mod hostile;
pub mod lifecycle;
pub mod log_lines;
pub mod memory;
pub mod operators;
pub mod own_time;
pub mod quotas;
pub mod records;
pub mod secrets;
pub mod starts;
pub mod status;
pub mod traces;
pub mod traces_lost;
