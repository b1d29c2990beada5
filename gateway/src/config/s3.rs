//! The settings of S3: where it is spoken, what callers are told of that, and what their keys are derived from.

use std::fmt;
use std::net::SocketAddr;

use fencegate_s3::key::Root;
use reqwest::Url;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::{Config, HostName, TlsBy};

/// How many roots may be good at a time: one, and the next one while it is changed.
const ROOTS_MAX: usize = 2;
/// How many digits of a root's digest tell it from others.
const DIGEST_DIGITS: usize = 16;

/// What may be done without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum S3Anonymous {
    /// Nothing.
    None,
    /// To read everything.
    Read,
}

/// Which calls are done once, however often they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum S3Once {
    /// All whose attempts have an id in common.
    All,
    /// Those of them that have a condition.
    Conditional,
}

/// What access keys are derived from, and perhaps what they were derived from before. Never shown.
#[derive(Clone)]
pub struct S3Root(Vec<Root>);

impl S3Root {
    /// Text for a gateway beside Postgres that has none.
    pub const WANTED: &str = "beside postgres it needs s3_root as well, alike on all gateways: put it into the file of the \
                              settings or FENCEGATE_S3_ROOT. `openssl rand -hex 32` makes one for a new ledger. Where an \
                              older version left one in the ledger, it is what this prints to its owner: SELECT \
                              encode(root, 'hex') FROM fencegate.s3_root";
    /// Text for a gateway with another root than that which stands in the ledger in clear.
    pub const IN_CLEAR: &str = "an older version left the root of S3 keys in the ledger; keys that were made of it need it \
                                as s3_root, and this prints it to the owner of the ledger: SELECT encode(root, 'hex') \
                                FROM fencegate.s3_root";

    /// Reads one root, or two between a comma.
    ///
    /// # Errors
    /// What it has to be. Never a part of it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let roots: Result<Vec<Root>, _> =
            text.split(',').map(|root| Root::parse(root.trim())).collect();
        match roots {
            Ok(roots) if roots.len() <= ROOTS_MAX => Ok(Self(roots)),
            _ => Err(
                "it is not 64 hexadecimal digits in lower case, nor two such separated by a comma",
            ),
        }
    }

    /// The roots, the one first that makes keys.
    pub fn roots(&self) -> &[Root] {
        &self.0
    }
}

impl From<Root> for S3Root {
    fn from(root: Root) -> Self {
        Self(vec![root])
    }
}

impl PartialEq for S3Root {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl S3Root {
    /// What tells these roots from others, and nothing of them.
    pub fn fingerprint(&self) -> String {
        let one = |root: &Root| {
            let digest = Sha256::new_with_prefix("fencegate s3 root ").chain_update(root.reveal());
            hex::encode(digest.finalize())[..DIGEST_DIGITS].to_owned()
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Debug for S3Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for S3Root {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl<'de> Deserialize<'de> for S3Root {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

impl Config {
    /// What callers are told of where S3 is spoken, if it is, at this address.
    pub fn s3_endpoint_at(&self, address: SocketAddr) -> String {
        let scheme = if self.tls_cert_file.is_some() { "https" } else { "http" };
        let told = self.s3_endpoint.as_deref().map(|url| url.trim_end_matches('/').to_owned());
        told.unwrap_or_else(|| format!("{scheme}://{address}"))
    }

    /// The first setting of S3 that cannot be used, and why.
    pub(super) fn trouble_with_s3(&self) -> Option<(&'static str, String)> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=63).contains(&self.s3_region.len()) || !self.s3_region.bytes().all(plain) {
            return Some(("s3_region", "it has 1 to 63 of a-z, 0-9 and -".into()));
        }
        if let Some(url) = self.s3_endpoint.as_deref().filter(|url| !is_endpoint(url)) {
            let why =
                format!("{url:?} is not a URL such as https://s3.example.com, without a path");
            return Some(("s3_endpoint", why));
        }
        if let Some(HostName::Address(address)) = &self.s3_domain {
            let why = format!("{address} is an address: buckets have names below a name alone");
            return Some(("s3_domain", why));
        }
        let Some(address) = self.s3_listen else {
            let others = [
                ("s3_endpoint", self.s3_endpoint.is_some()),
                ("s3_domain", self.s3_domain.is_some()),
                ("s3_anonymous", self.s3_anonymous != S3Anonymous::None),
            ];
            let set = others.into_iter().find(|(_, is_set)| *is_set);
            return set.map(|(name, _)| (name, "it needs s3_listen as well".to_owned()));
        };
        if self.postgres.is_some() && self.s3_root.is_none() {
            return Some(("s3_listen", S3Root::WANTED.into()));
        }
        let by_proxy = self.tls == TlsBy::Proxy;
        if self.s3_endpoint.is_none() && (address.ip().is_unspecified() || by_proxy) {
            let why = "it needs s3_endpoint as well: where callers reach it";
            return Some(("s3_listen", why.into()));
        }
        None
    }
}

fn is_endpoint(text: &str) -> bool {
    let is_bare = |url: &Url| {
        url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
    };
    text.parse::<Url>().is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.password().is_none()
            && is_bare(&url)
    })
}
