//! Upstreams: HTTP services that the gateway fronts as a fenced reverse proxy.
//!
//! They are named in the configuration and nowhere else: no request can say where anything is sent.

mod answer;
mod body;
mod caller;
mod connections;
mod forward;
mod headers;
mod outcome;
mod path;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::{HeaderValue, Method};
use fence_core::ResourceName;
use fence_core::ports::{Clock, DrainedUpstream};
use reqwest::{Client, Url};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::{self, Credentials, Guarantee, Pattern, ResourceForm};

use connections::Connections;

pub use body::{Incoming, read_ahead};
pub use forward::{Passage, forward};
pub use headers::{refuse_tricks, to_upstream};
pub use path::check_path;

/// Among the extensions of an answer that an upstream gave: what it says of caches is its own.
#[derive(Debug, Clone, Copy)]
pub struct Forwarded;

/// An upstream, as the gateway uses it.
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// What a 2xx promises.
    pub guarantee: Guarantee,
    /// How long a request may take as a whole.
    pub timeout: Duration,
    /// The largest body in either direction, in bytes.
    pub body_bytes_max: u64,
    /// After this time whatever was forwarded has had its effect or never will.
    pub max_effect_delay: Option<Duration>,
    /// Whether somebody in between may answer in its stead.
    pub intermediary: bool,
    /// The fate of the credentials of callers where no rules of access are in force.
    authorization: Credentials,
    connections: Connections,
    base: Url,
    pattern: Pattern,
    form: ResourceForm,
    resource_prefix: String,
    room: Arc<Semaphore>,
}

impl Upstream {
    fn new(settings: &config::Upstream) -> anyhow::Result<Self> {
        let guarantee = settings.guarantee;
        Ok(Self {
            name: settings.name.clone(),
            guarantee,
            timeout: settings.timeout,
            body_bytes_max: settings.body_bytes_max,
            max_effect_delay: settings.max_effect_delay,
            intermediary: settings.intermediary,
            authorization: settings.authorization.clone(),
            connections: Connections::new(settings)?,
            base: settings.url.parse().context("the URL of an upstream")?,
            pattern: Pattern::parse(&settings.resource).map_err(anyhow::Error::msg)?,
            form: settings.resource_form.clone(),
            resource_prefix: settings.prefix(),
            room: Arc::new(Semaphore::new(settings.in_flight_max)),
        })
    }

    /// The fate of the credentials of callers, and of cookies that are set. Under rules of access what is shown to this
    /// gateway is nothing to an upstream, and what an upstream sets would be shown to this gateway.
    pub fn credentials(&self, is_ruled: bool) -> &Credentials {
        if is_ruled { &Credentials::Strip } else { &self.authorization }
    }

    /// Whether its effects are drained before the next lock is in force.
    pub fn is_drained(&self) -> bool {
        self.guarantee == Guarantee::Drained
    }

    /// The resource that a path is about.
    ///
    /// # Errors
    /// The path does not match, or its part is not of the form or makes no name.
    pub fn resource(&self, path: &str) -> Result<ResourceName, String> {
        let segment = self.pattern.resource(path);
        let decoded = segment
            .and_then(|segment| percent_encoding::percent_decode_str(segment).decode_utf8().ok());
        let unfit = || {
            format!(
                "a method that needs a token needs a path that begins as {}, where {{resource}} makes the \
                 name of a resource",
                self.pattern
            )
        };
        let decoded = decoded.ok_or_else(unfit)?;
        if !self.form.fits(&decoded) {
            return Err(format!(
                "the part of the path that stands for {{resource}} in {} must be {}: one record must have one \
                 name, or two holders could write it",
                self.pattern,
                self.form.wanted()
            ));
        }
        ResourceName::new(format!("{}{decoded}", self.resource_prefix)).map_err(|_| unfit())
    }

    /// Where a request goes; `None` if the path would not arrive as it was sent.
    pub fn target(&self, path: &str, query: Option<&str>) -> Option<Url> {
        let mut url = self.base.clone();
        let whole = format!("{}{path}", self.base.path().trim_end_matches('/'));
        url.set_path(&whole);
        url.set_query(query);
        (url.path() == whole).then_some(url)
    }

    /// Room for one more request, if there is any.
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// What the gateway shows it in `Authorization`, if anything.
    ///
    /// # Errors
    /// A credential that cannot be read now.
    pub async fn credential(&self) -> anyhow::Result<Option<HeaderValue>> {
        self.connections.credential().await
    }

    fn client(&self, method: &Method, clock: &dyn Clock) -> Client {
        let clients = self.connections.clients(clock);
        match self.is_drained() && is_fenced(method) {
            true => clients.fresh,
            false => clients.pooled,
        }
    }
}

/// Whether a method needs a token.
pub fn is_fenced(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// All upstreams by name; cheap to clone.
#[derive(Clone, Default)]
pub struct Upstreams(Arc<BTreeMap<String, Arc<Upstream>>>);

impl Upstreams {
    /// The upstreams of the settings, which were checked.
    ///
    /// # Errors
    /// Files of TLS that are no good.
    pub fn new(settings: &[config::Upstream]) -> anyhow::Result<Self> {
        let upstream =
            |one: &config::Upstream| Ok((one.name.clone(), Arc::new(Upstream::new(one)?)));
        let all: anyhow::Result<_> = settings.iter().map(upstream).collect();
        Ok(Self(Arc::new(all?)))
    }

    /// The upstream of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Upstream>> {
        self.0.get(name).cloned()
    }
}

/// Those that are drained, as the ledger is told.
pub fn drained(settings: &[config::Upstream]) -> Arc<[DrainedUpstream]> {
    let drained = settings.iter().filter(|one| one.guarantee == Guarantee::Drained);
    drained
        .map(|one| DrainedUpstream {
            name: one.name.clone(),
            resource_prefix: one.prefix(),
            max_effect_delay: one.max_effect_delay,
        })
        .collect()
}
