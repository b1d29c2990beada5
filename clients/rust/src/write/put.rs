//! Puts an object.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::{ObjectKey, OperationId, ResourceName, json};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};

use super::options::Options;
use super::sending::{Answered, Effect, Receipt, Writing};
use crate::encoding::path;
use crate::error::{Details, Error};
use crate::guard::held::Held;
use crate::transport::body::Body;

/// A put; `.await` sends it.
#[must_use = "a write is sent when it is awaited"]
pub struct PutBuilder {
    held: Arc<Held>,
    target: Result<(ResourceName, ObjectKey), Error>,
    body: Body,
    content_type: Option<String>,
    has_digest: bool,
    options: Options,
}

/// What a put became.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Written {
    /// The resource.
    pub resource: ResourceName,
    /// The object.
    pub key: String,
    /// The version of the resource that the write became.
    pub version: i64,
    /// The object's tag; absent if the write was looked up afterwards.
    pub etag: Option<String>,
    /// The number of bytes stored; absent if the record or the answer does not say it.
    pub size: Option<i64>,
    /// The SHA-256 of the bytes stored, in hexadecimal, if the gateway knows it.
    pub sha256: Option<String>,
    /// The operation.
    pub operation: OperationId,
    /// Whether the object is a new one; absent if the write was looked up afterwards.
    pub created: Option<bool>,
    /// Whether it took effect by an earlier attempt.
    pub replayed: bool,
    /// How it went.
    pub receipt: Receipt,
}

impl PutBuilder {
    pub(crate) fn new(
        held: Arc<Held>,
        target: Result<(ResourceName, ObjectKey), Error>,
        body: Body,
    ) -> Self {
        let (content_type, options) = (None, Options::default());
        Self { held, target, body, content_type, has_digest: true, options }
    }

    /// The type of the bytes; by default `application/octet-stream`.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Without `Repr-Digest`, which costs a reading of the body before it is sent.
    pub fn without_digest(mut self) -> Self {
        self.has_digest = false;
        self
    }

    pub(crate) async fn send(self) -> Result<Written, Error> {
        let (resource, key) = self.target?;
        let target = ("put", Method::PUT, path::object(&resource, &key));
        let mut prepared = self.options.prepare(&self.held, target, &resource, None)?;
        let content_type = match &self.content_type {
            Some(content_type) => checked_content_type(content_type)?,
            None => HeaderValue::from_static("application/octet-stream"),
        };
        prepared.request.headers.insert(CONTENT_TYPE, content_type);
        if self.has_digest
            && let Some(digest) = self.body.digest().await?
        {
            prepared.request = prepared.request.header("repr-digest", &digest);
        }
        prepared.request.body = Some(self.body);
        prepared.object = Some(key.to_string());
        let writing = Writing::new(self.held, prepared);
        let (effect, receipt) = writing.go().await?;
        written(resource, key, effect, receipt)
    }
}

/// The gateway's rules for a content type.
pub(super) fn checked_content_type(text: &str) -> Result<HeaderValue, Error> {
    let good = (1..=255).contains(&text.len()) && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    let wrong = || Error::misuse("a content type has 1 to 255 visible ASCII characters and spaces");
    if !good {
        return Err(wrong());
    }
    HeaderValue::from_str(text).map_err(|_| wrong())
}

fn written(
    resource: ResourceName,
    key: ObjectKey,
    effect: Effect,
    receipt: Receipt,
) -> Result<Written, Error> {
    let key = key.to_string();
    match effect {
        Effect::Answered(answered) => {
            let Answered { operation, version, etag, was_created, was_replayed, body } = answered;
            let read = serde_json::from_slice::<json::Written>(&body).ok();
            let version = read.as_ref().map(|read| read.version).or(version);
            let operation = read.as_ref().map(|read| read.operation).or(operation);
            let (Some(version), Some(operation)) = (version, operation) else {
                let text = "the write took effect, but its answer does not say as which operation";
                return Err(Error::GatewayFault(Details::local(text)));
            };
            Ok(Written {
                resource,
                key,
                version,
                etag,
                size: read.as_ref().map(|read| read.size),
                sha256: read.and_then(|read| read.sha256),
                operation,
                created: Some(was_created),
                replayed: was_replayed,
                receipt,
            })
        }
        Effect::Found(found) => Ok(Written {
            resource,
            key,
            version: found.version.unwrap_or_default(),
            etag: None,
            size: found.size,
            sha256: found.sha256,
            operation: found.operation,
            created: None,
            replayed: true,
            receipt,
        }),
    }
}

/// The options that puts and deletes of objects share.
macro_rules! options {
    ($builder:ident, $output:ty) => {
        impl $builder {
            /// Only if the object carries this tag, such as `"g0-v17"` with its quotes; `*`: if it is there.
            pub fn if_match(mut self, tag: impl Into<String>) -> Self {
                self.options.if_match = Some(tag.into());
                self
            }

            /// Only if the object is not there.
            pub fn if_absent(mut self) -> Self {
                self.options.if_absent = true;
                self
            }

            /// Only if the resource is at this version.
            pub fn if_resource_version(mut self, version: i64) -> Self {
                self.options.resource_version = Some(version);
                self
            }

            /// A key of one's own, such as the id of a message: with it the write takes effect once, however
            /// often it is made.
            pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
                self.options.key = Some(key.into());
                self
            }

            /// For how long it goes on; by default as the client says.
            pub fn within(mut self, within: Duration) -> Self {
                self.options.within = Some(within);
                self
            }

            /// One attempt, whatever comes of it.
            pub fn no_retries(mut self) -> Self {
                self.options.retries = Some(false);
                self
            }

            /// Waits while an operator has the resource frozen.
            pub fn ride_out(mut self) -> Self {
                self.options.rides_out = true;
                self
            }
        }

        impl IntoFuture for $builder {
            type Output = Result<$output, Error>;
            type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin(self.send())
            }
        }
    };
}
pub(super) use options;
options!(PutBuilder, Written);
