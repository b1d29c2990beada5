//! Deletes an object, or all objects of a resource.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::{ObjectKey, OperationId, ResourceName};
use reqwest::Method;

use super::options::Options;
use super::put::options;
use super::sending::{Effect, Receipt, Writing};
use crate::encoding::path;
use crate::error::Error;
use crate::guard::held::Held;

/// A delete; `.await` sends it.
#[must_use = "a write is sent when it is awaited"]
pub struct DeleteBuilder {
    held: Arc<Held>,
    target: Result<(ResourceName, Option<ObjectKey>), Error>,
    options: Options,
}

/// What a delete became.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Deleted {
    /// The resource.
    pub resource: ResourceName,
    /// The object; absent if all were deleted.
    pub key: Option<String>,
    /// The version of the resource that the write became; absent if there was nothing to delete.
    pub version: Option<i64>,
    /// The operation, if the gateway named it.
    pub operation: Option<OperationId>,
    /// Whether it took effect by an earlier attempt.
    pub replayed: bool,
    /// How it went.
    pub receipt: Receipt,
}

impl DeleteBuilder {
    pub(crate) fn new(
        held: Arc<Held>,
        target: Result<(ResourceName, Option<ObjectKey>), Error>,
    ) -> Self {
        Self { held, target, options: Options::default() }
    }

    pub(crate) async fn send(self) -> Result<Deleted, Error> {
        let (resource, key) = self.target?;
        if key.is_none() && (self.options.if_match.is_some() || self.options.if_absent) {
            let text = "If-Match and If-None-Match are about one object; use if_resource_version";
            return Err(Error::misuse(text));
        }
        let path = match &key {
            Some(key) => path::object(&resource, key),
            None => path::resource(&resource),
        };
        let target = ("delete", Method::DELETE, path);
        let mut prepared = self.options.prepare(&self.held, target, &resource, None)?;
        prepared.object = key.as_ref().map(ToString::to_string);
        let (effect, receipt) = Writing::new(self.held, prepared).go().await?;
        let key = key.map(|key| key.to_string());
        Ok(match effect {
            Effect::Answered(answered) => Deleted {
                resource,
                key,
                version: answered.version,
                operation: answered.operation,
                replayed: answered.was_replayed,
                receipt,
            },
            Effect::Found(found) => Deleted {
                resource,
                key,
                version: found.version,
                operation: Some(found.operation),
                replayed: true,
                receipt,
            },
        })
    }
}

options!(DeleteBuilder, Deleted);
