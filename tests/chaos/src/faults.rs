//! The menu of faults: what can go wrong, what it is about, and what it takes of the machine.

use std::fmt;

use clap::ValueEnum;
use fence_tests::disk::Disk;
use serde::Serialize;

use crate::site::clock_shifter;

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A gateway stands still
    GatewayStop,
    /// A gateway is killed
    GatewayKill,
    /// The wall clock of a gateway is off by up to an hour
    ClockShifted,
    /// Uploads and replaced blobs are deleted without any waiting times
    SweeperAtZero,
    /// A client process stands still for longer than its leases last
    ClientStop,
    /// A client process is killed
    ClientKill,
    /// A member of etcd stands still
    EtcdStop,
    /// A member of etcd is killed
    EtcdKill,
    /// More call a gateway, as fast as they are answered, than it can serve
    Overload,
    /// More wait at a gateway than it lets wait
    FullLine,
    /// Holders send large payloads to a gateway next to not at all
    Dawdlers,
    /// Etcd is restored from an old snapshot
    EtcdRestored,
    /// Etcd loses everything
    EtcdWiped,
    /// Postgres stands still
    PostgresStop,
    /// Postgres is killed
    PostgresKill,
    /// The connections to Postgres are ended
    BackendsTerminated,
    /// One process of Postgres that serves a gateway stands still
    BackendStop,
    /// The disk under Postgres syncs slowly
    DiskSlow,
    /// The disk under Postgres is full
    DiskFull,
    /// The standby stands still
    StandbyStop,
    /// The standby is killed
    StandbyKill,
    /// Postgres is lost, and a standby takes over that has not seen its last writes
    StandbyPromoted,
    /// The same, and etcd is restored from an old snapshot before anybody has seen the standby
    BothRestored,
    /// Patroni hands over to another node in good order
    PatroniSwitchover,
    /// Patroni restarts the primary
    PatroniRestart,
    /// The node of the primary is killed, its Patroni too
    PatroniKill,
    /// The store stands still
    StoreStop,
    /// The store is killed
    StoreKill,
    /// What goes over an edge is slow
    EdgeSlow,
    /// An edge keeps its connections and lets nothing through
    EdgeHalfOpen,
    /// An edge lets nothing through one way
    EdgeOneWay,
    /// The connections of an edge are reset, in the midst of what they carry
    EdgeReset,
    /// An edge takes no connections
    EdgeRefused,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// What a fault is about, so that two at a time are about different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A gateway.
    Gateway,
    /// The clients.
    Clients,
    /// Etcd.
    Etcd,
    /// Postgres or its standby.
    Postgres,
    /// The store.
    Store,
    /// An edge.
    Edge,
    /// All of it: nothing else goes wrong meanwhile.
    All,
}

impl Fault {
    /// What it is about.
    pub fn part(self) -> Part {
        match self {
            Self::GatewayStop | Self::GatewayKill | Self::ClockShifted => Part::Gateway,
            Self::ClientStop
            | Self::ClientKill
            | Self::Overload
            | Self::FullLine
            | Self::Dawdlers => Part::Clients,
            Self::EtcdStop | Self::EtcdKill => Part::Etcd,
            Self::PostgresStop
            | Self::PostgresKill
            | Self::BackendsTerminated
            | Self::BackendStop
            | Self::DiskSlow
            | Self::StandbyStop
            | Self::StandbyKill
            | Self::PatroniSwitchover
            | Self::PatroniRestart
            | Self::PatroniKill => Part::Postgres,
            Self::StoreStop | Self::StoreKill => Part::Store,
            Self::EdgeSlow
            | Self::EdgeHalfOpen
            | Self::EdgeOneWay
            | Self::EdgeReset
            | Self::EdgeRefused => Part::Edge,
            Self::SweeperAtZero
            | Self::EtcdRestored
            | Self::EtcdWiped
            | Self::DiskFull
            | Self::StandbyPromoted
            | Self::BothRestored => Part::All,
        }
    }

    /// Whether it is among the faults of a run in which Patroni runs Postgres, or does not. A run with Patroni leaves out
    /// what Patroni itself would react to, such as a primary that was stopped by hand.
    pub fn happens(self, to_patroni: bool) -> bool {
        match self {
            Self::PatroniSwitchover | Self::PatroniRestart | Self::PatroniKill => to_patroni,
            Self::PostgresStop
            | Self::PostgresKill
            | Self::DiskFull
            | Self::StandbyStop
            | Self::StandbyKill
            | Self::StandbyPromoted
            | Self::BothRestored => !to_patroni,
            _ => true,
        }
    }

    /// Why it cannot be had on this machine, if so.
    pub fn unavailable(self) -> Option<&'static str> {
        match self {
            Self::DiskFull if !Disk::is_available() => {
                Some("it takes a disk of its own, which only root can mount")
            }
            Self::ClockShifted if clock_shifter().is_none() => {
                Some("it takes libfaketime: install the package libfaketime")
            }
            _ => None,
        }
    }
}
