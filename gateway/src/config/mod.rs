//! The settings of the gateway: defaults, then a file, then the environment, then flags.

mod backends;
mod check;
mod dev;
mod flags;
mod fronting;
mod layers;
mod listening;
mod secret;
mod show;
#[cfg(test)]
mod tests;
mod upstreams;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::Figment;
use serde::{Deserialize, Deserializer, Serialize};

pub use flags::Flags;
pub use fronting::{Credentials, Guarantee, Pattern, ResourceForm};
pub use layers::SETTINGS;
pub use listening::{AdminAddress, HostName, Network};
pub use secret::{PostgresUrl, Secret};
pub use upstreams::{Upstream, is_upstream_name};

use crate::blobs::BlobsUrl;

/// The largest payload that the ledger takes, whatever is configured.
pub const INLINE_BYTES_LIMIT: u64 = 1024 * 1024;
/// The largest payload that any store takes: 5 TiB, as S3 does.
pub const OBJECT_BYTES_LIMIT: u64 = 5 << 40;
/// The file that is read if it exists and no other is named.
const DEFAULT_FILE: &str = "fencegate.toml";

/// A configuration that cannot be used, and where its trouble lies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// All settings, checked. `docs/config.md` explains each; a test fails if one is missing there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The address and port to listen on.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Addresses and Unix sockets behind which the same is served from a pool of its own.
    pub admin_listen: Vec<AdminAddress>,
    /// Whether others than this machine may be listened to.
    pub open_to_network: bool,
    /// Names under which the gateway is reached, beside those of this machine itself.
    pub server_names: Vec<HostName>,
    /// Who passes on what others send: counted against no share, and believed where a request came from.
    pub trusted_proxies: Vec<Network>,
    /// Where the SQLite ledger and the embedded mint live.
    pub data_dir: PathBuf,
    /// The Postgres ledger, instead of SQLite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub postgres: Option<PostgresUrl>,
    /// The members of the etcd mint, instead of the embedded one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub etcd: Vec<String>,
    /// What all keys in etcd begin with.
    pub etcd_prefix: String,
    /// The user to sign in to etcd with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_user: Option<String>,
    /// The password of that user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_password: Option<Secret>,
    /// Whose certificates to accept from etcd (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_ca_file: Option<PathBuf>,
    /// The gateway's certificate for etcd (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_cert_file: Option<PathBuf>,
    /// The key of that certificate (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_key_file: Option<PathBuf>,
    /// Whether Postgres and etcd may be reached over a network without TLS that is verified.
    pub insecure_backends: bool,
    /// Who re-fences a Postgres that may have lost commits.
    pub refence: RefenceMode,
    /// Whether a failover of Postgres may lose what was acknowledged.
    pub failover: Failover,
    /// Whether writers must name their lock beside its token.
    pub require_lock_id: RequireLockId,
    /// Where large payloads go; a folder in the data directory by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs: Option<BlobsUrl>,
    /// The largest payload that is kept in the ledger, in bytes.
    pub inline_bytes_max: u64,
    /// The largest payload of a put, in bytes.
    pub object_bytes_max: u64,
    /// How many payloads may be on their way to the blob store.
    pub uploads_max: usize,
    /// How long a payload may be on its way to the blob store.
    #[serde(with = "duration")]
    pub upload_timeout: Duration,
    /// How many bytes of a payload on its way to the blob store must come in each second.
    pub upload_rate_min: u64,
    /// How long a caller waits for the ledger or the mint.
    #[serde(with = "duration")]
    pub request_timeout: Duration,
    /// How long a start waits for a Postgres that is not there yet.
    #[serde(with = "duration")]
    pub wait_for_ledger: Duration,
    /// How many items wait in each queue before callers are turned away.
    pub queue_max: usize,
    /// How many callers may wait for one resource.
    pub waiters_max: usize,
    /// How many items go into one act of the ledger.
    pub batch_max: usize,
    /// How many batches of writes are under way at a time.
    pub committers: usize,
    /// How many connections are open at a time.
    pub connections_max: usize,
    /// How many bytes the bodies of all requests under way may take.
    pub bodies_bytes_max: usize,
    /// How long the body of a request may take.
    #[serde(with = "duration")]
    pub body_timeout: Duration,
    /// How long the body of a request may stall.
    #[serde(with = "duration")]
    pub body_idle_timeout: Duration,
    /// How long a stopping gateway goes on taking requests while `/readyz` says no.
    #[serde(with = "duration")]
    pub drain_delay: Duration,
    /// How long a stopping gateway waits for requests in flight.
    #[serde(with = "duration")]
    pub drain_timeout: Duration,
    /// How long idempotency keys are remembered.
    #[serde(with = "duration")]
    pub keys_kept: Duration,
    /// How long locks that have ended are remembered.
    #[serde(with = "duration")]
    pub ended_locks_kept: Duration,
    /// How long the ids are remembered of writes and locks that were told never to have been.
    #[serde(with = "duration")]
    pub buried_kept: Duration,
    /// How long replaced versions of objects stay readable.
    #[serde(with = "duration")]
    pub versions_kept: Duration,
    /// How long payloads in the blob store are kept that nobody has committed.
    #[serde(with = "duration")]
    pub uploads_kept: Duration,
    /// How long a replaced payload in the blob store stays for readers that have begun.
    #[serde(with = "duration")]
    pub reader_grace: Duration,
    /// How far back a failover or a restore may bring the ledger.
    #[serde(with = "duration")]
    pub rollback_horizon: Duration,
    /// How long after its first deletion garbage in the blob store is deleted again.
    #[serde(with = "duration")]
    pub redelete_after: Duration,
    /// How many refused writes are kept for the operator.
    pub rejections_max: i64,
    /// How often the ledger is tidied.
    #[serde(with = "duration")]
    pub sweep_interval: Duration,
    /// The HTTP services that are fronted.
    pub upstreams: Vec<Upstream>,
    /// Resources whose names begin so appear in the metrics one by one.
    pub metrics_prefix: Vec<String>,
    /// Origins whose pages may call the gateway.
    pub cors_origin: Vec<String>,
    /// What to log.
    pub log: String,
    /// How log lines look.
    pub log_format: LogFormat,
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

impl Default for Config {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(60 * 60);
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            admin_listen: Vec::new(),
            open_to_network: false,
            server_names: Vec::new(),
            trusted_proxies: Vec::new(),
            data_dir: "./fencegate-data".into(),
            postgres: None,
            etcd: Vec::new(),
            etcd_prefix: "/fencegate".into(),
            etcd_user: None,
            etcd_password: None,
            etcd_ca_file: None,
            etcd_cert_file: None,
            etcd_key_file: None,
            insecure_backends: false,
            refence: RefenceMode::Auto,
            failover: Failover::Lossy,
            require_lock_id: RequireLockId::Auto,
            blobs: None,
            inline_bytes_max: 256 * 1024,
            object_bytes_max: 64 << 30,
            uploads_max: 16,
            upload_timeout: HOUR,
            upload_rate_min: 16 * 1024,
            request_timeout: Duration::from_secs(4),
            wait_for_ledger: Duration::from_secs(60),
            queue_max: 4096,
            waiters_max: 10_000,
            batch_max: 64,
            committers: 1,
            connections_max: 10_000,
            bodies_bytes_max: 128 * 1024 * 1024,
            body_timeout: Duration::from_secs(60),
            body_idle_timeout: Duration::from_secs(10),
            drain_delay: Duration::from_millis(500),
            drain_timeout: Duration::from_secs(25),
            keys_kept: 7 * DAY,
            ended_locks_kept: DAY,
            buried_kept: DAY,
            versions_kept: Duration::ZERO,
            uploads_kept: 2 * HOUR,
            reader_grace: HOUR,
            rollback_horizon: DAY,
            redelete_after: HOUR,
            rejections_max: 100_000,
            sweep_interval: Duration::from_secs(10),
            upstreams: Vec::new(),
            metrics_prefix: Vec::new(),
            cors_origin: Vec::new(),
            log: "info".into(),
            log_format: LogFormat::Text,
        }
    }
}

impl Config {
    /// Loads the settings from the file, the environment and the flags of this process; also what there is
    /// to be warned of.
    pub fn load(flags: &Flags) -> Result<(Self, Vec<String>), ConfigError> {
        let env = layers::own_variables()?;
        let file = match layers::named_file(&env, flags) {
            Some(file) => Some(file),
            None => Path::new(DEFAULT_FILE).exists().then(|| DEFAULT_FILE.into()),
        };
        let mut warnings = layers::strangers(env.iter().map(|(name, _)| name.as_str()));
        let config = Self::load_from(file.as_deref(), env.into_iter(), flags)?;
        warnings.extend(config.warnings());
        Ok((config, warnings))
    }

    /// Loads the settings from what is given, and from nothing else.
    pub fn load_from(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        Self::of(&layers::over(Figment::new(), file, env, flags)?)
    }

    /// The settings that these layers come to, checked.
    fn of(figment: &Figment) -> Result<Self, ConfigError> {
        let mut config: Self = figment.extract().map_err(|error| layers::explain(&error))?;
        config.upstreams.iter_mut().for_each(Upstream::complete);
        config.check(figment)?;
        Ok(config)
    }

    /// What is allowed and yet worth a second thought.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.is_local() {
            let open: Vec<String> =
                self.addresses().filter(is_open).map(|at| at.to_string()).collect();
            warnings.push(format!(
                "whoever reaches {} can take and break any lock and read any object: there is no access \
                 control",
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
        std::iter::once(self.listen).chain(admin)
    }

    /// Where large payloads go.
    pub fn blobs_url(&self) -> BlobsUrl {
        let folder = || {
            let folder = self.data_dir.join("blobs");
            BlobsUrl::Folder(std::path::absolute(&folder).unwrap_or(folder))
        };
        self.blobs.clone().unwrap_or_else(folder)
    }

    /// Whether a write without `X-Lock-Id` is refused: a token is a running number that others can guess,
    /// an id is not.
    pub fn requires_lock_id(&self) -> bool {
        match self.require_lock_id {
            RequireLockId::Auto => !self.is_local(),
            RequireLockId::On => true,
            RequireLockId::Off => false,
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

/// Reads an address and port, with a text that shows what one looks like.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| {
        let such = "an IP address and port such as 127.0.0.1:8080 or [::1]:8080";
        serde::de::Error::custom(format!("{text:?} is not {such}"))
    })
}

/// Durations as text such as `500ms`, `30s` or `7days`.
mod duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*value))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        fence_core::lock::duration_text(from)
    }
}
