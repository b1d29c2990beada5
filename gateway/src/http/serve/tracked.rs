//! The bodies of answers, as hyper gets them: they tell when hyper is done with them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::http::receipt::Receipt;
use crate::http::tap::{InFlight, Shared};

/// A body that knows when hyper is done with it.
pub(super) struct Tracked {
    body: Body,
    /// It is a stream of events, which goes on for as long as somebody listens.
    endless: bool,
    /// hyper has got everything, and will write it out before it flushes the stream.
    whole: bool,
    receipt: Option<Receipt>,
    shared: Arc<Shared>,
    _in_flight: InFlight,
}

/// Puts such a body in the place of that of an answer.
pub(super) fn tracked(
    mut response: Response<Body>,
    in_flight: InFlight,
    shared: Arc<Shared>,
) -> Response<Tracked> {
    let receipt = response.extensions_mut().remove::<Receipt>();
    let endless = response.headers().get(header::CONTENT_TYPE).is_some_and(is_events);
    response.map(|body| {
        let whole = body.is_end_stream();
        Tracked { body, endless, whole, receipt, shared, _in_flight: in_flight }
    })
}

fn is_events(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().starts_with(b"text/event-stream")
}

impl Drop for Tracked {
    /// hyper drops a body as soon as its last bytes are in the write buffer, or because the connection
    /// is over.
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take()
            && self.whole
        {
            self.shared.deliver_at_flush(receipt);
        }
    }
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Every poll of the connection polls this: it is seen as soon as it is so.
        if self.endless && self.shared.is_refused() {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.whole = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
