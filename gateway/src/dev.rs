//! `fencegate dev`: says where it is on standard output, and ends when its standard input does.

use std::io::{self, IsTerminal as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Context as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::wiring;

/// Runs a gateway in memory until one of the two is cancelled, or standard input ends. Prints one line when it is ready.
pub(crate) async fn run(
    config: Config,
    rules: Option<String>,
    (soft, hard): (CancellationToken, CancellationToken),
    print: fn(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    stop_with_input(soft.clone())?;
    let scheme = if config.tls_cert_file.is_some() { "https" } else { "http" };
    let ready = |address| {
        let line = json!({ "url": url(scheme, address), "pid": std::process::id() });
        print(&format!("{line}\n"))
    };
    wiring::dev(config, rules, (soft, hard), ready).await
}

/// Stops when whoever started this process has closed its input, be it by ending itself. Nobody types an end into a
/// terminal, and who reads from one in the background is stopped by the system.
///
/// A thread of its own, since nothing ends a read.
fn stop_with_input(soft: CancellationToken) -> anyhow::Result<()> {
    let input = io::stdin();
    if input.is_terminal() {
        return Ok(());
    }
    let wait = move || {
        // What comes is nobody's: only the end counts, and an error is one.
        let _ended = io::copy(&mut input.lock(), &mut io::sink());
        soft.cancel();
    };
    let thread = std::thread::Builder::new().name("input".into()).spawn(wait);
    thread.map(drop).context("cannot watch standard input")
}

/// Where a client on this machine reaches it.
fn url(scheme: &str, mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        match address {
            SocketAddr::V4(_) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        }
    }
    format!("{scheme}://{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_one_that_a_client_can_use() {
        for (address, expected) in [
            ("127.0.0.1:1234", "http://127.0.0.1:1234"),
            ("[::1]:1234", "http://[::1]:1234"),
            ("0.0.0.0:1234", "http://127.0.0.1:1234"),
            ("[::]:1234", "http://[::1]:1234"),
        ] {
            assert_eq!(url("http", address.parse().unwrap()), expected);
        }
    }
}
