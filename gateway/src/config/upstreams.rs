//! The settings of upstreams: a table each in the file, `key=value` pairs on the command line and in the
//! environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fence_core::ResourceName;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fronting::{Credentials, Guarantee, Pattern, ResourceForm};
use super::table::Form;

/// The longest name of an upstream, and the longest prefix of its resources.
const NAME_BYTES_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 128;
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An HTTP service that the gateway fronts. `docs/config.md` explains each setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Its name in `/upstreams/{name}`.
    pub name: String,
    /// Where it is: http or https, perhaps with a path.
    pub url: String,
    /// The beginning of its paths, with `{resource}` for one segment.
    pub resource: String,
    /// How that segment looks.
    pub resource_form: ResourceForm,
    /// What the names of its resources begin with; its name and a colon by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_prefix: Option<String>,
    /// What a 2xx promises.
    pub guarantee: Guarantee,
    /// How long a request may take as a whole.
    #[serde(default = "timeout", with = "Form")]
    pub timeout: Duration,
    /// How long a connection may take; 5 s or the timeout by default.
    #[serde(default, with = "Form", skip_serializing_if = "Option::is_none")]
    pub connect_timeout: Option<Duration>,
    /// The largest body in either direction, in bytes.
    #[serde(default = "body_bytes_max")]
    pub body_bytes_max: u64,
    /// How many requests may be in flight.
    #[serde(default = "in_flight_max")]
    pub in_flight_max: usize,
    /// Only drained: after this time whatever was forwarded has had its effect or never will.
    #[serde(default, with = "Form", skip_serializing_if = "Option::is_none")]
    pub max_effect_delay: Option<Duration>,
    /// Only drained: whether something in between, such as a load balancer, may answer in its stead.
    #[serde(default = "intermediary")]
    pub intermediary: bool,
    /// What becomes of the credentials of callers, and what the gateway shows in their stead.
    #[serde(default)]
    pub authorization: Credentials,
    /// By whom its certificate must be signed, instead of those whom the machine trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The gateway's certificate as a client of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The key of that certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

fn timeout() -> Duration {
    Duration::from_secs(60)
}

/// How long a connection may take by default, unless the request as a whole may take less.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

fn body_bytes_max() -> u64 {
    1 << 30
}

fn in_flight_max() -> usize {
    256
}

/// The safe one: an answer that may be another's says nothing about what became of a request.
fn intermediary() -> bool {
    true
}

impl Upstream {
    /// What the names of its resources begin with.
    pub fn prefix(&self) -> String {
        self.resource_prefix.clone().unwrap_or_else(|| format!("{}:", self.name))
    }

    /// How long a connection may take.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT.min(self.timeout))
    }

    /// The files that its TLS is made of.
    pub fn tls_files(&self) -> impl Iterator<Item = &Path> {
        [&self.ca_file, &self.cert_file, &self.key_file].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Fills in what follows from other settings.
    pub(super) fn complete(&mut self) {
        self.connect_timeout = Some(self.connect_timeout());
    }

    /// What is allowed and yet worth a second thought.
    pub(super) fn warning(&self) -> Option<String> {
        (self.resource_form == ResourceForm::Any).then(|| {
            format!(
                "upstream {:?} has resource_form = \"any\": if it takes two spellings for one record (7, 07 \
                 and 7.json, or A and a), two holders can write that record at a time",
                self.name
            )
        })
    }

    /// Why it cannot be used, if it cannot.
    fn trouble(&self) -> Option<String> {
        if !is_upstream_name(&self.name) {
            return Some(format!(
                "a name has 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', and does not \
                 begin with a dot"
            ));
        }
        if let Some(why) = url_trouble(&self.url) {
            return Some(format!("url {why}"));
        }
        if let Err(why) = Pattern::parse(&self.resource) {
            return Some(format!("resource {:?}: {why}", self.resource));
        }
        if self.cert_file.is_some() != self.key_file.is_some() {
            return Some("cert_file and key_file go together".into());
        }
        if self.tls_files().next().is_some() && !self.url.starts_with("https:") {
            return Some("ca_file, cert_file and key_file are for an url with https://".into());
        }
        let prefix = self.prefix();
        if !(1..=PREFIX_BYTES_MAX).contains(&prefix.len())
            || ResourceName::new(format!("{prefix}x")).is_err()
        {
            return Some(format!(
                "resource_prefix {prefix:?} begins no resource name of a sensible length"
            ));
        }
        self.numbers()
    }

    fn numbers(&self) -> Option<String> {
        let text = humantime::format_duration;
        let bounded = [
            ("timeout", self.timeout, 100 * MILLISECOND, HOUR),
            ("connect_timeout", self.connect_timeout(), MILLISECOND, self.timeout),
        ];
        for (name, value, least, most) in bounded {
            if !(least..=most).contains(&value) {
                let (value, least, most) = (text(value), text(least), text(most));
                return Some(format!("{name} {value} is not from {least} to {most}"));
            }
        }
        if !(1..=1 << 40).contains(&self.body_bytes_max) {
            return Some(format!("body_bytes_max {} is not from 1 to 2^40", self.body_bytes_max));
        }
        if !(1..=100_000).contains(&self.in_flight_max) {
            return Some(format!("in_flight_max {} is not from 1 to 100000", self.in_flight_max));
        }
        let delay = self.max_effect_delay?;
        if self.guarantee != Guarantee::Drained {
            return Some("max_effect_delay is for guarantee = \"drained\" alone".into());
        }
        let (value, least) = (text(delay), text(self.timeout));
        if delay <= self.timeout || delay > 30 * DAY {
            return Some(format!(
                "max_effect_delay {value} is not above timeout ({least}), in which the gateway may \
                 still be sending, and at most 30days"
            ));
        }
        None
    }
}

fn url_trouble(text: &str) -> Option<String> {
    let url: Url = match text.parse() {
        Ok(url) => url,
        Err(error) => return Some(format!("cannot be read: {error}")),
    };
    // Not quoted: it may hold a password.
    if !url.username().is_empty() || url.password().is_some() {
        return Some("must not hold a user or a password".into());
    }
    let why = match url.scheme() {
        "http" | "https" if url.host_str().is_none_or(str::is_empty) => "has no host",
        "http" | "https" if url.query().is_some() => "must not have a query",
        "http" | "https" if url.fragment().is_some() => "must not have a fragment",
        "http" | "https" => return None,
        _ => "must begin with http:// or https://",
    };
    Some(format!("{text:?} {why}"))
}

/// Whether an upstream may be called so.
pub fn is_upstream_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.')
}

/// Why these upstreams cannot be used, if they cannot.
pub(super) fn trouble(upstreams: &[Upstream]) -> Option<String> {
    let mut names = BTreeSet::new();
    for upstream in upstreams {
        if let Some(why) = upstream.trouble() {
            return Some(format!("{:?}: {why}", upstream.name));
        }
        if !names.insert(&upstream.name) {
            return Some(format!("{:?} is there twice", upstream.name));
        }
    }
    for (index, one) in upstreams.iter().enumerate() {
        for other in &upstreams[index + 1..] {
            let (a, b) = (one.prefix(), other.prefix());
            if a.starts_with(&b) || b.starts_with(&a) {
                return Some(format!(
                    "the resource prefixes {a:?} of {:?} and {b:?} of {:?} overlap: a resource must \
                     belong to one upstream",
                    one.name, other.name
                ));
            }
        }
    }
    None
}

/// Reads `key=value,key=value`. What is wrong with a value is found where all sources meet.
pub(super) fn from_pairs(text: &str) -> Value {
    let mut upstream = Map::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let number = ["body_bytes_max", "in_flight_max"].contains(&key);
        let value = match (value.parse::<i64>(), value.parse::<bool>()) {
            (Ok(digits), _) if number => Value::from(digits),
            (_, Ok(truth)) if key == "intermediary" => Value::from(truth),
            _ => Value::from(value),
        };
        upstream.insert(key.to_owned(), value);
    }
    Value::from(upstream)
}
