//! The paths that are measured, and what is wanted of each.

use clap::ValueEnum;
use serde::Serialize;

/// A path through the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Fenced 1 KiB PUT, 64 connections, distinct resources, Postgres; pgbench, 64 clients
    Put,
    /// The same as our clients send it: with id of the lock, key, number and digest; plain puts of the same gateway
    PutClient,
    /// Fenced 1 KiB PUT, 64 connections, one resource; pgbench, 64 clients on one row
    PutOne,
    /// Fenced 1 KiB PUT, 1 connection; pgbench, 1 client
    PutAlone,
    /// Fenced 1 KiB PUT on the embedded default, 64 connections; Redis with a script, synced
    PutEmbedded,
    /// Acquire and release, 64 clients, etcd and Postgres; etcd's own lock API
    Lock,
    /// The same, 1 client; etcd's own lock API
    LockAlone,
    /// GET 1 KiB, 64 connections, Postgres; pgbench SELECT, 64 clients
    Get,
    /// 8 MiB PUT to S3, 4 connections; the same PUT direct
    Large,
    /// Good writes while 10 times as many stale ones are refused; good writes alone
    Goodput,
    /// Good writes beside 1,500 who repeat stale ones as fast as they are answered, half with keys; good writes alone
    Zombies,
    /// Fenced 1 KiB PUT, 16 connections, any of 10,000 resources of a ledger of --resources; a ledger that has no others
    ManyResources,
    /// From a release to the answer of the next waiter, --waiters in line for that resource; 10 in line
    HandOver,
    /// An empty answer of the same HTTP server, 64 connections: the ceiling, and the load generator's own cost
    Ceiling,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Answers in a second: more is better.
    Throughput,
    /// The median time of an answer: less is better.
    P50,
}

impl Path {
    /// What is compared, and the ratio that is wanted: at least of throughput, at most of p50.
    pub fn wanted(self) -> Option<(Figure, f64)> {
        match self {
            Self::Put => Some((Figure::Throughput, 1.0)),
            Self::PutClient => Some((Figure::Throughput, 0.85)),
            Self::PutOne => Some((Figure::Throughput, 2.0)),
            Self::PutAlone => Some((Figure::P50, 2.0)),
            Self::PutEmbedded => Some((Figure::Throughput, 0.5)),
            Self::Lock => Some((Figure::Throughput, 10.0)),
            Self::LockAlone => Some((Figure::P50, 1.0)),
            Self::Get => Some((Figure::Throughput, 0.7)),
            Self::Large => Some((Figure::Throughput, 0.8)),
            Self::Goodput => Some((Figure::Throughput, 0.9)),
            Self::Zombies => Some((Figure::P50, 1.5)),
            Self::ManyResources => Some((Figure::P50, 1.2)),
            Self::HandOver => Some((Figure::P50, 2.0)),
            Self::Ceiling => None,
        }
    }

    /// What it is called on the command line, in the table and in a record.
    pub fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// What is measured, and what it is compared with.
    pub fn about(self) -> (String, String) {
        let help = self.to_possible_value().and_then(|value| Some(value.get_help()?.to_string()));
        let help = help.unwrap_or_default();
        let (ours, rival) = help.split_once("; ").unwrap_or((&help, ""));
        (ours.to_owned(), rival.to_owned())
    }
}
