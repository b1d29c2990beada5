//! Which of the gateways is asked (CC3): the first that has not failed in the last half minute.

use std::sync::Mutex;

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
}

#[derive(Debug, Clone)]
pub(crate) struct Base {
    /// Without a slash at its end.
    text: String,
    pub(crate) is_loopback: bool,
}

impl Urls {
    /// # Errors
    /// There is none, or one that is not `http` or `https`, or has a query, a fragment or a password.
    pub(crate) fn new(urls: &[String]) -> Result<Self, Error> {
        if urls.is_empty() || urls.len() > 64 {
            return Err(Error::misuse("a client needs 1 to 64 base URLs"));
        }
        let all = urls.iter().map(|url| Base::parse(url)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { avoided_until_ms: Mutex::new(vec![0; all.len()]), all })
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.avoided_until_ms.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Base {
    fn parse(text: &str) -> Result<Self, Error> {
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
        let is_loopback = url.host_str().is_some_and(|host| {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost"
                || host.ends_with(".localhost")
                || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        });
        Ok(Self { text: url.as_str().trim_end_matches('/').to_owned(), is_loopback })
    }

    /// The whole URL of a path that is encoded already.
    pub(crate) fn with(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }
}
