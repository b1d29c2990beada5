//! Where the gateway is and how to reach it: flags, then `FENCE_*`, then the context, then the default.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use fencegate_client::wire::trace::Place;
use fencegate_client::{Client, ClientBuilder, Credential, Origin};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::durations;
use crate::failure::{Failure, usage};
use crate::files::{self, FILE_BYTES_MAX};
use crate::options::Common;

/// Where a gateway is unless somebody says otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// Where programs find the span that they are part of.
const TRACEPARENT: &str = "TRACEPARENT";

/// The file of contexts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The one that is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// All of them, by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// A gateway, and how to reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Its base URL, or several with commas between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What the caller calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// A file with the credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_token_file: Option<PathBuf>,
    /// Certificates to trust, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The client's own certificate, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// Its key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Leave to show the credential over http to another machine, where everybody on the way can read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_http: bool,
}

impl Contexts {
    /// `$XDG_CONFIG_HOME/fence/config.toml`, or below `~/.config`.
    ///
    /// # Errors
    /// Neither of the variables is set.
    pub fn path() -> Result<PathBuf, Failure> {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
        let folder = std::env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty());
        let folder = folder.map(PathBuf::from).or_else(home);
        let folder = folder.ok_or_else(|| anyhow!("neither XDG_CONFIG_HOME nor HOME is set"))?;
        Ok(folder.join("fence/config.toml"))
    }

    /// What the file says; nothing if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load() -> Result<Self, Failure> {
        let Ok(path) = Self::path() else { return Ok(Self::default()) };
        match files::read_text(&path, FILE_BYTES_MAX) {
            Ok(text) => Ok(toml::from_str(&text)
                .with_context(|| format!("{} cannot be read", path.display()))?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(anyhow!("{} cannot be read: {error}", path.display()).into()),
        }
    }

    fn get(&self, name: &str) -> Result<Context, Failure> {
        let known = || self.contexts.keys().cloned().collect::<Vec<_>>().join(", ");
        let missing = || usage(format!("there is no context {name:?}; there are: {}", known()));
        self.contexts.get(name).cloned().ok_or_else(missing)
    }
}

/// What is in force.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the gateways are, with commas between them.
    pub url: String,
    /// What the caller calls itself, if it was said.
    pub owner: Option<String>,
    credential: Option<String>,
    /// What `fence run` hands on.
    pub files: Context,
    origins: Vec<Origin>,
    /// The URLs that a credential is kept for which is there, and is not for those in force.
    withheld: Option<String>,
    /// How long a call goes on, if it was said.
    pub timeout: Option<Duration>,
    /// How long a first answer is waited for, if it was said.
    pub wait_for_gateway: Option<Duration>,
    /// The span that all of this belongs to, if the environment names one.
    pub trace: Option<Place>,
}

/// What a gateway is shown of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// Nothing.
    Nothing,
    /// Nothing, though there is a credential: it is for these URLs.
    Withheld(String),
    /// The credential in `FENCE_AUTH_TOKEN`.
    Variable,
    /// The credential in this file.
    File(PathBuf),
    /// The certificate in this file.
    Certificate(PathBuf),
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(usage(format!("{name} is no text"))),
    }
}

/// A variable that says yes or no.
fn switch(name: &str) -> Result<bool, Failure> {
    match variable(name)?.as_deref() {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(_) => Err(usage(format!("{name} is neither 1 nor 0"))),
    }
}

/// A variable that says how long.
fn duration(name: &str) -> Result<Option<Duration>, Failure> {
    let parsed = |text: String| {
        let wrong = |error| usage(format!("{name} is no duration: {error}"));
        durations::parse(&text).map_err(wrong)
    };
    variable(name)?.map(parsed).transpose()
}

/// The origins of URLs with commas between them.
///
/// # Errors
/// One is no base URL.
pub fn origins(urls: &str) -> Result<Vec<Origin>, Failure> {
    Ok(urls.split(',').map(|url| Origin::of(url.trim())).collect::<Result<_, _>>()?)
}

/// The span that the environment names. What cannot be read is none: nothing fails for a trace.
fn trace() -> Option<Place> {
    Place::parse(std::env::var(TRACEPARENT).ok()?.as_bytes())
}

impl Settings {
    /// Puts them together.
    ///
    /// # Errors
    /// There is no such context, or its file or a variable cannot be read.
    pub fn of(common: &Common) -> Result<Self, Failure> {
        let file = Contexts::load()?;
        let environment = environment()?;
        let flags = common.said();
        let is_named = common.context.is_some();
        // A context that the command line names is a flag, and comes before the environment.
        let (first, second) = match &common.context {
            Some(name) => (file.get(name)?, environment.clone()),
            None => {
                let named = variable("FENCE_CONTEXT")?.or_else(|| file.current.clone());
                let context = named.map(|name| file.get(&name)).transpose()?;
                (environment.clone(), context.unwrap_or_default())
            }
        };
        let said = [&flags, &first, &second].into_iter().find_map(|said| said.url.clone());
        let url = said.unwrap_or_else(|| DEFAULT_URL.to_owned());
        let origins = origins(&url)?;
        let mut withheld = None;
        let mut kept = |said: Context| said.kept_for(&origins, &mut withheld);
        let (first, second) = (kept(first), kept(second));
        // One credential is in force: a file that the command line names, directly or by a context, comes first.
        let named =
            flags.auth_token_file.is_some() || (is_named && first.auth_token_file.is_some());
        let text = if named { None } else { variable("FENCE_AUTH_TOKEN")? };
        if text.is_some() && environment.auth_token_file.is_some() {
            return Err(usage("FENCE_AUTH_TOKEN and FENCE_AUTH_TOKEN_FILE: one of them"));
        }
        let is_for = environment.is_for(&origins);
        if text.is_some() && !is_for {
            withheld = environment.url;
        }
        let credential = text.filter(|_| is_for);
        let mut files = flags.or(first).or(second);
        if credential.is_some() {
            files.auth_token_file = None;
        }
        Ok(Self {
            url,
            owner: files.owner.clone(),
            credential,
            files,
            origins,
            withheld,
            timeout: common.timeout,
            wait_for_gateway: common
                .wait_for_gateway
                .map_or_else(|| duration("FENCE_WAIT_FOR_GATEWAY"), |it| Ok(Some(it)))?,
            trace: trace(),
        })
    }

    /// Continues the trace that there is, or begins one, which is recorded where gateways record any: then this run is the
    /// parent of all that is done in it.
    pub fn begin_trace(&mut self) {
        self.trace.get_or_insert_with(|| {
            let (trace, (_, span)) = (Uuid::new_v4(), Uuid::new_v4().as_u64_pair());
            Place::new(trace.into_bytes(), span.to_be_bytes(), true)
        });
    }

    /// What the gateway is shown of the caller: a credential, or else a certificate.
    pub fn shown(&self) -> Shown {
        match (&self.credential, &self.files.auth_token_file, &self.files.cert_file) {
            (Some(_), _, _) => Shown::Variable,
            (None, Some(file), _) => Shown::File(file.clone()),
            (None, None, Some(file)) => Shown::Certificate(file.clone()),
            (None, None, None) => self.withheld.clone().map_or(Shown::Nothing, Shown::Withheld),
        }
    }

    /// Lets a command reach the gateway in the same way, by its environment.
    pub fn hand_on(&self, command: &mut Command) {
        command.env("FENCE_URL", &self.url);
        if let Some(place) = self.trace {
            command.env(TRACEPARENT, place.to_string());
            if trace().is_none() {
                // It belongs to a trace that is not this one.
                command.env_remove("TRACESTATE");
            }
        }
        let files = &self.files;
        let named = [
            ("FENCE_AUTH_TOKEN_FILE", &files.auth_token_file),
            ("FENCE_CA_FILE", &files.ca_file),
            ("FENCE_CERT_FILE", &files.cert_file),
            ("FENCE_KEY_FILE", &files.key_file),
        ];
        for (name, path) in named {
            // What the environment has beside it is for another gateway.
            match path {
                Some(path) => command.env(name, path),
                None => command.env_remove(name),
            };
        }
        if self.credential.is_none() {
            // It has the credential that is in force, and no other.
            command.env_remove("FENCE_AUTH_TOKEN");
        }
        match files.allow_http {
            true => command.env("FENCE_ALLOW_HTTP", "1"),
            false => command.env_remove("FENCE_ALLOW_HTTP"),
        };
    }

    /// A client that reaches the gateway so.
    ///
    /// # Errors
    /// A URL, file or name is wrong, others can read a secret, or the credential would go in the clear to another machine.
    pub fn builder(&self) -> Result<ClientBuilder, Failure> {
        self.check_credential()?;
        let mut builder = Client::builder(&self.url);
        if let Some(owner) = &self.owner {
            builder = builder.owner(owner);
        }
        if let Some(place) = self.trace {
            builder = builder.traceparent(move || Some(place.to_string()));
        }
        match (&self.credential, &self.files.auth_token_file) {
            (Some(text), _) => builder = builder.credential(Credential::text(text.clone())),
            (None, Some(path)) => builder = builder.credential(Credential::file(path)),
            (None, None) => {}
        }
        let read = |path: &PathBuf| {
            files::read(path, FILE_BYTES_MAX)
                .with_context(|| format!("cannot read {}", path.display()))
        };
        if let Some(path) = &self.files.ca_file {
            builder = builder.root_certificates(&read(path)?)?;
        }
        match (&self.files.cert_file, &self.files.key_file) {
            (Some(certificate), Some(key)) => {
                let pem = [read(certificate)?, b"\n".to_vec(), read(key)?].concat();
                builder = builder.certificate(&pem)?;
            }
            (None, None) => {}
            _ => return Err(usage("a certificate and its key: both or none")),
        }
        if let Some(timeout) = self.timeout {
            builder = builder.call_timeout(timeout).write_timeout(timeout);
        }
        Ok(builder)
    }
}

impl Settings {
    /// Refuses to show a credential to whoever listens on the way, and one that others on this machine can read.
    fn check_credential(&self) -> Result<(), Failure> {
        let secrets = [&self.files.auth_token_file, &self.files.key_file];
        for path in secrets.into_iter().flatten() {
            files::check_private(path)?;
        }
        let is_shown = self.credential.is_some() || self.files.auth_token_file.is_some();
        let clear = self.origins.iter().find(|origin| !origin.is_private());
        match clear.filter(|_| is_shown && !self.files.allow_http) {
            None => Ok(()),
            Some(origin) => Err(usage(format!(
                "{origin} is another machine and not encrypted: everybody on the way could read the credential. Use \
                 https://, or allow it with --allow-http or FENCE_ALLOW_HTTP=1"
            ))),
        }
    }
}

/// Settings of the environment.
fn environment() -> Result<Context, Failure> {
    Ok(Context {
        url: variable("FENCE_URL")?,
        owner: variable("FENCE_OWNER")?,
        auth_token_file: variable("FENCE_AUTH_TOKEN_FILE")?.map(Into::into),
        ca_file: variable("FENCE_CA_FILE")?.map(Into::into),
        cert_file: variable("FENCE_CERT_FILE")?.map(Into::into),
        key_file: variable("FENCE_KEY_FILE")?.map(Into::into),
        allow_http: switch("FENCE_ALLOW_HTTP")?,
    })
}

impl Context {
    /// Compares those asked with its URLs: true if it names none, or all that are asked are among them.
    fn is_for(&self, asked: &[Origin]) -> bool {
        let Some(url) = &self.url else { return true };
        origins(url).is_ok_and(|own| asked.iter().all(|origin| own.contains(origin)))
    }

    /// The same without credentials and leave, if those asked are not those that they are kept for.
    fn kept_for(self, asked: &[Origin], withheld: &mut Option<String>) -> Self {
        if self.is_for(asked) {
            return self;
        }
        if self.shows() {
            withheld.clone_from(&self.url);
        }
        let Self { url, owner, ca_file, .. } = self;
        Self { url, owner, ca_file, ..Self::default() }
    }

    /// Tells that it has a credential or a certificate.
    fn shows(&self) -> bool {
        self.auth_token_file.is_some() || self.cert_file.is_some()
    }

    /// The context as it is after a change. A credential stays with those whom it was stored for.
    ///
    /// # Errors
    /// There is no URL, one is none, or the URL leads elsewhere and the credential that is kept was not named with it.
    pub fn changed(self, said: Self) -> Result<Self, Failure> {
        let url = said.url.clone().or_else(|| self.url.clone());
        let asked = origins(&url.ok_or_else(|| usage("where is the gateway? Give --url"))?)?;
        let is_left = (self.auth_token_file.is_some() && said.auth_token_file.is_none())
            || (self.cert_file.is_some() && said.cert_file.is_none());
        match &self.url {
            Some(before) if is_left && !self.is_for(&asked) => Err(usage(format!(
                "the credential of this context is for {before}: name the one for the new URL as well, or remove the \
                 context first"
            ))),
            _ => Ok(said.or(self.kept_for(&asked, &mut None))),
        }
    }

    /// What this does not say, the other does.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        // A certificate and its key belong together.
        let (cert_file, key_file) = match (&self.cert_file, &self.key_file) {
            (None, None) => (other.cert_file, other.key_file),
            _ => (self.cert_file, self.key_file),
        };
        Self {
            url: self.url.or(other.url),
            owner: self.owner.or(other.owner),
            auth_token_file: self.auth_token_file.or(other.auth_token_file),
            ca_file: self.ca_file.or(other.ca_file),
            cert_file,
            key_file,
            allow_http: self.allow_http || other.allow_http,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(url: &str) -> Context {
        let (url, file) = (Some(url.to_owned()), Some("/key".into()));
        Context { url, auth_token_file: file, allow_http: true, ..Context::default() }
    }

    #[test]
    fn a_credential_stays_with_those_whom_it_was_stored_for() {
        let prod = context("https://a.example,https://b.example:8443");
        let kept = |urls: &str| {
            let mut withheld = None;
            let kept = prod.clone().kept_for(&origins(urls).unwrap(), &mut withheld);
            assert_eq!(kept.auth_token_file.is_none(), withheld.is_some(), "{urls}");
            assert_eq!(kept.allow_http, kept.auth_token_file.is_some(), "{urls}");
            kept.auth_token_file.is_some()
        };
        for same in [
            "https://a.example",
            "https://b.example:8443/x",
            "https://b.example:8443,https://a.example:443",
        ] {
            assert!(kept(same), "{same}");
        }
        let others = [
            "http://a.example",
            "https://a.example:8443",
            "https://a.example.org",
            "http://localhost:9999",
        ];
        for other in others.into_iter().chain(["https://a.example,https://c.example"]) {
            assert!(!kept(other), "{other}");
        }
        // What says nothing of a place is for the one that is named.
        let anywhere = Context { url: None, ..prod };
        assert_eq!(anywhere.clone().kept_for(&origins("http://x").unwrap(), &mut None), anywhere);
    }

    #[test]
    fn a_context_that_moves_does_not_take_its_credential_along() {
        let said = |url: &str| Context { url: Some(url.to_owned()), ..Context::default() };
        let prod = context("https://a.example");
        assert!(prod.clone().changed(said("https://b.example")).is_err());
        assert!(prod.clone().changed(said("nonsense")).is_err());
        assert!(Context::default().changed(Context::default()).is_err());
        let same = prod.clone().changed(said("https://a.example/below")).unwrap();
        assert_eq!(same.auth_token_file, prod.auth_token_file);
        let moved = prod.changed(Context { allow_http: false, ..context("https://b.example") });
        assert!(!moved.unwrap().allow_http);
    }
}
