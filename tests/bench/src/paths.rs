//! The paths that are measured, and what is wanted of each.

use clap::ValueEnum;
use serde::Serialize;

use crate::needs::Need;

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

/// A figure's ratio to that of the rival: at least of throughput, at most of p50.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Bounds {
    /// The figure.
    pub figure: Figure,
    /// The goal.
    pub wanted: f64,
    /// The ratio past which something is broken. Ratios depend on the machine, so it lies at half of the worst that any
    /// has shown.
    pub broken: f64,
}

impl Path {
    /// The bounds of its ratio; none without a rival.
    pub fn bounds(self) -> Option<Bounds> {
        let rate = |wanted, broken| Bounds { figure: Figure::Throughput, wanted, broken };
        let p50 = |wanted, broken| Bounds { figure: Figure::P50, wanted, broken };
        match self {
            Self::Put => Some(rate(1.0, 0.38)),
            Self::PutClient => Some(rate(0.85, 0.3)),
            Self::PutOne => Some(rate(2.0, 4.0)),
            Self::PutAlone => Some(p50(2.0, 7.0)),
            Self::PutEmbedded => Some(rate(0.5, 0.16)),
            Self::Lock => Some(rate(10.0, 1.0)),
            Self::LockAlone => Some(p50(1.0, 2.6)),
            Self::Get => Some(rate(0.7, 0.17)),
            Self::Large => Some(rate(0.8, 0.5)),
            Self::Goodput => Some(rate(0.9, 0.5)),
            Self::Zombies => Some(p50(1.5, 2.4)),
            Self::ManyResources => Some(p50(1.2, 2.4)),
            Self::HandOver => Some(p50(2.0, 2.1)),
            Self::Ceiling => None,
        }
    }

    /// The programs that its measurement needs.
    pub fn needs(self) -> &'static [Need] {
        match self {
            Self::Ceiling => &[],
            Self::PutEmbedded => &[Need::Gateway],
            Self::Large => &[Need::Gateway, Need::Postgres, Need::Etcd, Need::S3],
            _ => &[Need::Gateway, Need::Postgres, Need::Etcd],
        }
    }

    /// The programs that its rival needs besides.
    pub fn needs_of_rival(self) -> &'static [Need] {
        match self {
            Self::Put | Self::PutOne | Self::PutAlone | Self::Get => &[Need::Pgbench],
            Self::PutEmbedded => &[Need::Redis],
            _ => &[],
        }
    }

    /// The name on the command line and in the table.
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
