//! Whole objects, and what can be said of them without their bytes.

use std::future::IntoFuture;

use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use fencegate_wire::{ObjectKey, ResourceName};
use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use reqwest::header::HeaderValue;
use reqwest::{Method, StatusCode};

use super::stream::{self, Reader};
use super::{Target, present};
use crate::client::Client;
use crate::clock::now_ms;
use crate::error::{Details, Error};
use crate::transport::request::Request;

/// The largest object that is read whole, unless the call says otherwise.
const SIZE_MAX: u64 = 16 << 20;
/// How often a whole read begins again, because the object changed after the answer broke off.
const RESTARTS_MAX: u32 = 5;

/// What a gateway says of an object beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectHead {
    /// The resource in which it lies.
    pub resource: ResourceName,
    /// Its key.
    pub key: ObjectKey,
    /// Its tag, for `if_match` of a write: it changes with each write.
    pub etag: String,
    /// The version of the resource that wrote it, from the tag.
    pub version: Option<i64>,
    /// The version of the resource when it was read.
    pub resource_version: Option<i64>,
    /// Its content type.
    pub content_type: String,
    /// Its number of bytes.
    pub size: u64,
    /// The SHA-256 of its bytes, in hexadecimal, if the gateway sent it.
    pub sha256: Option<String>,
}

/// An object, whole. Its length was checked, and its SHA-256 if the gateway sent one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// Its bytes.
    pub bytes: Bytes,
    /// The resource in which it lies.
    pub resource: ResourceName,
    /// Its key.
    pub key: ObjectKey,
    /// Its tag, for `if_match` of a write: it changes with each write.
    pub etag: String,
    /// The version of the resource that wrote it, from the tag.
    pub version: Option<i64>,
    /// The version of the resource when it was read.
    pub resource_version: Option<i64>,
    /// Its content type.
    pub content_type: String,
    /// Its number of bytes.
    pub size: u64,
    /// The SHA-256 of its bytes, in hexadecimal, if the gateway sent it.
    pub sha256: Option<String>,
}

impl Object {
    fn new(bytes: Bytes, head: ObjectHead) -> Self {
        Self {
            bytes,
            resource: head.resource,
            key: head.key,
            etag: head.etag,
            version: head.version,
            resource_version: head.resource_version,
            content_type: head.content_type,
            size: head.size,
            sha256: head.sha256,
        }
    }

    /// Its bytes as text.
    ///
    /// # Errors
    /// [`Error::Misuse`]: they are no UTF-8.
    pub fn text(&self) -> Result<&str, Error> {
        let read = std::str::from_utf8(&self.bytes);
        read.map_err(|error| Error::misuse(format!("{:?} is no text: {error}", self.key)))
    }

    /// Its bytes, read as JSON.
    ///
    /// # Errors
    /// [`Error::Misuse`]: they are no JSON, or not of this form.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Error> {
        let read = serde_json::from_slice(&self.bytes);
        read.map_err(|error| {
            Error::misuse(format!("{:?} is not the JSON asked for: {error}", self.key))
        })
    }
}

impl Client {
    /// Reads an object, whole. Awaited as it is, an object that is not there is [`Error::NotFound`].
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Misuse`] for a name that is not allowed, or an object larger than the
    /// limit, which is 16 MiB unless [`Get::limit`] sets another; [`Error::GatewayFault`] if the bytes are not
    /// those that the gateway has; [`Error::Unavailable`] if it could not be read in time.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// # lock.put("total.txt", "total: 110").await?;
    /// let object = client.get("invoices:2026", "total.txt").await?;
    /// assert_eq!(object.text()?, "total: 110");
    /// assert!(client.get("invoices:2026", "missing.txt").optional().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn get(&self, resource: &str, key: &str) -> Get {
        Get { target: Target::new(self, resource, key), limit: SIZE_MAX }
    }

    /// Looks at an object without its bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Misuse`] for a name that is not allowed; [`Error::Unavailable`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// # lock.put("total.txt", "total: 110").await?;
    /// assert_eq!(client.head("invoices:2026", "total.txt").await?.size, 10);
    /// assert!(client.head("invoices:2026", "missing.txt").optional().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn head(&self, resource: &str, key: &str) -> Look {
        Look { target: Target::new(self, resource, key) }
    }
}

/// A read of a whole object; made by [`Client::get`].
#[must_use = "nothing is read before it is awaited"]
pub struct Get {
    target: Result<Target, Error>,
    limit: u64,
}

impl Get {
    /// Refuses objects of more bytes than this; 16 MiB by default. [`Client::open`] reads any, piece by piece.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// The object as the write with this version of the resource left it, while that is kept. If it is kept
    /// no more, that is [`Error::NotFound`] with the code `version-not-retained`.
    pub fn version(mut self, version: i64) -> Self {
        self.target = self.target.and_then(|target| target.at(version));
        self
    }

    /// Reads it; `None` if it is not there.
    ///
    /// # Errors
    /// Those of [`Client::get`], but that.
    pub async fn optional(self) -> Result<Option<Object>, Error> {
        present(self.await)
    }

    /// Reads it, unless its tag is still this one: then it is `None`.
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub async fn if_changed(self, etag: &str) -> Result<Option<Object>, Error> {
        if HeaderValue::from_str(etag).is_err() {
            return Err(Error::misuse("the tag is none"));
        }
        self.fetch(Some(etag)).await
    }

    async fn fetch(self, known: Option<&str>) -> Result<Option<Object>, Error> {
        let target = self.target?;
        let until_ms = target.inner.call_until_ms();
        let mut restarts = 0;
        loop {
            let Some(reader) = stream::open(&target, known, None, until_ms).await? else {
                return Ok(None);
            };
            match whole(reader, self.limit).await {
                // It is a read: what it is now is as good as what it was.
                Err(Error::Changed(_)) if restarts < RESTARTS_MAX && now_ms() < until_ms => {
                    restarts += 1
                }
                read => return read.map(Some),
            }
        }
    }
}

impl IntoFuture for Get {
    type Output = Result<Object, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let unasked = || Error::GatewayFault(Details::local("304 without having been asked"));
        async move { self.fetch(None).await?.ok_or_else(unasked) }.boxed()
    }
}

async fn whole(mut reader: Reader, limit: u64) -> Result<Object, Error> {
    let size = reader.head().size;
    if size > limit {
        let key = &reader.head().key;
        return Err(Error::misuse(format!(
            "{key:?} has {size} bytes, more than the limit of {limit}: read it as a stream, or raise the limit"
        )));
    }
    let mut bytes =
        BytesMut::with_capacity(usize::try_from(size.min(SIZE_MAX)).unwrap_or_default());
    while let Some(piece) = reader.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(Object::new(bytes.freeze(), reader.into_head()))
}

/// A look at an object; made by [`Client::head`].
#[must_use = "nothing is asked before it is awaited"]
pub struct Look {
    target: Result<Target, Error>,
}

impl Look {
    /// As the write with this version of the resource left it, while that is kept.
    pub fn version(mut self, version: i64) -> Self {
        self.target = self.target.and_then(|target| target.at(version));
        self
    }

    /// Looks at it; `None` if it is not there.
    ///
    /// # Errors
    /// Those of [`Client::head`], but that.
    pub async fn optional(self) -> Result<Option<ObjectHead>, Error> {
        present(self.await)
    }
}

impl IntoFuture for Look {
    type Output = Result<ObjectHead, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { look(&self.target?).await }.boxed()
    }
}

async fn look(target: &Target) -> Result<ObjectHead, Error> {
    let request = Request::new(Method::HEAD, target.path());
    let until_ms = target.inner.call_until_ms();
    let is_refusal =
        |status: Option<u16>| status.is_some_and(|status| (400..500).contains(&status));
    match target.inner.call("head", &request, until_ms).await {
        Ok(answer) => target.head(&answer.headers),
        // A refusal of HEAD has no body that says why: the same as GET, without the bytes, has.
        Err(Error::GatewayFault(details)) if is_refusal(details.status) => {
            let request = Request::get(target.path()).header("if-none-match", "*");
            let answer = target.inner.call("head", &request, until_ms).await?;
            match answer.status {
                // It has come into being since.
                StatusCode::NOT_MODIFIED => {
                    let request = Request::new(Method::HEAD, target.path());
                    let answer = target.inner.call("head", &request, until_ms).await?;
                    target.head(&answer.headers)
                }
                _ => Err(Error::GatewayFault(details)),
            }
        }
        Err(error) => Err(error),
    }
}

/// The SHA-256 in `Repr-Digest`, among others or alone.
pub(super) fn sha256_of(header: &str) -> Option<[u8; 32]> {
    let encoded = header.split(',').find_map(|one| one.trim().strip_prefix("sha-256=:"))?;
    let encoded = encoded.split(':').next()?;
    base64::engine::general_purpose::STANDARD.decode(encoded).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_found_among_others() {
        let ours = crate::transport::body::header(&[7; 32]);
        for header in
            [ours.clone(), format!("sha-512=:AAAA:, {ours}"), format!("{ours},md5=:AA==:")]
        {
            assert_eq!(sha256_of(&header), Some([7; 32]), "{header}");
        }
        for header in ["", "sha-256", "sha-256=:AAAA:", "sha-256=:!:", "sha-512=:AAAA:"] {
            assert_eq!(sha256_of(header), None, "{header}");
        }
    }
}
