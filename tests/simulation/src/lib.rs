//! The real engine on a simulated world: one thread, a clock that moves only when nothing else can, and
//! a seed that decides who runs next, what the network does to each message, who dies and who stands
//! still. The same seed gives the same history, byte for byte.
//!
//! Real are the engine and the acts of the ledger. Simulated are time, tasks, the network between
//! clients, gateways, ledger, mint and blob store, and the disasters that befall those.

pub mod access;
pub mod client;
pub mod clocks;
pub mod faults;
pub mod gateways;
pub mod ledger;
pub mod mutants;
pub mod network;
pub mod recorder;
pub mod run;
pub mod runtime;
pub mod seeds;
pub mod stores;
pub mod stories;
pub mod world;
