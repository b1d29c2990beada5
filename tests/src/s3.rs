//! Requests of S3, signed by our own signer, so that whatever is signed and sent can be made wrong on purpose.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fence_core::wire::{Lock, S3Access};
use fencegate_s3::sign::chunked::{Encoder, Seed};
use fencegate_s3::sign::{PayloadHash, RequestHead, Signer};
use jiff::Timestamp;
use reqwest::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder};
use sha2::{Digest as _, Sha256};

use crate::client::encode;
use crate::raw::{RawAnswer, RawConnection};

/// Any region is served.
const REGION: &str = "us-east-1";

/// An access key.
#[derive(Debug, Clone)]
pub struct Key {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl Key {
    /// The key of a lock, which must have come with one.
    pub fn of(lock: &Lock) -> Self {
        lock.s3.as_ref().expect("a resource of the lock lies in a bucket").into()
    }

    fn signer(&self) -> Signer<'_> {
        Signer { id: &self.id, secret: &self.secret, region: REGION }
    }
}

impl From<&S3Access> for Key {
    fn from(access: &S3Access) -> Self {
        let S3Access { access_key_id, secret_access_key, .. } = access;
        Self { id: access_key_id.clone(), secret: secret_access_key.clone() }
    }
}

/// A request that is being put together.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is signed and sent"]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, encoded.
    pub path: String,
    /// The query without its question mark, encoded.
    pub query: String,
    /// Headers of its own.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// Any request to what lies at this path, such as `/bucket/a/key`, which is encoded here.
    pub fn new(method: Method, path: &str) -> Self {
        let (path, query) = (encode(path, b"/"), String::new());
        Self { method, path, query, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// `PutObject`.
    pub fn put(path: &str, body: impl Into<Bytes>) -> Self {
        Self::new(Method::PUT, path).body(body)
    }

    /// `GetObject`, or a list.
    pub fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    /// `DeleteObject`.
    pub fn delete(path: &str) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// `CreateMultipartUpload`.
    pub fn begin(path: &str) -> Self {
        Self::new(Method::POST, path).word("uploads")
    }

    /// `UploadPart`.
    pub fn part(path: &str, upload: &str, number: usize, body: impl Into<Bytes>) -> Self {
        let part = Self::put(path, body).query("partNumber", &number.to_string());
        part.query("uploadId", upload)
    }

    /// `CompleteMultipartUpload` with these tags of parts, which count up from 1.
    pub fn complete(path: &str, upload: &str, tags: &[String]) -> Self {
        Self::new(Method::POST, path).query("uploadId", upload).body(list_of_parts(tags))
    }

    /// `AbortMultipartUpload`.
    pub fn abort(path: &str, upload: &str) -> Self {
        Self::delete(path).query("uploadId", upload)
    }

    /// `DeleteObjects` of these keys of a bucket.
    pub fn delete_many(bucket: &str, keys: &[&str]) -> Self {
        let objects: String =
            keys.iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
        let delete = Self::new(Method::POST, &format!("/{bucket}")).word("delete");
        delete.body(format!("<Delete>{objects}</Delete>"))
    }

    /// `CopyObject` of what lies at `source`.
    pub fn copy(path: &str, source: &str) -> Self {
        Self::put(path, "").header("x-amz-copy-source", &encode(source, b"/"))
    }

    /// Adds a parameter to the query.
    pub fn query(mut self, name: &str, value: &str) -> Self {
        let between = if self.query.is_empty() { "" } else { "&" };
        self.query.push_str(&format!("{between}{}={}", encode(name, b""), encode(value, b"")));
        self
    }

    /// Adds a parameter without a value.
    pub fn word(self, name: &str) -> Self {
        self.query(name, "")
    }

    /// Adds a header, which will be signed.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.append(header_name(name), header_value(value));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Names the call that this is an attempt of, as SDKs do.
    pub fn call_id(self, id: &str) -> Self {
        self.header("amz-sdk-invocation-id", id)
    }

    /// Signs it, with the digest of its body, for a gateway of this address.
    pub fn sign(self, to: SocketAddr, key: &Key) -> Signed {
        let digest = PayloadHash::Sha256(Sha256::digest(&self.body).into());
        self.sign_as(to, key, digest, Timestamp::now()).0
    }

    /// Signs it at this time, and says this of its body; with it comes what signatures of chunks begin with. A `Host` of its
    /// own stays.
    pub fn sign_as(
        mut self,
        to: SocketAddr,
        key: &Key,
        payload: PayloadHash,
        at: Timestamp,
    ) -> (Signed, Seed) {
        self.name_host(to);
        let (more, seed) =
            key.signer().sign(&self.head(), payload, at).expect("the request can be signed");
        for (name, value) in more {
            self.headers.extend(name.map(|name| (name, value)));
        }
        (self.signed(), seed)
    }

    /// Signs it with its body in chunks of this length, and with what comes behind them. What it says of its length by itself
    /// stays.
    pub fn sign_chunks(
        self,
        to: SocketAddr,
        key: &Key,
        length: usize,
        with: Trailer<'_>,
    ) -> Signed {
        let bytes = self.body.clone();
        let (signed, trailers) = match with {
            Trailer::None => (true, None),
            Trailer::Signed(name, value) => (true, Some([(name, value)])),
            Trailer::Unsigned(name, value) => (false, Some([(name, value)])),
        };
        let mut request = self.header("content-encoding", "aws-chunked");
        let length_of_all = header_value(&bytes.len().to_string());
        request.headers.entry("x-amz-decoded-content-length").or_insert(length_of_all);
        if let Some([(name, _)]) = trailers {
            request = request.header("x-amz-trailer", name);
        }
        let payload = PayloadHash::Chunked { signed, trailer: trailers.is_some() };
        let (mut head, seed) = request.sign_as(to, key, payload, Timestamp::now());
        let mut encoder = Encoder::new(signed.then_some(seed));
        let mut body: Vec<u8> = bytes.chunks(length).flat_map(|it| encoder.chunk(it)).collect();
        body.extend(encoder.end(trailers.as_ref().map(|one| one.as_slice())));
        head.body = body.into();
        head
    }

    /// Makes a URL of it that is good for so many seconds from this time on.
    pub fn presign(mut self, to: SocketAddr, key: &Key, expires_s: u32, at: Timestamp) -> Signed {
        self.name_host(to);
        let query = key.signer().presign(&self.head(), expires_s, at);
        self.query = query.expect("the request can be signed");
        self.signed()
    }

    fn name_host(&mut self, to: SocketAddr) {
        self.headers.entry(HOST).or_insert_with(|| header_value(&to.to_string()));
    }

    fn head(&self) -> RequestHead<'_> {
        RequestHead {
            method: &self.method,
            raw_path: &self.path,
            raw_query: &self.query,
            headers: &self.headers,
        }
    }

    fn signed(self) -> Signed {
        let Self { method, path, query, headers, body } = self;
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        Signed { method, target, headers, body }
    }
}

/// What comes behind a body in chunks.
#[derive(Debug, Clone, Copy)]
pub enum Trailer<'a> {
    /// Nothing; the chunks are signed.
    None,
    /// This header line, signed like the chunks.
    Signed(&'a str, &'a str),
    /// This header line; nothing is signed.
    Unsigned(&'a str, &'a str),
}

/// A request that was signed. Whatever is changed in it is not what was signed.
#[derive(Debug, Clone)]
pub struct Signed {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// The headers, but for the length of the body.
    pub headers: HeaderMap,
    /// The body as it goes over the wire.
    pub body: Bytes,
}

impl Signed {
    /// Sets a header that the signature does not cover, or covers with another value.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(header_name(name), header_value(value));
        self
    }

    /// The head as it goes over the wire, with this length of the body.
    pub fn head(&self, length: usize) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        if length > 0 || !matches!(self.method, Method::GET | Method::HEAD | Method::DELETE) {
            head.extend(format!("content-length: {length}\r\n").into_bytes());
        }
        head.extend(b"\r\n");
        head
    }

    /// Sends it over a connection of its own; `None` if the gateway closes that without an answer.
    pub async fn try_send(&self, to: SocketAddr) -> Option<RawAnswer> {
        let mut connection = RawConnection::open(to).await;
        connection.send(&self.head(self.body.len())).await;
        connection.send(&self.body).await;
        match self.method {
            Method::HEAD => connection.head_answer().await,
            _ => connection.answer().await,
        }
    }

    /// Sends it over a connection of its own.
    pub async fn send(&self, to: SocketAddr) -> RawAnswer {
        let answer = self.try_send(to).await;
        answer.unwrap_or_else(|| panic!("{} {}: no answer", self.method, self.target))
    }

    /// The same for a client library that keeps connections.
    pub fn request(self, http: &reqwest::Client, base: &str) -> RequestBuilder {
        let url = format!("{base}{}", self.target);
        http.request(self.method, url).headers(self.headers).body(self.body)
    }
}

/// The SHA-256 of a body, as checksums are written.
pub fn sha256_of(body: &[u8]) -> String {
    STANDARD.encode(Sha256::digest(body))
}

/// The body of `CompleteMultipartUpload`.
pub fn list_of_parts(tags: &[String]) -> String {
    let parts: String = (1..)
        .zip(tags)
        .map(|(number, tag)| {
            let tag = tag.replace('"', "&quot;");
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
        })
        .collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

/// The texts of all elements of this name, as they stand in a document.
pub fn texts<'a>(document: &'a str, element: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let pieces = document.split(open.as_str()).skip(1);
    pieces.filter_map(|piece| piece.split_once(close.as_str()).map(|(text, _)| text)).collect()
}

/// The text of the first element of this name.
pub fn text_of<'a>(document: &'a str, element: &str) -> Option<&'a str> {
    texts(document, element).first().copied()
}

fn header_name(name: &str) -> HeaderName {
    name.parse().expect("a name of a header")
}

fn header_value(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).expect("a value of a header")
}
