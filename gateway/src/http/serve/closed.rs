//! Which connections the gateway closed by itself, and why.

/// Connections that were closed by the gateway.
const CLOSED: &str = "fencegate_connections_closed_total";

/// Why a connection was closed.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) enum Reason {
    /// Its peer has as many as one may.
    PeerShare,
    /// A connection from elsewhere, where proxies secure them.
    NotProxied,
    /// It sent nothing.
    NoRequest,
    /// Heads that had not ended took too much memory together.
    Heads,
    /// A request line or its headers took too long.
    SlowHead,
    /// An answer was not taken, or too slowly.
    SlowReader,
    /// It was not secured, where it must be.
    Handshake,
    /// The certificate that it was opened with has ended, or was revoked.
    Certificate,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::PeerShare => "peer_share",
            Self::NotProxied => "not_proxied",
            Self::NoRequest => "no_request",
            Self::Heads => "heads",
            Self::SlowHead => "slow_head",
            Self::SlowReader => "slow_reader",
            Self::Handshake => "handshake",
            Self::Certificate => "certificate",
        }
    }
}

/// Counts a connection that is closed.
pub(in crate::http) fn count_closed(reason: Reason) {
    metrics::counter!(CLOSED, "reason" => reason.as_str()).increment(1);
}

/// Tells the recorder what the metric means.
pub(super) fn describe() {
    metrics::describe_counter!(
        CLOSED,
        "Connections closed by the gateway: one peer had its share of them (peer_share), one did not come through \
         trusted_proxies, which secure them (not_proxied), no request came \
         (no_request), a head took too long (slow_head), heads took too much memory together \
         (heads), an answer was taken too slowly (slow_reader), TLS did not begin as it must (handshake), or the \
         client's certificate ended or was revoked (certificate)"
    );
}
