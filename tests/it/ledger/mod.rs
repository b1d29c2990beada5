//! The ledgers: one conformance suite for all, and what is special about Postgres.

pub mod act_files;
pub mod act_sets;
pub mod beside_lists;
pub mod conformance;
pub mod frozen;
pub mod guard;
pub mod guard_tables;
pub mod history;
pub mod kept;
pub mod plans;
pub mod poolers;
pub mod roles;
pub mod rule_table;
pub mod sql_mutants;
