//! Sends one request, and waits for the head of its answer for as long as bytes go out, and a while longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::StreamExt as _;

use super::answer::Nothing;
use super::body::{ByteStream, Sent};
use super::{nothing, unreached};
use crate::clock::{now_ms, sleep_until_ms};

/// Bodies in memory that are larger are sent in pieces, to see how far they got.
const PIECE: usize = 64 << 10;

/// When the last piece of a body went out.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    fn note(&self) {
        self.0.store(now_ms(), Ordering::Relaxed);
    }

    fn at_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a request, and its length if that is known.
pub(super) fn body(sent: Sent, progress: &Progress) -> (reqwest::Body, Option<u64>) {
    match sent {
        Sent::Bytes(bytes) if bytes.len() <= PIECE => {
            let len = bytes.len() as u64;
            (bytes.into(), Some(len))
        }
        Sent::Bytes(bytes) => {
            let len = bytes.len() as u64;
            (noted(pieces(bytes), progress), Some(len))
        }
        Sent::Stream { stream, len: Some(len) } => {
            (noted(exactly(stream, len), progress), Some(len))
        }
        Sent::Stream { stream, len: None } => (noted(stream, progress), None),
    }
}

fn noted(stream: ByteStream, progress: &Progress) -> reqwest::Body {
    let progress = progress.clone();
    reqwest::Body::wrap_stream(stream.inspect(move |_| progress.note()))
}

fn pieces(bytes: Bytes) -> ByteStream {
    let cut = move |mut left: Bytes| async move {
        let piece = left.split_to(left.len().min(PIECE));
        (!piece.is_empty()).then_some((Ok(piece), left))
    };
    futures::stream::unfold(bytes, cut).boxed()
}

/// A stream that gives more or less than was promised breaks the request.
fn exactly(stream: ByteStream, len: u64) -> ByteStream {
    let wrong = |what: &str| std::io::Error::other(format!("the body is {what} than its length"));
    let step = move |state: Option<(ByteStream, u64)>| async move {
        let (mut stream, left) = state?;
        match stream.next().await {
            Some(Ok(piece)) => match left.checked_sub(piece.len() as u64) {
                Some(rest) => Some((Ok(piece), Some((stream, rest)))),
                None => Some((Err(wrong("longer")), None)),
            },
            Some(Err(error)) => Some((Err(error), None)),
            None if left > 0 => Some((Err(wrong("shorter")), None)),
            None => None,
        }
    };
    futures::stream::unfold(Some((stream, len)), step).boxed()
}

/// Sends it, and gives the head of the answer.
pub(super) async fn send(
    client: &reqwest::Client,
    request: reqwest::Request,
    progress: Progress,
    (base, head_ms): (&str, u64),
) -> Result<reqwest::Response, Nothing> {
    progress.note();
    #[cfg(feature = "virtual-clock")]
    let _waiting = crate::attempts::Waiting::begin(&request);
    let answer = client.execute(request);
    tokio::pin!(answer);
    loop {
        let until_ms = progress.at_ms().saturating_add(head_ms);
        tokio::select! {
            biased;
            answer = &mut answer => return answer.map_err(|error| {
                // Its text would have the path, and the path the id of a lock.
                let error = error.without_url();
                let was_sent = !error.is_connect() && !error.is_builder();
                let (unreached, detail) = unreached::why(base, &error);
                Nothing { was_sent, timed_out: error.is_timeout(), unreached, detail }
            }),
            () = sleep_until_ms(until_ms) => {
                if progress.at_ms().saturating_add(head_ms) <= now_ms() {
                    return Err(nothing(true, true, format!("no answer from {base} within {head_ms} ms")));
                }
            }
        }
    }
}
