//! The flags that set what the file and the environment can set too.

use std::path::PathBuf;

use figment::value::{Dict, Value};

use super::upstreams::from_pairs;
use super::{Failover, LogFormat, RefenceMode, RequireLockId};

/// Settings on the command line. Each wins over the environment, which wins over the file.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Flags {
    /// Read settings from this file [default: ./fencegate.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Listen on this address and port [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,

    /// Serve the same on this address and port, or on unix:/path, with room of its own for operators and health
    /// checks (repeatable)
    #[arg(long, value_name = "ADDR:PORT|unix:PATH,...", value_delimiter = ',')]
    pub admin_listen: Vec<String>,

    /// Also listen on an address that others than this machine reach: whoever does can take and break any
    /// lock and read any object
    #[arg(long)]
    pub open_to_network: bool,

    /// Be reached under this name or address too, for example gate.example.com; names of this machine
    /// itself such as localhost always work (repeatable)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub server_names: Vec<String>,

    /// Count connections from this address or network against no peer's share, and believe them where a request
    /// came from, for example 10.0.0.0/8 (repeatable)
    #[arg(long, value_name = "NETWORK,...", value_delimiter = ',')]
    pub trusted_proxies: Vec<String>,

    /// Keep the SQLite ledger and the embedded mint here [default: ./fencegate-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Keep the ledger in this Postgres instead; needs --etcd. Other users of this machine can see
    /// flags: a password is better kept in FENCEGATE_POSTGRES or the file
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,

    /// Number grants with this etcd cluster, members separated by commas; needs --postgres
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    pub etcd: Vec<String>,

    /// Begin all keys in etcd with this [default: /fencegate]
    #[arg(long, value_name = "PREFIX")]
    pub etcd_prefix: Option<String>,

    /// Reach Postgres and etcd over a network without TLS, or with TLS that is not verified
    #[arg(long)]
    pub insecure_backends: bool,

    /// Let gateways re-fence a Postgres that may have lost commits, or wait for `fencegate refence`
    /// [default: auto]
    #[arg(long, value_name = "HOW")]
    pub refence: Option<RefenceMode>,

    /// Declare that a failover of Postgres loses nothing that was acknowledged, so that tokens stay good where
    /// that is not contradicted [default: lossy]
    #[arg(long, value_name = "HOW")]
    pub failover: Option<Failover>,

    /// Refuse writes that do not name their lock beside its token; auto: while the gateway listens to
    /// others than this machine [default: auto]
    #[arg(long, value_name = "WHEN")]
    pub require_lock_id: Option<RequireLockId>,

    /// Front an HTTP service, for example name=crm,url=http://crm:8000,resource=/customers/{resource},
    /// resource_form=digits,guarantee=drained (repeatable); docs/config.md has all keys
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub upstream: Vec<String>,

    /// Export metrics of each resource whose name begins so, for example job: (repeatable)
    #[arg(long, value_name = "PREFIX")]
    pub metrics_prefix: Vec<String>,

    /// Let pages of this origin call the gateway, for example https://ops.example.com (repeatable)
    #[arg(long, value_name = "ORIGIN")]
    pub cors_origin: Vec<String>,

    /// Keep large payloads here: file:///folder, s3://bucket/prefix or az://container/prefix, with
    /// credentials from the environment [default: the folder blobs in the data directory]
    #[arg(long, value_name = "URL")]
    pub blobs: Option<String>,

    /// Keep payloads up to this many bytes in the ledger [default: 262144]
    #[arg(long, value_name = "BYTES")]
    pub inline_bytes_max: Option<u64>,

    /// Log this: a level, or directives such as info,fencegate=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,

    /// Write log lines for people or as JSON [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

impl Flags {
    /// The flags that were given, under the names of their settings.
    pub(super) fn values(&self) -> Dict {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|p| p.to_string_lossy().into_owned());
        let list = |list: &Vec<String>| (!list.is_empty()).then(|| Value::from(list.clone()));
        let upstreams: Vec<Value> = self.upstream.iter().map(|text| from_pairs(text)).collect();
        let upstreams = (!upstreams.is_empty()).then(|| Value::from(upstreams));
        let format = self.log_format.map(|format| match format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        });
        let refence = self.refence.map(|refence| match refence {
            RefenceMode::Auto => "auto",
            RefenceMode::Manual => "manual",
        });
        let require_lock_id = self.require_lock_id.map(|when| match when {
            RequireLockId::Auto => "auto",
            RequireLockId::On => "on",
            RequireLockId::Off => "off",
        });
        [
            ("listen", self.listen.clone().map(Value::from)),
            ("admin_listen", list(&self.admin_listen)),
            ("open_to_network", self.open_to_network.then(|| Value::from(true))),
            ("server_names", list(&self.server_names)),
            ("trusted_proxies", list(&self.trusted_proxies)),
            ("insecure_backends", self.insecure_backends.then(|| Value::from(true))),
            ("data_dir", path(&self.data_dir).map(Value::from)),
            ("postgres", self.postgres.clone().map(Value::from)),
            ("etcd", list(&self.etcd)),
            ("etcd_prefix", self.etcd_prefix.clone().map(Value::from)),
            ("refence", refence.map(Value::from)),
            ("failover", self.failover.map(|failover| Value::from(failover.as_str()))),
            ("require_lock_id", require_lock_id.map(Value::from)),
            ("upstreams", upstreams),
            ("metrics_prefix", list(&self.metrics_prefix)),
            ("cors_origin", list(&self.cors_origin)),
            ("blobs", self.blobs.clone().map(Value::from)),
            ("inline_bytes_max", self.inline_bytes_max.map(Value::from)),
            ("log", self.log.clone().map(Value::from)),
            ("log_format", format.map(Value::from)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
    }
}
