//! Scripted gateways that speak real TCP, drivers of client libraries, and the scenarios that bring both together:
//! what a client has to send, and what it has to tell its caller, whatever the network and the gateway do.

pub mod driver;
pub mod mutants;
pub mod run;
pub mod scenarios;
pub mod script;
pub mod server;
