//! Reads a request body, within a size and within a time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use fence_core::ErrorCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::http::problem::Problem;
use crate::http::state::Limits;

/// Refuses a body whose `Content-Length` already tells that it is too large, before a byte of it
/// is read.
pub fn declared_length(headers: &HeaderMap, max: usize) -> Result<(), Problem> {
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<u64>().ok());
    match declared {
        Some(length) if usize::try_from(length).map_or(true, |length| length > max) => {
            Err(too_large(max))
        }
        _ => Ok(()),
    }
}

/// The bytes of a body, and their share of what all bodies together may take. The share is given
/// back with the last copy of the bytes, wherever that is by then.
struct Shared {
    bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads the whole body. Trailers are ignored.
pub async fn read_body(
    mut body: Body,
    max: usize,
    limits: &Limits,
    budget: &Arc<Semaphore>,
) -> Result<Bytes, Problem> {
    let mut share: Option<OwnedSemaphorePermit> = None;
    let end = Instant::now() + limits.body_timeout;
    let mut read = Gathered::default();
    loop {
        let pause = (Instant::now() + limits.body_idle_timeout).min(end);
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let Ok(frame) = timeout_at(pause, frame).await else {
            return Err(Problem::new(
                ErrorCode::RequestTimeout,
                "the body did not arrive in time; nothing was applied",
            )
            .and_close());
        };
        let Some(frame) = frame else {
            let bytes = read.into_bytes();
            return Ok(match share {
                Some(share) => Bytes::from_owner(Shared { bytes, _share: share }),
                None => bytes,
            });
        };
        let frame = frame.map_err(|_| {
            Problem::malformed("the body ended early or is wrongly framed; nothing was applied")
                .and_close()
        })?;
        if let Ok(data) = frame.into_data() {
            if read.len() + data.len() > max {
                return Err(too_large(max).and_close());
            }
            let more = take_share(budget, data.len())?;
            match &mut share {
                Some(share) => share.merge(more),
                None => share = Some(more),
            }
            read.push(data);
        }
    }
}

/// Only what has arrived counts, so a sender that dawdles takes no room from others.
fn take_share(budget: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, Problem> {
    let share = Arc::clone(budget).try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
    share.map_err(|_| {
        Problem::new(
            ErrorCode::Overloaded,
            "all bodies together are too large; nothing was applied",
        )
        .and_close()
    })
}

fn too_large(max: usize) -> Problem {
    Problem::new(ErrorCode::PayloadTooLarge, format!("the body may have at most {max} bytes"))
}

/// The parts of a body; a body of one part, which most are, is never copied.
#[derive(Default)]
struct Gathered {
    first: Bytes,
    rest: BytesMut,
}

impl Gathered {
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
    use std::convert::Infallible;
    use std::time::Duration;

    use futures::stream;

    fn parts(parts: &[&'static str]) -> Body {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok::<_, Infallible>(Bytes::from(*part))).collect();
        Body::from_stream(stream::iter(parts))
    }

    #[tokio::test]
    async fn bodies_are_whole_and_bounded() {
        let limits = Limits::default();
        let budget = Arc::new(Semaphore::new(100));
        let whole = read_body(parts(&["ab", "", "cd", "e"]), 5, &limits, &budget).await.unwrap();
        assert_eq!(whole, "abcde");
        let error = read_body(parts(&["abc", "def"]), 5, &limits, &budget).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::PayloadTooLarge);
        assert_eq!(read_body(Body::empty(), 5, &limits, &budget).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_body_that_stalls_times_out() {
        let budget = Arc::new(Semaphore::new(100));
        let limits = Limits { body_idle_timeout: Duration::from_millis(20), ..Limits::default() };
        let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let error = read_body(stalled, 5, &limits, &budget).await.unwrap_err();
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
        let budget = Arc::new(Semaphore::new(8));
        let first = read_body(parts(&["abc", "def"]), 100, &limits, &budget).await.unwrap();
        let error = read_body(parts(&["abc"]), 100, &limits, &budget).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Overloaded);
        drop(first);
        assert_eq!(read_body(parts(&["abc"]), 100, &limits, &budget).await.unwrap(), "abc");
    }
}
