//! One connection to the feed of writes: a stream of events, or a call that waits for the next ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::json::{EventList, WriteEvent};

use crate::client::Inner;
use crate::clock::now_ms;
use crate::encoding::path;
use crate::encoding::sse::{SseItem, SseParser};
use crate::error::{Details, Error};
use crate::transport::answer::{Answer, Reply, causes};
use crate::transport::request::{Request, RequestIds};

/// A stream says where it begins at once. One of which nothing is heard for so long is held back on the way.
const SILENCE: Duration = Duration::from_secs(5);
/// A stream without a byte for so long is dead: gateways send a comment every 15 s.
const DEAD: Duration = Duration::from_secs(60);
/// For how long a call waits for events. Load balancers cut calls of 30 s or 60 s.
pub(super) const WAIT_MS: u64 = 25_000;
/// The longest pause that anybody on the way may ask for.
const FLOOR_MS_MAX: u64 = 60_000;

/// One of the streams that a client may have.
struct Slot(Arc<Inner>);

impl Slot {
    fn take(inner: &Arc<Inner>) -> Option<Self> {
        inner.streams.try_acquire().ok()?.forget();
        Some(Self(inner.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.streams.add_permits(1);
    }
}

/// Why a call or a stream came to nothing.
pub(super) enum Failure {
    /// Another attempt, after a pause, may do better.
    Passing { detail: String, floor_ms: Option<u64> },
    /// None will.
    Definite(Error),
}

impl Failure {
    pub(super) fn passing(detail: impl Into<String>) -> Self {
        Self::Passing { detail: detail.into(), floor_ms: None }
    }

    fn fault(text: String) -> Self {
        Self::Definite(Error::GatewayFault(Details::local(text)))
    }
}

impl From<Reply> for Failure {
    fn from(reply: Reply) -> Self {
        let floor_ms = reply.floor_ms().map(|ms| ms.min(FLOOR_MS_MAX));
        let detail = reply.summary();
        match reply.error(1) {
            error if is_passing(&error) => Self::Passing { detail, floor_ms },
            error => Self::Definite(error),
        }
    }
}

/// Whether what failed may do better later, although nothing here is changed: nobody answered, or nobody
/// could, or there were too many.
pub(super) fn is_passing(error: &Error) -> bool {
    let passing = |status: u16| status >= 500 || [408, 429].contains(&status);
    let status = error.details().and_then(|details| details.status);
    matches!(error, Error::Unavailable(_) | Error::Busy(_)) || status.is_some_and(passing)
}

/// What a stream says.
pub(super) enum Said {
    /// Where it stands, with nothing to tell.
    Place(String),
    /// A write.
    Write(Box<WriteEvent>),
    /// How long to wait before the next connection, at least.
    Retry(u64),
}

/// How opening a stream went.
pub(super) enum Opened {
    /// Something was heard of it.
    Stream(Box<Connection>),
    /// It is held back on the way, or there is none to be had now.
    HeldBack,
}

/// A stream of events.
pub(super) struct Connection {
    answer: Answer,
    parser: SseParser,
    items: VecDeque<SseItem>,
    opened_ms: u64,
    _slot: Slot,
}

impl Connection {
    /// Opens a stream behind this place, and waits until it has said something.
    pub(super) async fn open(inner: &Arc<Inner>, after: Option<&str>) -> Result<Opened, Failure> {
        let Some(slot) = Slot::take(inner) else { return Ok(Opened::HeldBack) };
        let request = Request::get(place(after, [])).header("accept", "text/event-stream");
        let opened = async {
            let id = RequestIds::new().next();
            let answer = match inner.transport.attempt(&request, &id).await {
                Reply::Done(answer) => answer,
                reply => return Err(Failure::from(reply)),
            };
            let kind = answer.header("content-type").unwrap_or_default();
            if !kind.starts_with("text/event-stream") {
                return Ok(Opened::HeldBack);
            }
            let (parser, items, opened_ms) = (SseParser::default(), VecDeque::new(), now_ms());
            let mut connection = Box::new(Self { answer, parser, items, opened_ms, _slot: slot });
            connection.read().await?;
            Ok(Opened::Stream(connection))
        };
        tokio::time::timeout(SILENCE, opened).await.unwrap_or(Ok(Opened::HeldBack))
    }

    /// Since when it is open.
    pub(super) fn opened_ms(&self) -> u64 {
        self.opened_ms
    }

    /// What it says next. It does not end by itself but with a failure.
    pub(super) async fn next(&mut self) -> Result<Said, Failure> {
        loop {
            match self.items.pop_front() {
                Some(SseItem::Event(event)) if event.event == "write" => {
                    let read = serde_json::from_str(&event.data).map(Said::Write);
                    return read.map_err(|error| {
                        Failure::fault(format!("an event that is none: {error}"))
                    });
                }
                // Of a kind that a newer gateway has.
                Some(SseItem::Event(_)) => {}
                Some(SseItem::Id(place)) => return Ok(Said::Place(place)),
                Some(SseItem::Retry(ms)) => return Ok(Said::Retry(ms.min(FLOOR_MS_MAX))),
                Some(SseItem::TooLong) => {
                    return Err(Failure::fault("a stream of events without events".to_owned()));
                }
                None => self.read().await?,
            }
        }
    }

    async fn read(&mut self) -> Result<(), Failure> {
        match tokio::time::timeout(DEAD, self.answer.response.chunk()).await {
            Ok(Ok(Some(piece))) => self.items.extend(self.parser.push(&piece)),
            Ok(Ok(None)) => return Err(Failure::passing("the stream ended")),
            Ok(Err(error)) => {
                return Err(Failure::passing(format!("the stream broke off: {}", causes(&error))));
            }
            Err(_) => return Err(Failure::passing("the stream is dead")),
        }
        Ok(())
    }
}

/// Asks for the events behind this place, and waits for the first of them for a while.
pub(super) async fn poll(inner: &Inner, after: Option<&str>) -> Result<EventList, Failure> {
    let wait = [("limit", "1000".to_owned()), ("wait", format!("{WAIT_MS}ms"))];
    let request = Request::get(place(after, wait)).waits(WAIT_MS);
    match inner.transport.attempt(&request, &RequestIds::new().next()).await {
        Reply::Done(answer) => answer.json().await.map_err(Failure::from),
        reply => Err(reply.into()),
    }
}

fn place<const N: usize>(after: Option<&str>, more: [(&str, String); N]) -> String {
    let after = after.map(|after| ("after", after.to_owned()));
    format!("/events{}", path::query(after.into_iter().chain(more)))
}
