//! The feed of committed writes as an iterator that goes on across broken connections.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use fencegate_wire::json::WriteEvent;
use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt as _};

use super::following::{Following, lock};
use crate::client::{Client, Inner};
use crate::error::Error;

/// What to do where the place in the feed is void, since the ledger was re-fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnVoid {
    /// End with [`Error::CursorVoid`].
    #[default]
    Fail,
    /// Say so with [`FeedEvent::Void`], and go on behind it.
    Continue,
}

/// Something in the feed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FeedEvent {
    /// A committed write.
    Write(WriteEvent),
    /// The place in the feed was void, and it goes on behind another: writes that were told before may have
    /// been lost, so whatever was built from them is to be checked.
    Void {
        /// Where it goes on.
        begin_after: String,
    },
}

impl FeedEvent {
    /// The place to go on behind, for [`Events::after`]. Keep it once the event was dealt with.
    pub fn cursor(&self) -> &str {
        match self {
            Self::Write(write) => &write.event,
            Self::Void { begin_after } => begin_after,
        }
    }

    /// The write, if it is one.
    pub fn write(&self) -> Option<&WriteEvent> {
        match self {
            Self::Write(write) => Some(write),
            Self::Void { .. } => None,
        }
    }
}

impl Client {
    /// The feed of committed writes of all resources: each once, and those of one resource in the order of
    /// their versions. From the beginning, unless [`Events::after`] or [`Events::from_now`] says otherwise.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// # lock.put("total.txt", "110").await?;
    /// # let cursor: Option<String> = None;
    /// let mut events = client.events().after(cursor).stream();
    /// while let Some(event) = events.next().await.transpose()? {
    ///     if let Some(write) = event.write() {
    ///         println!("{} is at version {}", write.resource, write.version);
    ///     }
    ///     // Deal with it, then keep `event.cursor()`.
    /// #   break;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> Events {
        Events { inner: self.inner.clone(), after: None, on_void: OnVoid::Fail }
    }
}

/// A place in the feed from which to follow it; made by [`Client::events`].
#[must_use = "nothing is read before `stream`"]
pub struct Events {
    inner: Arc<Inner>,
    after: Option<String>,
    on_void: OnVoid,
}

impl Events {
    /// Behind the event with this cursor; `None`: from the beginning.
    pub fn after(mut self, cursor: impl Into<Option<String>>) -> Self {
        self.after = cursor.into();
        self
    }

    /// Only what is committed after the stream has connected for the first time.
    pub fn from_now(mut self) -> Self {
        self.after = Some("now".to_owned());
        self
    }

    /// What to do where the place in the feed is void; by default the stream ends with an error.
    pub fn on_void(mut self, on_void: OnVoid) -> Self {
        self.on_void = on_void;
        self
    }

    /// Follows it. Nothing is sent before the first event is asked for. Broken connections are made again,
    /// also with [`no_retries`](crate::ClientBuilder::no_retries).
    pub fn stream(self) -> EventStream {
        let place = Arc::new(Mutex::new(self.after));
        let feed = Following::new(self.inner, place.clone(), self.on_void);
        let events = stream::unfold(feed, async |mut feed| {
            let event = feed.next_unless_closed().await?;
            Some((event, feed))
        });
        EventStream { events: events.boxed(), place }
    }
}

/// The events, without an end: a `Stream`, and with a [`next`](EventStream::next) of its own.
///
/// What does not answer, answers 5xx or 429, or breaks off is asked again, for ever. A definite refusal is an
/// error, and the end. It also ends when the client is closed.
pub struct EventStream {
    events: BoxStream<'static, Result<FeedEvent, Error>>,
    place: Arc<Mutex<Option<String>>>,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EventStream(after {:?})", self.cursor())
    }
}

impl EventStream {
    /// The next event; waits until there is one. A call that is dropped loses none.
    ///
    /// # Errors
    /// [`Error::CursorVoid`]; [`Error::Misuse`] for a cursor that is none; [`Error::Denied`];
    /// [`Error::GatewayFault`] for an answer that is not a gateway's.
    pub async fn next(&mut self) -> Option<Result<FeedEvent, Error>> {
        self.events.next().await
    }

    /// Where the stream stands: behind the last event that it gave, or where it began, as soon as that is
    /// known. `now` after [`Events::from_now`] until then; `None` at the very beginning.
    pub fn cursor(&self) -> Option<String> {
        lock(&self.place).clone()
    }
}

impl Stream for EventStream {
    type Item = Result<FeedEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(context)
    }
}
