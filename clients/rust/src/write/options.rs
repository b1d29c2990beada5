//! What all writes of objects can be told: conditions, keys, and for how long they go on.

use std::time::Duration;

use fencegate_wire::ErrorCode;
use reqwest::Method;
use uuid::Uuid;

use super::sending::Prepared;
use crate::clock::ms;
use crate::error::Error;
use crate::guard::held::Held;
use crate::machine::settling::Condition;
use crate::transport::request::Request;

/// For how long the gateway keeps a key that the client made (CC20).
const KEY_KEPT: &str = "1h";
/// The same in milliseconds.
const KEY_KEPT_MS: u64 = 3_600_000;

/// Options of a write.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) if_match: Option<String>,
    pub(super) if_absent: bool,
    pub(super) resource_version: Option<i64>,
    pub(super) key: Option<String>,
    pub(super) within: Option<Duration>,
    pub(super) retries: Option<bool>,
    pub(super) rides_out: bool,
}

impl Options {
    fn condition(&self) -> Condition {
        match (&self.if_match, self.if_absent, self.resource_version) {
            (_, true, _) | (_, _, Some(_)) => Condition::Absence,
            // A star is met by whatever is there by then.
            (Some(tags), false, None) if tags.trim() == "*" => Condition::Absence,
            (Some(_), false, None) => Condition::Tags,
            (None, false, None) => Condition::None,
        }
    }

    /// The request, with all headers that every attempt has.
    pub(super) fn prepare(
        &self,
        held: &Held,
        (call, method, path): (&'static str, Method, String),
        resource: &fencegate_wire::ResourceName,
        condition: Option<Condition>,
    ) -> Result<Prepared, Error> {
        if let Some(key) = &self.key {
            check_key(key)?;
        }
        if self.resource_version.is_some_and(|version| version < 0) {
            return Err(Error::misuse("a version is 0 or more"));
        }
        let is_own_key = self.key.is_none();
        let key = self.key.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        let mut request = Request::new(method, path)
            .header("x-fence-token", &held.token.to_string())
            .header("x-lock-id", &held.id.to_string())
            .header("idempotency-key", &key);
        if is_own_key {
            request = request.header("x-fence-key-kept", KEY_KEPT);
        }
        if let Some(tags) = &self.if_match {
            check_tags(tags)?;
            request = request.header("if-match", tags);
        }
        if self.if_absent {
            request = request.header("if-none-match", "*");
        }
        if let Some(version) = self.resource_version {
            request = request.header("x-if-resource-version", &version.to_string());
        }
        let inner = &held.inner;
        Ok(Prepared {
            call,
            is_own_key,
            object: None,
            request,
            resource: resource.clone(),
            key,
            kept_ms: is_own_key.then_some(KEY_KEPT_MS),
            condition: condition.unwrap_or_else(|| self.condition()),
            within_ms: ms(self.within.unwrap_or(inner.write_within)),
            retries: self.retries.unwrap_or(inner.retries),
            rides_out: self.rides_out,
        })
    }
}

/// The gateway's rules for a key.
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    if !(1..=255).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::misuse("an idempotency key has 1 to 255 visible ASCII characters"));
    }
    Ok(())
}

/// The gateway's rules for the tags of a condition.
pub(super) fn check_tags(tags: &str) -> Result<(), Error> {
    let good = tags == "*" || (tags.starts_with('"') && tags.ends_with('"') && tags.len() > 2);
    if !good || !tags.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        let title = ErrorCode::RequestMalformed.title();
        return Err(Error::misuse(format!(
            "{title}: {tags:?} is no entity tag such as \"g0-v17\""
        )));
    }
    Ok(())
}
