//! The connections to the ledger and the mint: whoever can change what goes over them can forge tokens. And those to
//! upstreams and to the store: whoever can change what goes over them writes there without a token.

use reqwest::Url;
use sqlx::postgres::PgSslMode;

use super::Config;
use crate::this_machine::is_this_machine;

impl Config {
    /// The settings with which Postgres, etcd, the store or upstreams are reached over a network without TLS that is
    /// verified, and what is wrong with each.
    pub(super) fn insecure(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let options = self.postgres.as_ref().and_then(|url| url.options().ok());
        if let Some(options) = options
            && options.get_socket().is_none()
            && !is_this_machine(options.get_host())
            && !matches!(options.get_ssl_mode(), PgSslMode::VerifyFull)
        {
            let why = "it is reached over a network without verified TLS: add sslmode=verify-full to the \
                       URL (and sslrootcert=FILE for a CA of your own)";
            found.push(("postgres", why.into()));
        }
        let apart = |member: &&String| !is_this_machine(host_of(member));
        if let Some(member) = self.etcd.iter().find(apart)
            && self.etcd_ca_file.is_none()
        {
            let why = format!("{member:?} is reached over a network without TLS: set etcd_ca_file");
            found.push(("etcd", why));
        }
        for upstream in &self.upstreams {
            let url = upstream.url.parse::<Url>().ok().filter(|url| url.scheme() == "http");
            if url.is_some_and(|url| !is_this_machine(url.host_str().unwrap_or_default())) {
                let name = &upstream.name;
                let why = format!("{name:?} is reached over a network without TLS: use https://");
                found.push(("upstreams", why));
            }
        }
        for witness in &self.audit_witness {
            let url = witness.parse::<Url>().ok().filter(|url| url.scheme() == "http");
            if url.is_some_and(|url| !is_this_machine(url.host_str().unwrap_or_default())) {
                let why =
                    format!("{witness:?} is reached over a network without TLS: use https://");
                found.push(("audit_witness", why));
            }
        }
        if let Some(host) = self.blobs_url().plain_host(std::env::vars_os()) {
            let why = format!(
                "{host:?} is reached over a network without TLS: use https:// for its endpoint"
            );
            found.push(("blobs", why));
        }
        found
    }
}

/// The host of `host:port` or a URL.
fn host_of(member: &str) -> &str {
    let (_, place) = member.split_once("://").unwrap_or(("", member));
    place.rsplit_once(':').map_or(place, |(host, _)| host)
}
