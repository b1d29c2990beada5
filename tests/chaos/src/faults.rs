//! The menu of faults: what can go wrong, what it is about, and what it takes of the machine.

use std::fmt;

use clap::ValueEnum;
use fence_tests::disk::Disk;
use serde::Serialize;

use crate::clock;

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A gateway stands still
    GatewayStop,
    /// A gateway is killed
    GatewayKill,
    /// The wall clock of a gateway is off by a minute, an hour or a year
    ClockShifted,
    /// The wall clocks of all client processes are
    ClientClocks,
    /// The wall clock of Postgres is
    PostgresClock,
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
    /// An older copy of the files of Postgres is put back in their place
    CopyPutBack,
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
            // Not beside a gateway that is killed: whoever waits there when the clock goes back stays ahead in line until the
            // clock has caught up.
            Self::GatewayStop | Self::GatewayKill | Self::ClockShifted | Self::PostgresClock => {
                Part::Gateway
            }
            Self::ClientStop
            | Self::ClientClocks
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
            | Self::BothRestored
            | Self::CopyPutBack => Part::All,
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
            | Self::BothRestored
            | Self::CopyPutBack
            | Self::PostgresClock => !to_patroni,
            _ => true,
        }
    }

    /// Tells faults of runs about clocks alone.
    pub fn is_of_clocks(self) -> bool {
        self == Self::PostgresClock
    }

    /// Why it cannot be had on this machine, if so.
    pub fn unavailable(self) -> Option<&'static str> {
        match self {
            Self::DiskFull if !Disk::is_available() => {
                Some("it takes a disk of its own, which only root can mount")
            }
            Self::ClockShifted | Self::ClientClocks | Self::PostgresClock
                if clock::shifter().is_none() =>
            {
                Some("it takes libfaketime: install the package libfaketime")
            }
            _ => None,
        }
    }
}
