//! Locks over real HTTP: how they are taken, kept, waited for, handed over and given back.

pub mod azure_leases;
pub mod crowds;
pub mod fences;
pub mod lifetime;
pub mod lines;
pub mod lock_terms;
pub mod many_resources;
pub mod redis_story;
pub mod silent_gateways;
pub mod story;
pub mod tenants;
pub mod tokens;
pub mod two_gateways;
pub mod waiting;
