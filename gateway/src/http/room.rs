//! What there is room for behind one door: bytes of bodies, calls that wait, uploads, queries, places in line.

use fencegate_access::Quota;

use super::budget::Budget;
use super::long_calls::LongCalls;
use super::peers::{Failures, Places, Shares, Turns};
use super::state::Limits;
use crate::engine::QUERIES_MAX;

/// The part of a budget of bytes that one principal or peer may have, and the part of all bodies that only JSON bodies have.
const BYTES_SHARE: usize = 8;
/// The part of uploads and queries that one principal or peer may have.
const SHARE: usize = 4;
/// More than one read of a socket brings: a body may be told to be too large only once so much more of it is there.
const ONE_READ: usize = 64 * 1024;

/// The room, all of it shared by the requests of one door.
pub struct Room {
    /// Bytes of bodies that are objects, or go to upstreams.
    pub bodies: Budget,
    /// Bytes of JSON bodies: payloads that stall keep nobody from a lock.
    pub json: Budget,
    /// How many bytes of bodies may belong to commits whose uploads go on.
    pub kept_bodies: Budget,
    /// Calls that wait.
    pub long_calls: LongCalls,
    /// Halves of uploads of each; how many there are in all the engine knows.
    pub uploads: Shares,
    /// Queries of the ledger by each.
    pub queries: Turns,
    /// Places in line of each.
    pub places: Places,
    /// Credentials that were nobody's, by peer.
    pub failures: Failures,
}

impl Room {
    /// Room for bodies of so many bytes, a share of that many uploads, and calls on the connections of the limits.
    ///
    /// Whatever the settings, one body that is within its limits fits into the share of whoever sends no other.
    pub fn new(limits: &Limits, bodies_bytes_max: usize, uploads_max: usize) -> Self {
        let json = bodies_bytes_max / BYTES_SHARE;
        let bodies = bodies_bytes_max - json;
        let share = |bytes: usize, one: usize| (bytes / BYTES_SHARE).max(one + ONE_READ);
        Self {
            bodies: Budget::new(bodies, share(bodies_bytes_max, limits.inline_bytes_max)),
            json: Budget::new(json, share(json, limits.json_bytes_max)),
            kept_bodies: Budget::new(bodies_bytes_max / 2, usize::MAX),
            long_calls: LongCalls::among(limits.connections_max),
            uploads: Shares::in_parts(Quota::Uploads, (uploads_max / SHARE).max(1), 2),
            queries: Turns::of(Quota::Queries, (QUERIES_MAX / SHARE).max(1)),
            places: Places::default(),
            failures: Failures::default(),
        }
    }
}
