//! Which of the gateways is asked (CC3): the first that has not failed in the last half minute.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use reqwest::Url;

use crate::clock::now_ms;
use crate::error::Error;

/// How long a gateway that failed is left alone, if there are others.
const AVOIDED_MS: u64 = 30_000;

#[derive(Debug)]
pub(crate) struct Urls {
    all: Vec<Base>,
    /// Until when each is left alone.
    avoided_until_ms: Mutex<Vec<u64>>,
    /// Those that no wait can open.
    closed: Mutex<BTreeSet<usize>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Base {
    /// Without a slash at its end.
    text: String,
    pub(crate) is_loopback: bool,
}

/// Scheme, host and port of a gateway: those for whom a credential is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    text: String,
    is_private: bool,
}

impl Origin {
    /// The origin of a base URL, as a client reads it.
    ///
    /// # Errors
    /// [`Error::Misuse`]: it is no base URL.
    pub fn of(base_url: &str) -> Result<Self, Error> {
        let url = parse(base_url)?;
        let is_private = url.scheme() == "https" || is_loopback(&url);
        Ok(Self { text: url.origin().ascii_serialization(), is_private })
    }

    /// Tells that nobody on the way can read what is sent: it is encrypted, or stays on this machine.
    pub fn is_private(&self) -> bool {
        self.is_private
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Urls {
    /// # Errors
    /// There is none, or one that is not `http` or `https`, or has a query, a fragment or a password.
    pub(crate) fn new(urls: &[String]) -> Result<Self, Error> {
        if urls.is_empty() || urls.len() > 64 {
            return Err(Error::misuse("a client needs 1 to 64 base URLs"));
        }
        let all = urls.iter().map(|url| Base::parse(url)).collect::<Result<Vec<_>, _>>()?;
        let avoided_until_ms = Mutex::new(vec![0; all.len()]);
        Ok(Self { avoided_until_ms, closed: Mutex::default(), all })
    }

    pub(crate) fn all(&self) -> &[Base] {
        &self.all
    }

    /// The gateway to ask now, and its place in the list.
    pub(crate) fn current(&self) -> (usize, &Base) {
        let avoided = self.lock();
        let now = now_ms();
        let good = avoided.iter().position(|until_ms| *until_ms <= now);
        // All have failed: the one that did so longest ago.
        let place = good.or_else(|| (0..avoided.len()).min_by_key(|at| avoided[*at])).unwrap_or(0);
        (place, &self.all[place])
    }

    /// It failed: the next one is asked.
    pub(crate) fn avoid(&self, place: usize) {
        self.lock()[place] = now_ms() + AVOIDED_MS;
    }

    /// No wait can open this gateway. Tells whether that is so of all of them by now.
    pub(crate) fn are_all_closed(&self, place: usize) -> bool {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.insert(place);
        closed.len() == self.all.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.avoided_until_ms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(text: &str) -> Result<Url, Error> {
    // What holds an @ may hold a password.
    let shown = if text.contains('@') { "it" } else { text };
    let wrong = |why: &str| Error::misuse(format!("{shown:?} is no base URL: {why}"));
    let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("it begins with http:// or https:// and a host"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it has no query and no fragment"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("credentials have a setting of their own"));
    }
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || host.ends_with(".localhost")
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

impl Base {
    fn parse(text: &str) -> Result<Self, Error> {
        let url = parse(text)?;
        let text = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { text, is_loopback: is_loopback(&url) })
    }

    /// Tells if TLS is spoken there.
    pub(crate) fn is_https(&self) -> bool {
        self.text.starts_with("https:")
    }

    /// The base URL as it is shown to people: it has no credential.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The whole URL of a path that is encoded already.
    pub(crate) fn with(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let of = |url| Origin::of(url).unwrap();
        assert_eq!(of("https://gate.example"), of("https://GATE.example:443/below/"));
        for other in
            ["http://gate.example", "https://gate.example:8443", "https://gate.example.org"]
        {
            assert_ne!(of("https://gate.example"), of(other), "{other}");
        }
        assert_eq!(of("https://gate.example/below").to_string(), "https://gate.example");
        for wrong in
            ["nonsense", "gate.example:8080", "ftp://gate.example", "http://", "https://a@b"]
        {
            assert!(Origin::of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_encrypted_or_stays_here_is_private() {
        let is_private = |url| Origin::of(url).unwrap().is_private();
        for url in [
            "https://gate.example",
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "http://a.localhost",
        ] {
            assert!(is_private(url), "{url}");
        }
        for url in [
            "http://gate.example",
            "http://10.0.0.1",
            "http://localhost.example",
            "http://127.0.0.1.example",
        ] {
            assert!(!is_private(url), "{url}");
        }
    }
}
