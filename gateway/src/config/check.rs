//! What the values of the settings must be, alone and together.

use std::path::Path;
use std::time::Duration;

use reqwest::Url;
use tracing_subscriber::EnvFilter;

use super::load::Given;
use super::upstreams::trouble;
use super::{ClientAuth, Config, ConfigError, ResourceForm, TlsBy, Upstream, is_open};
use crate::files::{self, FILE_BYTES_MAX};

/// The most that a time may be.
const TEN_YEARS: Duration = Duration::from_hours(3650 * 24);

impl Config {
    /// Refuses values and combinations that the gateway cannot work with.
    pub(super) fn check(&self, given: &Given) -> Result<(), ConfigError> {
        let check = Check { given };
        if let Some((name, why)) = self.out_of_bounds() {
            return Err(check.refuse(name, why));
        }
        self.check_uploads(&check)?;
        self.check_history(&check)?;
        self.check_lists(&check)?;
        self.check_tls(&check)?;
        self.check_listening(&check)?;
        self.check_s3(&check)?;
        if let Some(why) = trouble(&self.upstreams) {
            return Err(check.refuse("upstreams", why));
        }
        check.forms(&self.upstreams)?;
        self.check_log(&check)?;
        self.check_etcd(&check)?;
        self.check_pair(&check)?;
        match self.insecure().into_iter().next() {
            Some((name, why)) if !self.insecure_backends => Err(check.refuse(
                name,
                format!("{why}; or set insecure_backends = true if the network between is trusted"),
            )),
            _ => Ok(()),
        }
    }

    /// A file of TLS alone would secure nothing.
    fn check_tls(&self, check: &Check<'_>) -> Result<(), ConfigError> {
        let cert = ("tls_cert_file", self.tls_cert_file.is_some());
        let key = ("tls_key_file", self.tls_key_file.is_some());
        let ca = ("tls_client_ca_file", self.tls_client_ca_file.is_some());
        let crl = ("tls_client_crl_file", self.tls_client_crl_file.is_some());
        if self.tls == TlsBy::Proxy && self.trusted_proxies.is_empty() {
            let why = "proxy needs trusted_proxies as well: who they are";
            return Err(check.refuse("tls", why.into()));
        }
        if self.tls == TlsBy::Proxy && cert.1 {
            let why = "proxy says that others secure connections, and tls_cert_file that the gateway does";
            return Err(check.refuse("tls", why.into()));
        }
        check.needs(cert, key)?;
        check.needs(key, cert)?;
        check.needs(ca, cert)?;
        check.needs(("tls_client_auth", self.tls_client_auth == ClientAuth::Required), ca)?;
        check.needs(crl, ca)
    }

    /// Nobody is let in from the network, and no page of the web, by accident.
    fn check_listening(&self, check: &Check<'_>) -> Result<(), ConfigError> {
        let open = self.addresses().find(is_open).filter(|_| !self.open_to_network);
        if let Some(address) = open.filter(|_| !self.is_secured()) {
            let name = match address {
                address if address == self.listen => "listen",
                address if Some(address) == self.s3_listen => "s3_listen",
                _ => "admin_listen",
            };
            return Err(check.refuse(
                name,
                format!(
                    "{address} is reached from the network, where keys and data need TLS: name tls_cert_file and \
                     tls_key_file, or say tls = \"proxy\" if trusted_proxies have it. Or listen on \
                     127.0.0.1:{port}; or say --open-to-network (open_to_network = true) if whoever reaches it \
                     may take and break any lock and read any object",
                    port = address.port()
                ),
            ));
        }
        if self.cors_origin.iter().any(|origin| origin == "*") {
            let why = "* would let every page of the web call the gateway; name the origins";
            return Err(check.refuse("cors_origin", why.into()));
        }
        Ok(())
    }

    fn check_s3(&self, check: &Check<'_>) -> Result<(), ConfigError> {
        match self.trouble_with_s3() {
            Some((name, why)) => Err(check.refuse(name, why)),
            None => Ok(()),
        }
    }

    fn check_uploads(&self, check: &Check<'_>) -> Result<(), ConfigError> {
        if self.uploads_kept > self.upload_timeout {
            return Ok(());
        }
        let why = format!(
            "{} is not above upload_timeout, which is {}: a slow upload would count as garbage before it is \
             committed",
            humantime::format_duration(self.uploads_kept),
            humantime::format_duration(self.upload_timeout)
        );
        Err(check.refuse("uploads_kept", why))
    }

    /// What came of a write or a lock is told from its history.
    fn check_history(&self, check: &Check<'_>) -> Result<(), ConfigError> {
        let Some(history) = self.history_kept else { return Ok(()) };
        if history > TEN_YEARS {
            return Err(check
                .refuse("history_kept", "it is above 10 years: leave it out to keep all".into()));
        }
        let others = [
            ("a day", Duration::from_hours(24)),
            ("keys_kept", self.keys_kept),
            ("ended_locks_kept", self.ended_locks_kept),
            ("buried_kept", self.buried_kept),
            ("versions_kept", self.versions_kept),
        ];
        match others.into_iter().max_by_key(|(_, kept)| *kept).filter(|(_, kept)| *kept > history) {
            Some((name, kept)) => {
                let [history, kept] = [history, kept].map(humantime::format_duration);
                let why =
                    format!("{history} is shorter than {name} ({kept}), which needs the history");
                Err(check.refuse("history_kept", why))
            }
            None => Ok(()),
        }
    }

    fn check_lists(&self, check: &Check<'_>) -> Result<(), ConfigError> {
        for prefix in &self.metrics_prefix {
            // A prefix of a name, so "." is fine here and a letter after it makes it a name.
            if fence_core::ResourceName::new(format!("{prefix}x")).is_err() || prefix.is_empty() {
                return Err(check.refuse(
                    "metrics_prefix",
                    format!(
                        "{prefix:?} begins no resource name: those hold only A-Z a-z 0-9 . _ ~ - \
                         : @ # + = ,"
                    ),
                ));
            }
        }
        for witness in &self.audit_witness {
            let url = witness.parse::<Url>();
            // A password would be shown by whatever shows the settings; a witness asks for none.
            if url.as_ref().is_ok_and(|url| !url.username().is_empty() || url.password().is_some())
            {
                let why = "a URL with a user or a password: a witness is told nothing secret";
                return Err(check.refuse("audit_witness", why.to_owned()));
            }
            let is_url = url.is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none()
            });
            if !is_url {
                let why = format!("{witness:?} is not a URL as https://witness.example.org");
                return Err(check.refuse("audit_witness", why));
            }
        }
        for origin in &self.cors_origin {
            if !is_origin(origin) {
                return Err(check.refuse(
                    "cors_origin",
                    format!(
                        "{origin:?} is not an origin such as https://ops.example.com, without a \
                         path"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn check_log(&self, check: &Check<'_>) -> Result<(), ConfigError> {
        match EnvFilter::try_new(&self.log) {
            Ok(_) => Ok(()),
            Err(error) => Err(check.refuse("log", error.to_string())),
        }
    }

    fn check_etcd(&self, check: &Check<'_>) -> Result<(), ConfigError> {
        let prefix = &self.etcd_prefix;
        let plain = |c: char| c.is_ascii_graphic();
        if !prefix.starts_with('/') || prefix.ends_with('/') || !prefix.chars().all(plain) {
            return Err(check.refuse(
                "etcd_prefix",
                "it must begin with a slash, not end with one, and hold no spaces".into(),
            ));
        }
        let tls = self.etcd_ca_file.is_some();
        for member in &self.etcd {
            let (scheme, host) = member.split_once("://").unwrap_or(("", member));
            let trouble = match scheme {
                _ if !is_host_and_port(host) => {
                    "is not host:port or a URL such as https://host:2379"
                }
                "https" if !tls => "needs etcd_ca_file, to know whom to trust",
                "http" if tls => "goes without TLS although etcd_ca_file is set",
                "" | "http" | "https" => continue,
                _ => "must begin with http:// or https://, or have no scheme",
            };
            return Err(check.refuse("etcd", format!("{member:?} {trouble}")));
        }
        let files = [
            ("etcd_ca_file", &self.etcd_ca_file),
            ("etcd_cert_file", &self.etcd_cert_file),
            ("etcd_key_file", &self.etcd_key_file),
        ];
        let user = ("etcd_user", self.etcd_user.is_some());
        let password = ("etcd_password", self.etcd_password.is_some());
        let [ca, cert, key] = files.map(|(name, file)| (name, file.is_some()));
        check.needs(user, password)?;
        check.needs(password, user)?;
        check.needs(cert, key)?;
        check.needs(key, cert)?;
        check.needs(cert, ca)?;
        for setting in [user, ca] {
            check.needs(setting, ("etcd", !self.etcd.is_empty()))?;
        }
        for (name, file) in files {
            if let Some(file) = file {
                check.readable(name, file)?;
            }
        }
        Ok(())
    }

    /// Postgres and etcd guard each other's losses, so neither goes without the other.
    fn check_pair(&self, check: &Check<'_>) -> Result<(), ConfigError> {
        match (self.postgres.is_some(), !self.etcd.is_empty()) {
            (true, false) => Err(check.refuse(
                "postgres",
                "it needs etcd as well: a Postgres that was restored or failed over could grant \
                 old tokens again, and only numbers from elsewhere rule that out"
                    .into(),
            )),
            (false, true) => Err(check.refuse(
                "etcd",
                "it needs postgres as well: without a ledger in common each gateway would have a \
                 fence of its own, and a late writer would get in through another gateway"
                    .into(),
            )),
            _ => Ok(()),
        }
    }
}

/// Words the refusals: the setting, where its value came from, what it must be.
struct Check<'a> {
    given: &'a Given,
}

impl Check<'_> {
    fn refuse(&self, name: &str, why: String) -> ConfigError {
        ConfigError(format!("{}: {why}", self.given.place(name)))
    }

    /// Refuses a setting that does nothing without another.
    fn needs(&self, one: (&str, bool), other: (&str, bool)) -> Result<(), ConfigError> {
        if one.1 && !other.1 {
            return Err(self.refuse(one.0, format!("it needs {} as well", other.0)));
        }
        Ok(())
    }

    /// A regular expression may hold commas and semicolons, which separate elsewhere: it would be cut silently.
    fn forms(&self, upstreams: &[Upstream]) -> Result<(), ConfigError> {
        let matching = |one: &&Upstream| matches!(one.resource_form, ResourceForm::Matching(_));
        match upstreams.iter().find(matching) {
            Some(upstream) if !self.given.is_from_file("upstreams") => {
                let why = "a resource_form that is a regular expression goes into the file";
                Err(self.refuse("upstreams", format!("{:?}: {why}", upstream.name)))
            }
            _ => Ok(()),
        }
    }

    fn readable(&self, name: &str, file: &Path) -> Result<(), ConfigError> {
        match files::read(file, FILE_BYTES_MAX) {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(self.refuse(name, format!("cannot read {}: {error}", file.display())))
            }
        }
    }
}

fn is_host_and_port(text: &str) -> bool {
    match text.rsplit_once(':') {
        Some((host, port)) => {
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let host_is_good = match bare {
                Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
                None => {
                    let good = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
                    !host.is_empty() && host.chars().all(good)
                }
            };
            host_is_good && port.parse::<u16>().is_ok_and(|port| port > 0)
        }
        None => false,
    }
}

fn is_origin(text: &str) -> bool {
    if text == "*" {
        return true; // refused with a reason of its own
    }
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    // Browsers send origins in lower case and compare them byte by byte.
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_:[]".contains(c);
    host.is_some_and(|host| !host.is_empty() && host.chars().all(good))
}
