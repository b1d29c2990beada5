//! Downloads end once their caller may not read any more: when the rules have moved, and when a credential has expired.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header;
use axum::response::Response;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::body::{Frame, SizeHint};

use crate::engine::access::Asks;
use crate::http::proxy::Forwarded;

/// Answers up to this size are under way for no time that matters.
const SMALL_BYTES: u64 = 64 * 1024;

/// The answer to a read. Its body stands still while newer rules are asked, and is cut off if they do not allow it.
pub fn while_allowed(asks: Asks, response: Response) -> Response {
    let is_small = response.body().size_hint().upper().is_some_and(|most| most <= SMALL_BYTES);
    if is_small || is_own_stream(&response) || !asks.is_ruled() || !asks.has_asked() {
        return response;
    }
    let first = asks.clone();
    let watch = Watch::Moves(async move { first.moved().await }.boxed());
    response.map(|body| Body::new(WhileAllowed { asks, watch, body }))
}

/// Tells a stream of the gateway's own events, which ends by itself between two of them, from an object or an answer of an
/// upstream that is of the same type.
fn is_own_stream(response: &Response) -> bool {
    let headers = response.headers();
    let kind = headers.get(header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let is_object = headers.contains_key(header::CONTENT_LENGTH);
    is_stream && !is_object && response.extensions().get::<Forwarded>().is_none()
}

enum Watch {
    /// Nothing speaks against the caller, until this resolves.
    Moves(BoxFuture<'static, ()>),
    /// Newer rules are asked.
    Asks(BoxFuture<'static, bool>),
}

struct WhileAllowed {
    asks: Asks,
    watch: Watch,
    body: Body,
}

impl WhileAllowed {
    /// Tells whether more may be sent.
    fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            let asks = self.asks.clone();
            self.watch = match &mut self.watch {
                Watch::Moves(moved) => match moved.poll_unpin(cx) {
                    Poll::Pending => return Poll::Ready(true),
                    Poll::Ready(()) => {
                        Watch::Asks(async move { asks.still_allowed().await }.boxed())
                    }
                },
                Watch::Asks(is_allowed) => match ready!(is_allowed.poll_unpin(cx)) {
                    true => Watch::Moves(async move { asks.moved_again().await }.boxed()),
                    false => return Poll::Ready(false),
                },
            };
        }
    }
}

impl HttpBody for WhileAllowed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match ready!(self.poll_allowed(cx)) {
            true => Pin::new(&mut self.body).poll_frame(cx),
            false => {
                let why = "the caller may not read this any more";
                Poll::Ready(Some(Err(axum::Error::new(why))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
