//! Objects as streams, which go on where they broke off.

use std::future::IntoFuture;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, ReadBuf};

use super::object::{ObjectHead, sha256_of};
use super::{Target, is_absent};
use crate::client::Client;
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::error::{Details, Error};
use crate::hooks::Event;
use crate::machine::backoff::Backoff;
use crate::transport::answer::{Answer, causes};
use crate::transport::request::Request;

/// How often a stream goes on after a break.
const RESUMES_MAX: u32 = 5;

impl Client {
    /// Reads an object of any size, piece by piece. A connection that breaks is made again, up to five times,
    /// and the stream goes on where it was.
    ///
    /// # Errors
    /// Those of [`Client::get`], but for the limit; in the middle also [`Error::Changed`], if the connection
    /// broke and the object is another by now.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("scans:7").acquire().await?;
    /// # lock.put("1.bin", vec![0; 300_000]).await?;
    /// use tokio::io::AsyncReadExt;
    ///
    /// let mut reader = client.open("scans:7", "1.bin").await?;
    /// let mut bytes = Vec::new();
    /// reader.read_to_end(&mut bytes).await?;
    /// assert_eq!(bytes.len(), 300_000);
    /// # Ok(()) }
    /// ```
    pub fn open(&self, resource: &str, key: &str) -> Open {
        Open { target: Target::new(self, resource, key), range: None }
    }
}

/// Some of the bytes of an object: from here, up to and with there, or to the end.
type Range = (u64, Option<u64>);

/// An object to open; made by [`Client::open`].
#[must_use = "nothing is read before it is awaited"]
pub struct Open {
    target: Result<Target, Error>,
    range: Option<Range>,
}

impl Open {
    /// The object as the write with this version of the resource left it, while that is kept.
    pub fn version(mut self, version: i64) -> Self {
        self.target = self.target.and_then(|target| target.at(version));
        self
    }

    /// Only these bytes: from `first`, counted from 0, up to and with `last`, or to the end. If the object has none of
    /// them, that is [`Error::Misuse`] with the code `range-not-satisfiable`. Their SHA-256 is not checked: the gateway
    /// has that of the whole.
    pub fn range(mut self, first: u64, last: impl Into<Option<u64>>) -> Self {
        self.range = Some((first, last.into()));
        self
    }

    /// Opens it, unless its tag is still this one: then it is `None`.
    ///
    /// # Errors
    /// Those of [`Client::open`].
    pub async fn if_changed(self, etag: &str) -> Result<Option<Reader>, Error> {
        if HeaderValue::from_str(etag).is_err() {
            return Err(Error::misuse("the tag is none"));
        }
        let target = self.target?;
        open(&target, Some(etag), self.range, target.inner.call_until_ms()).await
    }
}

impl IntoFuture for Open {
    type Output = Result<Reader, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let unasked = || Error::GatewayFault(Details::local("304 without having been asked"));
        async move {
            let target = self.target?;
            let until_ms = target.inner.call_until_ms();
            open(&target, None, self.range, until_ms).await?.ok_or_else(unasked)
        }
        .boxed()
    }
}

/// Opens it; `None` if its tag is `known`.
pub(super) async fn open(
    target: &Target,
    known: Option<&str>,
    range: Option<Range>,
    until_ms: u64,
) -> Result<Option<Reader>, Error> {
    let mut request = Request::get(target.path());
    if let Some(etag) = known {
        request = request.header("if-none-match", etag);
    }
    if let Some((first, last)) = range {
        let last = last.map(|last| last.to_string()).unwrap_or_default();
        request = request.header("range", &format!("bytes={first}-{last}"));
    }
    let answer = target.inner.call("get", &request, until_ms).await?;
    match answer.status {
        StatusCode::OK => Reader::new(target.clone(), answer, range).map(Some),
        StatusCode::PARTIAL_CONTENT if range.is_some() => {
            Reader::new(target.clone(), answer, range).map(Some)
        }
        StatusCode::NOT_MODIFIED => Ok(None),
        status => Err(unexpected(status)),
    }
}

/// The number of bytes of the whole object, from the answer with a part that begins at `first`.
fn whole_size(answer: &Answer, first: u64) -> Option<u64> {
    let range = answer.header("content-range")?.strip_prefix("bytes ")?;
    let (part, size) = range.split_once('/')?;
    let begin: u64 = part.split_once('-')?.0.parse().ok()?;
    size.parse().ok().filter(|_| begin == first)
}

fn unexpected(status: StatusCode) -> Error {
    Error::GatewayFault(Details::local(format!("an answer that makes no sense here: {status}")))
}

/// The bytes of an object: a `Stream` of pieces, and `AsyncRead`. Their number is checked at the end, and
/// their SHA-256 if the gateway sent it: bytes are good only once the end has come without an error.
pub struct Reader {
    head: ObjectHead,
    pieces: BoxStream<'static, Result<Bytes, Error>>,
    /// Of a piece, what `AsyncRead` had no room for.
    rest: Bytes,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({:?}, {} bytes)", self.head.key, self.head.size)
    }
}

impl Reader {
    fn new(target: Target, answer: Answer, range: Option<Range>) -> Result<Self, Error> {
        let mut head = target.head(&answer.headers)?;
        let (first, last) = range.unwrap_or((0, None));
        let is_part = answer.status == StatusCode::PARTIAL_CONTENT;
        if is_part {
            head.size = whole_size(&answer, first)
                .ok_or_else(|| unexpected(StatusCode::PARTIAL_CONTENT))?;
        }
        let end = last.map_or(head.size, |last| head.size.min(last.saturating_add(1)));
        // That of the whole says nothing of a part.
        let digest = answer.header("repr-digest").and_then(sha256_of).filter(|_| range.is_none());
        let source = Source {
            target,
            head: head.clone(),
            digest: digest.map(|digest| (digest, Sha256::new())),
            answer: Some(answer),
            broke: String::new(),
            at: first,
            end,
            has_range: range.is_some(),
            skip: if is_part { 0 } else { first },
            resumes: 0,
            backoff: Backoff::default(),
        };
        let pieces = stream::try_unfold(source, async |mut source: Source| {
            let piece = source.next().await?;
            Ok(piece.map(|piece| (piece, source)))
        });
        Ok(Self { head, pieces: pieces.boxed(), rest: Bytes::new() })
    }

    /// What the gateway says of the object.
    pub fn head(&self) -> &ObjectHead {
        &self.head
    }

    pub(super) fn into_head(self) -> ObjectHead {
        self.head
    }
}

impl Stream for Reader {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.rest))));
        }
        self.pieces.poll_next_unpin(context)
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.pieces.poll_next_unpin(context)) {
                Some(Ok(piece)) => self.rest = piece,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let len = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(len));
        Poll::Ready(Ok(()))
    }
}

/// Where the bytes come from.
struct Source {
    target: Target,
    head: ObjectHead,
    /// What the digest is to be, and what it is so far.
    digest: Option<([u8; 32], Sha256)>,
    /// `None`: it broke off.
    answer: Option<Answer>,
    broke: String,
    /// Where the next byte lies.
    at: u64,
    /// Where the last one to be given out ends.
    end: u64,
    has_range: bool,
    /// How many bytes of this answer were given out before.
    skip: u64,
    resumes: u32,
    backoff: Backoff,
}

impl Source {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while self.at < self.end {
            let Some(answer) = &mut self.answer else {
                self.resume().await?;
                continue;
            };
            let broke = match tokio::time::timeout(answer.idle, answer.response.chunk()).await {
                Ok(Ok(Some(piece))) => match self.take(piece)? {
                    piece if piece.is_empty() => continue,
                    piece => return Ok(Some(piece)),
                },
                Ok(Ok(None)) => "it ended early".to_owned(),
                Ok(Err(error)) => causes(&error),
                Err(_) => "it stood still".to_owned(),
            };
            (self.answer, self.broke) = (None, broke);
        }
        let is_good = |(digest, hasher): ([u8; 32], Sha256)| hasher.finalize()[..] == digest;
        if self.digest.take().is_none_or(is_good) {
            return Ok(None);
        }
        let text = "the bytes are not those that the gateway has: their SHA-256 is another";
        Err(Error::GatewayFault(Details::local(text)))
    }

    fn take(&mut self, mut piece: Bytes) -> Result<Bytes, Error> {
        let known = usize::try_from(self.skip).unwrap_or(usize::MAX).min(piece.len());
        let mut piece = piece.split_off(known);
        self.skip -= known as u64;
        if self.has_range {
            piece.truncate(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        }
        self.at += piece.len() as u64;
        if self.at > self.head.size {
            let text =
                format!("the answer has more than the {} bytes of the object", self.head.size);
            return Err(Error::GatewayFault(Details::local(text)));
        }
        if let Some((_, hasher)) = &mut self.digest {
            hasher.update(&piece);
        }
        Ok(piece)
    }

    /// Asks for the rest, if it is of the same object.
    async fn resume(&mut self) -> Result<(), Error> {
        let inner = self.target.inner.clone();
        if self.resumes == RESUMES_MAX || !inner.retries {
            let (times, why) = (self.resumes + 1, &self.broke);
            let details =
                *Details::local(format!("the answer broke off, the {times}. time: {why}"));
            return Err(Error::Unavailable(Box::new(Details {
                retryable: true,
                attempts: times,
                ..details
            })));
        }
        self.resumes += 1;
        let (attempt, detail) = (self.resumes, self.broke.clone());
        inner.hooks.tell(&Event::Retry { call: "get", attempt, detail });
        let pause_ms = self.backoff.next(draw(), None, u64::MAX).unwrap_or_default();
        sleep_until_ms(now_ms() + pause_ms).await;
        let last = if self.has_range { (self.end - 1).to_string() } else { String::new() };
        let range = format!("bytes={}-{last}", self.at);
        let request = Request::get(self.target.path()).header("range", &range);
        let request = request.header("if-range", &self.head.etag);
        let answer = match inner.call("get", &request, inner.call_until_ms()).await {
            Ok(answer) => answer,
            Err(error) if is_absent(&error) => return Err(changed()),
            Err(error) => return Err(error),
        };
        if answer.header("etag") != Some(&*self.head.etag) {
            return Err(changed());
        }
        let begins = format!("bytes {}-", self.at);
        let continues =
            answer.header("content-range").is_some_and(|range| range.starts_with(&begins));
        match answer.status {
            StatusCode::PARTIAL_CONTENT if continues => self.skip = 0,
            // Something on the way knows no ranges.
            StatusCode::OK => self.skip = self.at,
            status => return Err(unexpected(status)),
        }
        self.answer = Some(answer);
        Ok(())
    }
}

fn changed() -> Error {
    Error::Changed(Details::local("the object changed after its answer had broken off"))
}
