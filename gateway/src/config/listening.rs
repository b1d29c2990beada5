//! Names under which the gateway is reached.

use std::net::{IpAddr, Ipv6Addr};

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
