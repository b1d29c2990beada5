//! Against whose shares a request counts, and what one principal or one peer may hold at a time, so that nobody keeps
//! everybody else out.

mod failures;
mod places;
mod shares;
mod turns;

use std::convert::Infallible;
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use fence_core::{ErrorCode, PrincipalName};
use fencegate_access::Quota;
use ipnet::IpNet;

use super::problem::Problem;
use super::serve::Ends;
use crate::engine::access::{Asks, Known};

pub use failures::Failures;
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

impl Display for Peer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
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

/// Against whose shares something counts; cheap to clone.
#[derive(Clone, Default)]
pub enum Counted {
    /// Nobody's: it comes from this machine, or through a proxy that the settings name.
    #[default]
    Nobody,
    /// Those of an address.
    Peer(Peer),
    /// Those of a principal, wherever it calls from, as its roles have them.
    Principal(Arc<Known>),
}

/// Who has a share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    Peer(Peer),
    Principal(PrincipalName),
}

/// Requests that were refused because their principal has its share already.
const RATE_LIMITED: &str = "fencegate_rate_limited_total";

/// Tells the recorder what the metric means.
pub fn describe() {
    metrics::describe_counter!(
        RATE_LIMITED,
        "Requests refused because their principal has its share of something already, by quota; or because their peer guesses"
    );
}

impl Counted {
    /// Of whoever asks, if it is known; else as the connection tells.
    pub fn by(extensions: &Extensions) -> Self {
        Self::of(extensions.get::<Asks>().and_then(Asks::known), extensions)
    }

    /// Of this caller, if it is known; else as the connection tells.
    pub fn of(known: Option<Arc<Known>>, extensions: &Extensions) -> Self {
        match known {
            Some(known) => Self::Principal(known),
            None => extensions.get::<Ends>().and_then(|ends| ends.counted).into(),
        }
    }

    fn holder(&self) -> Option<Holder> {
        match self {
            Self::Nobody => None,
            Self::Peer(peer) => Some(Holder::Peer(*peer)),
            Self::Principal(known) => Some(Holder::Principal(known.caller.name().clone())),
        }
    }

    /// How much of something it may hold, of which each has so much if nothing else is said; `None` for any.
    fn most(&self, quota: Option<Quota>, each: usize) -> Option<usize> {
        match self {
            Self::Nobody => None,
            Self::Peer(_) => Some(each),
            Self::Principal(known) => {
                let stated = quota.and_then(|quota| known.caller.quotas().get(quota));
                Some(stated.map_or(each, |amount| usize::try_from(amount).unwrap_or(usize::MAX)))
            }
        }
    }

    /// What is told whoever has its share of something already: a principal by a code of its own, since it alone is in
    /// the way.
    pub fn refused(&self, of: &'static str, what: &str) -> Problem {
        match self {
            Self::Principal(known) => {
                known.holdings.is_refused();
                rate_limited(of, format!("{what} of your principal: `{of}`"))
            }
            Self::Peer(_) | Self::Nobody => {
                Problem::new(ErrorCode::Overloaded, format!("{what} from your address"))
            }
        }
    }
}

/// Counts a refusal of this kind, and makes it.
pub fn rate_limited(of: &'static str, why: String) -> Problem {
    metrics::counter!(RATE_LIMITED, "limit" => of).increment(1);
    Problem::new(ErrorCode::RateLimited, why)
}

impl From<Option<Peer>> for Counted {
    fn from(peer: Option<Peer>) -> Self {
        peer.map_or(Self::Nobody, Self::Peer)
    }
}

impl<S: Sync> FromRequestParts<S> for Counted {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::by(&parts.extensions))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::engine::access::{Holdings, Rate};
    use crate::runtime::TokioClock;
    use fence_core::ports::{By, Clock};
    use fencegate_access::{Identity, Rules};
    use jiff::Timestamp;

    /// Two peers.
    pub(in crate::http) fn peers() -> [Counted; 2] {
        ["192.0.2.1", "192.0.2.2"].map(|ip| peer(ip).into())
    }

    /// The principals of a gateway.
    #[derive(Default)]
    pub(in crate::http) struct Principals(HashMap<String, Arc<Holdings>>);

    impl Principals {
        /// One whose one role says this beside what is needed.
        pub(in crate::http) fn caller(&mut self, name: &str, quotas: &str) -> Counted {
            let rules = format!(
                "[[roles]]\nname = \"r\"\nallow = [\"read\"]\nresources = [\"*\"]\n{quotas}\n\
                 [[principals]]\nname = \"{name}\"\nroles = [\"r\"]\nmatch = {{ unix_uid = 1 }}\n"
            );
            let rules = Rules::parse(&rules).expect("rules");
            let identity = Arc::new(Identity::Unix { uid: 1, gid: 1 });
            let caller = rules.caller(&identity, Timestamp::UNIX_EPOCH).expect("it");
            let clock: Arc<dyn Clock> = Arc::new(TokioClock::default());
            let rate = Arc::new(Rate::of(&caller, &clock));
            let holdings = Arc::clone(self.0.entry(name.to_owned()).or_default());
            Counted::Principal(Arc::new(Known {
                identity,
                caller,
                by: By::default(),
                keys: None,
                rate,
                holdings,
            }))
        }
    }

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
