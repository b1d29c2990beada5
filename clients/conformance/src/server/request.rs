//! A request as it was read.

use anyhow::{Context as _, Result};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Which gateway got it, from 0.
    pub gateway: usize,
    /// On which connection.
    pub connection: u64,
    /// The how many-th of the scenario.
    pub order: u64,
    /// Its method.
    pub method: String,
    /// Its path as it was sent, without the query.
    pub path: String,
    /// Its query, without the question mark.
    pub query: String,
    /// Its headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body, as far as it was read.
    pub body: Vec<u8>,
}

impl Request {
    /// A header that is there once; `None` if it is absent or there twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(have, _)| have == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    /// A header that has to be there, once.
    pub fn must(&self, name: &str) -> Result<&str> {
        self.header(name).with_context(|| format!("{} has not one header {name}", self.line()))
    }

    /// Whether there is such a header.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(have, _)| have == name)
    }

    /// Its body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("the body of {} is no JSON", self.line()))
    }

    /// Its body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A value of its query, decoded.
    pub fn queried(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.into_iter().find(|(have, _)| *have == name)?;
        let value = value.replace('+', " ");
        Some(percent_encoding::percent_decode_str(&value).decode_utf8_lossy().into_owned())
    }

    /// The SHA-256 of its body, in hexadecimal.
    pub fn sha256(&self) -> String {
        hex::encode(Sha256::digest(&self.body))
    }

    /// Method, path and query, for messages.
    pub fn line(&self) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{} {}{mark}{}", self.method, self.path, self.query)
    }

    /// Whether it has this method and a path of this form, where `*` stands for one segment and a last `**`
    /// for any number.
    pub fn is(&self, method: &str, form: &str) -> bool {
        self.method == method && fits(&self.path, form)
    }
}

fn fits(path: &str, form: &str) -> bool {
    let mut have = path.split('/');
    for part in form.split('/') {
        match (part, have.next()) {
            ("**", Some(_)) => return true,
            ("*", Some(segment)) if !segment.is_empty() => {}
            (part, Some(segment)) if part == segment => {}
            _ => return false,
        }
    }
    have.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn forms_of_paths() {
        assert!(fits("/locks/1/renew", "/locks/*/renew"));
        assert!(fits("/resources/r/objects/a/b", "/resources/r/objects/**"));
        assert!(!fits("/locks/renew", "/locks/*/renew"));
        assert!(!fits("/locks/1/renew/2", "/locks/*/renew"));
        assert!(!fits("/locks", "/locks/*"));
    }
}
