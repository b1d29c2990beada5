//! Who counts as one peer, and what one peer may hold at a time, so that nobody keeps everybody else out.

mod places;
mod shares;
mod turns;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ipnet::IpNet;

use super::serve::Ends;

pub use places::{PLACES_MAX, Place, Places};
pub use shares::{Held, Shares};
pub use turns::{Turn, Turns};

/// What counts as one peer: an address, or the 64 bits of an IPv6 address that one subscriber has to themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl Peer {
    /// The peer behind an address; `None` for this machine itself, whose processes share one.
    pub fn of(address: IpAddr) -> Option<Self> {
        let address = address.to_canonical();
        if address.is_loopback() {
            return None;
        }
        Some(Self(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (!0 << 64)).into(),
        }))
    }
}

/// Peers that pass on what others send, as the settings name them.
#[derive(Debug, Clone, Default)]
pub struct Proxies(Arc<[IpNet]>);

impl Proxies {
    /// Those of these networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(networks.into_iter().collect())
    }

    /// Whether an address is one of theirs.
    pub fn have(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Against whose shares a request counts, for handlers; `None` for nobody's.
pub struct Counted(pub Option<Peer>);

impl Counted {
    /// As the connection tells.
    pub fn by(extensions: &axum::http::Extensions) -> Option<Peer> {
        extensions.get::<Ends>().and_then(|ends| ends.counted)
    }
}

impl<S: Sync> FromRequestParts<S> for Counted {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(Self::by(&parts.extensions)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Option<Peer> {
        Peer::of(address.parse().unwrap())
    }

    #[test]
    fn a_subscriber_is_one_peer_and_this_machine_is_none() {
        for local in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(peer(local), None, "{local}");
        }
        assert_eq!(peer("::ffff:10.0.0.9"), peer("10.0.0.9"));
        assert_ne!(peer("10.0.0.9"), peer("10.0.0.8"));
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
    }

    #[test]
    fn proxies_are_known_by_address_and_by_network() {
        let networks = ["10.1.0.0/16", "192.0.2.7/32", "2001:db8::/32"];
        let proxies = Proxies::new(networks.map(|network| network.parse().unwrap()));
        for (address, known) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:5::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(proxies.have(address.parse().unwrap()), known, "{address}");
        }
        assert!(!Proxies::default().have("10.1.2.3".parse().unwrap()));
    }
}
