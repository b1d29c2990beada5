//! Where the gateway listens beside its one address, under which names it is reached, and through whom.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name or address of a host as it stands in a `Host` header, without its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostName {
    /// An address; in a header in brackets, if it is one of IPv6.
    Address(IpAddr),
    /// A name, in lower case.
    Name(String),
}

impl HostName {
    /// Reads what stands in a header before the port.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(bare) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return bare.parse::<Ipv6Addr>().ok().map(|ip| Self::Address(ip.into()));
        }
        if let Ok(ip) = text.parse::<std::net::Ipv4Addr>() {
            return Some(Self::Address(ip.into()));
        }
        let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let name = !text.is_empty() && text.len() <= 253 && text.chars().all(good);
        name.then(|| Self::Name(text.to_ascii_lowercase()))
    }

    /// Whether only this machine is reached so.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Address(ip) => ip.is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }
}

impl Serialize for HostName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Address(ip) => to.collect_str(ip),
            Self::Name(name) => to.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bare = text.parse::<Ipv6Addr>().ok().map(|ip| Self::Address(ip.into()));
        bare.or_else(|| Self::parse(&text)).ok_or_else(|| {
            let such = "the name or address of a host such as gate.example.com, without a port";
            serde::de::Error::custom(format!("{text:?} is not {such}"))
        })
    }
}

/// An address, or a Unix socket, that is listened to for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminAddress {
    /// An address and port.
    Tcp(SocketAddr),
    /// The path of a socket.
    Unix(PathBuf),
}

/// The longest path of a Unix socket in bytes, on Linux: `sun_path` without its end.
pub(super) const SOCKET_PATH_MAX: usize = 107;

impl AdminAddress {
    /// The socket at this path; none if no socket can have it.
    pub(super) fn at(path: PathBuf) -> Option<Self> {
        (path.as_os_str().len() <= SOCKET_PATH_MAX && path.to_str().is_some())
            .then_some(Self::Unix(path))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            let such = "an IP address and port such as 127.0.0.1:8081, or a socket such as unix:/run/gate.sock";
            return text.parse().map(Self::Tcp).map_err(|_| format!("{text:?} is not {such}"));
        };
        if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
            return Err(format!(
                "{text:?} does not name a socket by its whole path, such as unix:/run/gate.sock"
            ));
        }
        if path.len() > SOCKET_PATH_MAX {
            return Err(format!(
                "{text:?}: the path of a socket has at most {SOCKET_PATH_MAX} bytes, and this one has {}",
                path.len()
            ));
        }
        Ok(Self::Unix(path.into()))
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Serialize for AdminAddress {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AdminAddress {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// Addresses that belong together: one, or all that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(pub IpNet);

impl Network {
    fn parse(text: &str) -> Result<Self, String> {
        let one = || text.parse::<IpAddr>().map(IpNet::from).ok();
        let such = "an address such as 10.0.0.7, or a network such as 10.0.0.0/8";
        let network =
            text.parse().ok().or_else(one).ok_or_else(|| format!("{text:?} is not {such}"))?;
        if network != network.trunc() {
            let meant = network.trunc();
            return Err(format!("{text:?} has bits beyond its prefix; the network is {meant}"));
        }
        match network {
            IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some() => {
                Err(format!("{text:?}: write addresses of IPv4 as such"))
            }
            _ => Ok(Self(network)),
        }
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_addresses_are_checked() {
        for good in ["127.0.0.1:8081", "[::1]:0", "unix:/run/gate.sock"] {
            assert_eq!(AdminAddress::parse(good).unwrap().to_string(), good);
        }
        let long = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1));
        assert!(AdminAddress::parse(&long(SOCKET_PATH_MAX)).is_ok());
        let why = AdminAddress::parse(&long(SOCKET_PATH_MAX + 1)).unwrap_err();
        assert!(why.contains("at most 107 bytes, and this one has 108"), "{why}");
        for bad in [
            "",
            "localhost:1",
            "127.0.0.1",
            "unix:",
            "unix:gate.sock",
            "unix:/run/",
            "/run/gate.sock",
        ] {
            assert!(AdminAddress::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn networks_are_checked() {
        for (text, shown) in [
            ("10.0.0.7", "10.0.0.7/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(Network::parse(text).unwrap().0.to_string(), shown);
        }
        for bad in ["", "10.0.0.7/8", "10.0.0.0/33", "gate", "10.0.0.0:80", "::ffff:10.0.0.0/104"] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
    }
}
