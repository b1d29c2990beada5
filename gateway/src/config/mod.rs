//! The settings of the gateway: defaults, then a file, then the environment, then flags.

mod backends;
mod check;
mod dev;
mod flags;
mod fronting;
mod listening;
mod load;
mod names;
mod postgres_url;
mod s3;
mod secret;
mod settings;
mod show;
mod table;
#[cfg(test)]
mod tests;
mod upstreams;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use flags::Flags;
pub use fronting::{Credentials, Guarantee, Pattern, ResourceForm};
pub use listening::{AdminAddress, HostName, Network};
pub use s3::{S3Anonymous, S3Once, S3Root};
pub use secret::{PostgresUrl, Secret};
pub use settings::{Config, SETTINGS};
pub use table::{Kind, Setting};
pub use upstreams::{Upstream, is_upstream_name};

use crate::blobs::BlobsUrl;

/// The largest payload that the ledger takes, whatever is configured.
pub const INLINE_BYTES_LIMIT: u64 = 1024 * 1024;
/// The largest payload that any store takes: 5 TiB, as S3 does.
pub const OBJECT_BYTES_LIMIT: u64 = 5 << 40;

/// A configuration that cannot be used, and where its trouble lies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    /// Settings that cannot be used with what was found elsewhere.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Who re-fences a Postgres that may have lost commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum RefenceMode {
    /// Any gateway that notices.
    Auto,
    /// An operator, with `fencegate refence`.
    Manual,
}

/// Whether a failover of Postgres may lose what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Failover {
    /// For all that is known: all tokens are void after it.
    Lossy,
    /// Never: commits wait for a standby, and no other is promoted, or the same disk is started again.
    Lossless,
}

impl Failover {
    /// The word in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lossy => "lossy",
            Self::Lossless => "lossless",
        }
    }
}

/// Whether writers must name their lock beside its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum RequireLockId {
    /// While others than this machine's own processes can reach the gateway.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Whether and where operators have a page to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Ui {
    /// At each address of `admin_listen`; without one at `listen`, while that is a loopback address.
    Auto,
    /// The same, whatever address `listen` is.
    On,
    /// As `on`, but without buttons.
    Readonly,
    /// Nowhere.
    Off,
}

/// Who secures the connections of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum TlsBy {
    /// The gateway, if it has a certificate.
    Own,
    /// The trusted proxies before it.
    Proxy,
}

/// Whether callers must have a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// They may: another credential, or none, is as good to open a connection.
    Optional,
    /// They must: a handshake without one fails.
    Required,
}

impl Config {
    /// What is allowed and yet worth a second thought.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.is_local() && self.open_to_network {
            let open: Vec<String> =
                self.addresses().filter(is_open).map(|at| at.to_string()).collect();
            warnings.push(format!(
                "whoever reaches {} can take and break any lock and read any object: open_to_network is set",
                open.join(" or ")
            ));
        }
        warnings.extend(
            self.insecure().into_iter().map(|(_, why)| format!("insecure_backends: {why}")),
        );
        warnings.extend(self.upstreams.iter().filter_map(Upstream::warning));
        warnings
    }

    /// Whether only this machine's own processes reach the gateway.
    pub fn is_local(&self) -> bool {
        !self.addresses().any(|address| is_open(&address))
    }

    /// Whether nobody but this machine is meant to reach the gateway: not through a proxy on it either.
    pub fn is_private(&self) -> bool {
        self.is_local() && self.server_names.is_empty() && self.trusted_proxies.is_empty()
    }

    /// All addresses that are listened to.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let admin = self.admin_listen.iter().filter_map(|at| match at {
            AdminAddress::Tcp(address) => Some(*address),
            AdminAddress::Unix(_) => None,
        });
        std::iter::once(self.listen).chain(admin).chain(self.s3_listen)
    }

    /// Where large payloads go.
    pub fn blobs_url(&self) -> BlobsUrl {
        let folder = || {
            let folder = self.data_dir.join("blobs");
            BlobsUrl::Folder(std::path::absolute(&folder).unwrap_or(folder))
        };
        self.blobs.clone().unwrap_or_else(folder)
    }

    /// Whether others than this machine may reach the gateway as far as the settings go: it needs rules of access
    /// beside them.
    pub fn needs_rules(&self) -> bool {
        !self.is_local() && !self.open_to_network
    }

    /// Whether what callers send is secured on its way.
    fn is_secured(&self) -> bool {
        self.tls == TlsBy::Proxy || self.tls_cert_file.is_some()
    }

    /// Whether a write without `X-Lock-Id` is refused: a token is a running number that others can guess,
    /// an id is not. With rules of access a token is of no use to others.
    pub fn requires_lock_id(&self) -> bool {
        match self.require_lock_id {
            RequireLockId::Auto => !self.is_local() && self.open_to_network,
            RequireLockId::On => true,
            RequireLockId::Off => false,
        }
    }

    /// Whether operators have their page at the addresses of `admin_listen`.
    pub fn has_admin_page(&self) -> bool {
        self.ui != Ui::Off
    }

    /// Whether they have it at `listen`: only where `admin_listen` has no address that a browser reaches.
    pub fn has_main_page(&self) -> bool {
        let has_another = self.admin_listen.iter().any(|at| matches!(at, AdminAddress::Tcp(_)));
        match self.ui {
            Ui::Auto => !has_another && !is_open(&self.listen),
            Ui::On | Ui::Readonly => !has_another,
            Ui::Off => false,
        }
    }

    /// Whether the gateway works on Postgres and etcd, so that several may run side by side.
    pub fn is_shared(&self) -> bool {
        self.postgres.is_some()
    }
}

/// Whether others than this machine reach an address.
fn is_open(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}
