//! Settings that are never shown.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sqlx::postgres::PgConnectOptions;

use super::postgres_url::options_of;

/// What stands in the place of a secret.
const HIDDEN: &str = "***";

/// A text that neither `Debug` nor serialization shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// The URL of a Postgres database; shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Checks the URL. The reason for a refusal never holds a part of it, but for the name of a parameter of libpq's.
    pub fn new(url: impl Into<String>) -> Result<Self, String> {
        let url = url.into();
        options_of(&url).map(|_| Self(url))
    }

    /// The options to connect with. Those that it leaves out may be in variables of libpq's, as they are now.
    ///
    /// # Errors
    /// The URL is no good, which its making has ruled out.
    pub fn options(&self) -> Result<PgConnectOptions, String> {
        options_of(&self.0)
    }

    /// The URL with `***` in the place of its password.
    fn redacted(&self) -> String {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", &self.0));
        // The last `@` of all, so that a password that should have been encoded is hidden as well.
        let rest = match rest.rsplit_once('@') {
            Some((account, place)) => match account.split_once(':') {
                Some((user, _)) => format!("{user}:{HIDDEN}@{place}"),
                None => rest.to_owned(),
            },
            None => rest.to_owned(),
        };
        // A password may also be given as a parameter, under any spelling of its name.
        let rest = match rest.split_once('?') {
            Some((place, query)) => {
                let parameters: Vec<String> = query.split('&').map(redact_parameter).collect();
                format!("{place}?{}", parameters.join("&"))
            }
            None => rest,
        };
        format!("{scheme}://{rest}")
    }
}

/// Keeps a parameter only if its name is plain text that does not speak of a password.
fn redact_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, _)) if name.contains("pass") || name.contains('%') => {
            format!("{name}={HIDDEN}")
        }
        _ => parameter.to_owned(),
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for PostgresUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PostgresUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
