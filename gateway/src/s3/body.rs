//! Reads the body of a write: into memory or into the store, out of its chunks, and held against all that was signed and
//! sent of it. Nothing of it is seen by anybody before that.

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use fence_core::ErrorCode;
use fencegate_s3::checksum::{Algorithm, Checksum};
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::sign::chunked::{Announced, Decoder, Trailers};
use fencegate_s3::sign::{PayloadHash, Verified};
use sha2::{Digest as _, Sha256};

use super::checksums::Checks;
use super::failure::Failure;
use crate::engine::{PutBody, UploadHead};
use crate::http::extract::{Chunks, Digests, Gathering, Incoming, content_length};
use crate::http::peers::Counted;
use crate::http::routes::{refused, upload};
use crate::http::{App, Limits, Problem};

/// A body of at most so many bytes is read although nobody wants it.
const IGNORED_MAX: u64 = 64 << 10;
/// The longest body of one request, in bytes, as on S3.
const BODY_BYTES_MAX: u64 = 5 << 30;

/// A body that is on its way, and what it has to be.
pub struct Payload {
    incoming: Incoming,
    /// What came of the wire, and was not looked at yet.
    wire: Bytes,
    decoder: Option<Decoder>,
    checks: Checks,
    /// How many bytes it has, as its head says.
    length: u64,
    /// Whether the client waits to be told that its body is wanted.
    expects: bool,
    /// What was wrong with it, where only a problem can be told.
    failed: Option<Failure>,
}

/// A body that has come whole, and is what was signed and sent.
pub struct Read {
    /// The bytes, or what they were uploaded as.
    pub body: PutBody,
    /// The checksum that was sent of it.
    pub checksum: Option<Checksum>,
}

impl Payload {
    /// How the checksum that comes with it is made.
    pub fn checksum_algorithm(&self) -> Option<Algorithm> {
        self.checks.algorithm()
    }

    /// Looks at what the head says of the body.
    ///
    /// # Errors
    /// It does not say how long it is, is too long, or says what cannot be.
    pub fn new(
        body: Body,
        headers: &HeaderMap,
        verified: Verified,
        limits: &Limits,
    ) -> Result<Self, Failure> {
        let checks = Checks::of(verified.payload, headers)?;
        let (decoder, length) = match verified.payload {
            PayloadHash::Chunked { trailer, .. } => {
                let announced = Announced::of(headers, trailer)?;
                let length = announced.length;
                (Some(Decoder::new(announced, verified.seed, trailer)), length)
            }
            PayloadHash::Sha256(_) | PayloadHash::Unsigned => {
                let length = content_length(headers).ok_or(S3Code::MissingContentLength);
                (None, length.map_err(|code| Failure::from(code).and_close())?)
            }
        };
        let most = BODY_BYTES_MAX.min(limits.object_bytes_max);
        if length > most {
            let error = S3Error::from(S3Code::EntityTooLarge)
                .with("ProposedSize", length.to_string())
                .with("MaxSizeAllowed", most.to_string());
            return Err(Failure::from(error).and_close());
        }
        let expects = headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let incoming = Incoming::new(body, limits, limits.body_timeout);
        let (wire, failed) = (Bytes::new(), None);
        Ok(Self { incoming, wire, decoder, checks, length, expects, failed })
    }

    /// How many bytes it has, as its head says.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The next piece of payload; `None` at the end of the body.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(decoder) = &mut self.decoder
                && let Some(piece) = decoder.decode(&mut self.wire)?
            {
                self.checks.update(&piece);
                return Ok(Some(piece));
            }
            let more = self.incoming.next().await.map_err(broken_off)?;
            let Some(more) = more else { return Ok(None) };
            if self.decoder.is_none() {
                self.checks.update(&more);
                return Ok(Some(more));
            }
            self.wire = more;
        }
    }

    /// Holds all of it against what was signed and sent.
    fn finish(self, sha256: &[u8; 32]) -> Result<Option<Checksum>, Failure> {
        let trailers = self.decoder.map(Decoder::end).transpose()?;
        self.checks.finish(sha256, trailers.as_ref().map(|trailers: &Trailers| trailers))
    }

    /// Reads it.
    ///
    /// 1. What was refused for good before is refused again; a small body is let pass by, so that the next request finds its
    ///    connection.
    /// 2. Where the client waits for it, or much would come: a write that is refused for good is refused before a byte is
    ///    read.
    /// 3. What fits into the ledger is read into memory, the rest into the store.
    /// 4. All of it is held against what was signed and sent. What does not match is given up.
    ///
    /// # Errors
    /// As named; what the body itself comes to. Nothing was applied.
    pub async fn read(
        mut self,
        app: &App,
        head: &UploadHead,
        counted: &Counted,
    ) -> Result<Read, Failure> {
        let limits = &app.limits;
        // Step 1.
        if let Err(failure) = Box::pin(app.engine.refuse_again(head)).await {
            let failure = Failure::from(refused(head, failure));
            if self.expects || self.length > IGNORED_MAX {
                return Err(failure.and_close());
            }
            while self.incoming.next().await?.is_some() {}
            return Err(failure);
        }
        let large = self.length > limits.inline_bytes_max as u64;
        // Step 2. A large one is asked for when its upload begins; a small one costs less than to ask.
        if self.expects && !large && self.length > IGNORED_MAX {
            let early = Box::pin(app.engine.refuse_early(head)).await;
            early.map_err(|failure| Failure::from(refused(head, failure)).and_close())?;
        }
        // Steps 3 and 4.
        if large {
            return Box::pin(self.upload(app, head, counted)).await;
        }
        let bytes = self.gather(app, counted).await?;
        let sha256 = Sha256::digest(&bytes).into();
        let checksum = self.finish(&sha256)?;
        Ok(Read { body: PutBody::Digested(bytes, sha256), checksum })
    }

    /// Reads it into the store, whatever its size.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn upload(
        mut self,
        app: &App,
        head: &UploadHead,
        counted: &Counted,
    ) -> Result<Read, Failure> {
        self.incoming.upload(&app.limits);
        let size = Some(self.length);
        let none = (Digests::default(), Bytes::new());
        let uploaded = upload(app, head, (size, counted), none.0, none.1, &mut self).await;
        let body = match (uploaded, self.failed.take()) {
            (_, Some(failed)) => return Err(failed.and_close()),
            (Err(problem), None) => return Err(Failure::from(problem).and_close()),
            (Ok(body), None) => body,
        };
        let PutBody::Uploaded(uploaded) = &body else { return Ok(Read { body, checksum: None }) };
        let checksum = self.finish(&uploaded.sha256.clone())?;
        Ok(Read { body, checksum })
    }

    /// All of it, of which its head says that it fits into memory.
    async fn gather(&mut self, app: &App, counted: &Counted) -> Result<Bytes, Failure> {
        let mut read = Gathering::default();
        let purse = app.room.bodies.of(counted);
        while let Some(piece) = self.next().await? {
            read.push(piece, purse)?;
            if read.size() as u64 > self.length {
                return Err(Failure::from(S3Code::IncompleteBody).and_close());
            }
        }
        match read.size() as u64 == self.length {
            true => Ok(read.into_bytes()),
            false => Err(Failure::from(S3Code::IncompleteBody).and_close()),
        }
    }
}

/// A body of which less came than its head says, as S3 tells it.
fn broken_off(problem: Problem) -> Failure {
    let is_broken_off = problem.code() == ErrorCode::RequestMalformed;
    let failure = Failure::from(problem);
    if is_broken_off { failure.told_as(S3Code::IncompleteBody) } else { failure }
}

#[async_trait]
impl Chunks for Payload {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        self.next().await.map_err(|failure| {
            self.failed = Some(failure);
            Problem::malformed("the body is not what it should be")
        })
    }
}

/// Reads a document that a request brings.
///
/// # Errors
/// It is too long, or not what was signed.
pub async fn document(
    body: Body,
    headers: &HeaderMap,
    verified: Verified,
    app: &App,
    counted: &Counted,
) -> Result<Bytes, Failure> {
    let most = fencegate_s3::xml::read::BODY_BYTES_MAX;
    let is_empty =
        content_length(headers).is_none() && !headers.contains_key(header::TRANSFER_ENCODING);
    if is_empty && !matches!(verified.payload, PayloadHash::Chunked { .. }) {
        return Ok(Bytes::new());
    }
    let mut payload = Payload::new(body, headers, verified, &app.limits)?;
    if payload.length > most as u64 {
        return Err(Failure::from(S3Code::MaxMessageLengthExceeded).and_close());
    }
    let bytes = payload.gather(app, counted).await?;
    payload.finish(&Sha256::digest(&bytes).into())?;
    Ok(bytes)
}
