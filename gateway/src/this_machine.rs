//! Which hosts are this machine: nothing that is sent there leaves it.

use std::net::IpAddr;

/// Whether a host is this machine, by the name `localhost`, a loopback address, with brackets or without, or the folder of
/// a socket.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    host == "localhost" || host.starts_with('/') || host.parse().is_ok_and(loopback)
}
