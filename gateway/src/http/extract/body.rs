//! Reads a request body, within a size and within a time.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use fence_core::ErrorCode;

use crate::http::budget::{Purse, Share};
use crate::http::problem::Problem;
use crate::http::rate::Pace;
use crate::http::state::Limits;

/// `Content-Length`, if there is one; that it is well-formed the server has checked.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Refuses a body whose `Content-Length` already tells that it is too large, before a byte of it
/// is read.
pub fn declared_length(headers: &HeaderMap, max: usize) -> Result<(), Problem> {
    match content_length(headers) {
        Some(length) if length > max as u64 => Err(too_large(max as u64)),
        _ => Ok(()),
    }
}

/// The bytes of a body, and their share of what all bodies together may take. The share is given
/// back with the last copy of the bytes, wherever that is by then.
struct Shared {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that is being read, within times. Trailers are ignored.
pub struct Incoming {
    body: Body,
    pace: Pace,
}

/// Bytes that come in pieces.
#[async_trait]
pub trait Chunks: Send {
    /// The next piece; `None` at the end.
    async fn chunk(&mut self) -> Result<Option<Bytes>, Problem>;
}

#[async_trait]
impl Chunks for Incoming {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        self.next().await
    }
}

/// What was read of a body.
pub enum Gathered {
    /// All of it.
    Whole(Bytes),
    /// As much as was asked for, or a little more; more is to come.
    More(Bytes),
}

impl Incoming {
    /// A body that may take so long in all.
    pub fn new(body: Body, limits: &Limits, whole: Duration) -> Self {
        Self { body, pace: Pace::within(limits.body_idle_timeout, whole) }
    }

    /// From now on it is an upload: it may take long in all, but not come too slowly.
    pub fn upload(&mut self, limits: &Limits) {
        self.pace.upload(limits);
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx));
            let Some(frame) = self.pace.wait(frame).await else {
                return Err(Problem::new(
                    ErrorCode::RequestTimeout,
                    "the body did not arrive in time, or came too slowly; nothing was applied",
                )
                .and_close());
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|_| {
                Problem::malformed("the body ended early or is wrongly framed; nothing was applied")
                    .and_close()
            })?;
            if let Ok(data) = frame.into_data() {
                self.pace.moved(data.len());
                return Ok(Some(data));
            }
        }
    }

    /// Reads until the end, or until more than `max` bytes have come. What is kept takes its share of
    /// what all bodies together may take.
    pub async fn gather(&mut self, max: usize, purse: Purse<'_>) -> Result<Gathered, Problem> {
        let mut read = Gathering::default();
        while let Some(data) = self.next().await? {
            read.push(data, purse)?;
            if read.size() > max {
                return Ok(Gathered::More(read.into_bytes()));
            }
        }
        Ok(Gathered::Whole(read.into_bytes()))
    }
}

/// Bytes as they gather, with their share of what all bodies together may take.
#[derive(Default)]
pub struct Gathering {
    share: Option<Share>,
    read: Parts,
}

impl Gathering {
    /// Takes more.
    pub fn push(&mut self, data: Bytes, purse: Purse<'_>) -> Result<(), Problem> {
        let more = purse.take(data.len())?;
        match &mut self.share {
            Some(share) => share.merge(more),
            None => self.share = Some(more),
        }
        self.read.push(data);
        Ok(())
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.read.len()
    }

    /// The bytes, which give their share back once nobody has them any more.
    pub fn into_bytes(self) -> Bytes {
        let bytes = self.read.into_bytes();
        match self.share {
            Some(share) => Bytes::from_owner(Shared { bytes, _share: share }),
            None => bytes,
        }
    }
}

/// Reads the whole body.
pub async fn read_body(
    body: Body,
    max: usize,
    limits: &Limits,
    purse: Purse<'_>,
) -> Result<Bytes, Problem> {
    match Incoming::new(body, limits, limits.body_timeout).gather(max, purse).await? {
        Gathered::Whole(bytes) => Ok(bytes),
        Gathered::More(_) => Err(too_large(max as u64).and_close()),
    }
}

/// What a body is told that is too large.
pub fn too_large(max: u64) -> Problem {
    Problem::new(ErrorCode::PayloadTooLarge, format!("the body may have at most {max} bytes"))
}

/// The parts of a body; a body of one part, which most are, is never copied.
#[derive(Default)]
struct Parts {
    first: Bytes,
    rest: BytesMut,
}

impl Parts {
    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.first.is_empty() {
            self.first = data;
        } else {
            self.rest.extend_from_slice(&data);
        }
    }

    fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() {
            return self.first;
        }
        let mut whole = BytesMut::with_capacity(self.len());
        whole.extend_from_slice(&self.first);
        whole.extend_from_slice(&self.rest);
        whole.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::peers::Counted;
    use std::convert::Infallible;

    use futures::stream;

    use crate::http::budget::Budget;

    fn parts(parts: &[&'static str]) -> Body {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok::<_, Infallible>(Bytes::from(*part))).collect();
        Body::from_stream(stream::iter(parts))
    }

    #[tokio::test]
    async fn bodies_are_whole_and_bounded() {
        let limits = Limits::default();
        let budget = Budget::new(100, 100);
        let whole =
            read_body(parts(&["ab", "", "cd", "e"]), 5, &limits, budget.of(&Counted::Nobody))
                .await
                .unwrap();
        assert_eq!(whole, "abcde");
        let error = read_body(parts(&["abc", "def"]), 5, &limits, budget.of(&Counted::Nobody))
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::PayloadTooLarge);
        assert_eq!(
            read_body(Body::empty(), 5, &limits, budget.of(&Counted::Nobody)).await.unwrap(),
            ""
        );
    }

    #[tokio::test]
    async fn a_body_that_stalls_times_out() {
        let budget = Budget::new(100, 100);
        let limits = Limits { body_idle_timeout: Duration::from_millis(20), ..Limits::default() };
        let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let error = read_body(stalled, 5, &limits, budget.of(&Counted::Nobody)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::RequestTimeout);
    }

    #[test]
    fn a_declared_length_is_enough_to_refuse() {
        let mut headers = HeaderMap::new();
        assert!(declared_length(&headers, 5).is_ok());
        for (length, fits) in [("5", true), ("6", false), ("18446744073709551615", false)] {
            headers.insert(header::CONTENT_LENGTH, length.parse().unwrap());
            assert_eq!(declared_length(&headers, 5).is_ok(), fits, "{length}");
        }
    }

    #[tokio::test]
    async fn all_bodies_together_stay_within_their_share() {
        let limits = Limits::default();
        let budget = Budget::new(8, 8);
        let first = read_body(parts(&["abc", "def"]), 100, &limits, budget.of(&Counted::Nobody))
            .await
            .unwrap();
        let error = read_body(parts(&["abc"]), 100, &limits, budget.of(&Counted::Nobody))
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::Overloaded);
        drop(first);
        assert_eq!(
            read_body(parts(&["abc"]), 100, &limits, budget.of(&Counted::Nobody)).await.unwrap(),
            "abc"
        );
    }
}
