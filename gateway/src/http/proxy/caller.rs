//! The caller of a request that was forwarded: it gets the answer as it comes, and the answer's end once the
//! intent may be closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use tokio::sync::mpsc;

use crate::engine::Engine;

/// Parts of an answer that may wait for a slow caller.
const PARTS_MAX: usize = 2;

/// Where the parts of an answer go. Dropped before it is finished, the caller's connection is cut, so that
/// nobody takes a part for the whole.
pub(super) struct Caller {
    parts: Option<mpsc::Sender<Bytes>>,
    receiver: Option<mpsc::Receiver<Bytes>>,
    whole: Arc<AtomicBool>,
    held_back: Option<Bytes>,
    idle: Duration,
    /// For how much longer the caller may be waited for, all parts together.
    patience: Option<Duration>,
    engine: Engine,
}

impl Caller {
    /// A caller that may need up to `idle` to take each part and, if there is a `patience`, up to that in all.
    pub(super) fn new(idle: Duration, patience: Option<Duration>, engine: Engine) -> Self {
        let (parts, receiver) = mpsc::channel(PARTS_MAX);
        let whole = Arc::new(AtomicBool::new(false));
        let (parts, receiver) = (Some(parts), Some(receiver));
        Self { parts, receiver, whole, held_back: None, idle, patience, engine }
    }

    /// The body for the answer.
    pub(super) fn body(&mut self) -> Body {
        let Some(receiver) = self.receiver.take() else { return Body::empty() };
        let whole = Arc::clone(&self.whole);
        Body::from_stream(stream::unfold(Some((receiver, whole)), |state| async move {
            let (mut receiver, whole) = state?;
            match receiver.recv().await {
                Some(part) => Some((Ok(part), Some((receiver, whole)))),
                None if whole.load(Ordering::Acquire) => None,
                None => Some((Err(std::io::Error::other("the answer broke off")), None)),
            }
        }))
    }

    pub(super) fn has_left(&self) -> bool {
        self.parts.as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    /// The caller gets no more of it.
    pub(super) fn leave(&mut self) {
        self.parts = None;
    }

    /// Passes a part on, if it is not the last one. A caller that does not take it in time is left.
    pub(super) async fn give(&mut self, part: Bytes, last: bool) {
        if last {
            self.held_back = Some(part);
            return;
        }
        let Some(parts) = &self.parts else { return };
        let runtime = self.engine.runtime();
        let limit = self.patience.map_or(self.idle, |patience| patience.min(self.idle));
        let began = runtime.clock.elapsed();
        let given = runtime.within(limit, parts.send(part)).await;
        let gone = runtime.clock.elapsed().saturating_sub(began);
        self.patience = self.patience.map(|patience| patience.saturating_sub(gone));
        if !matches!(given, Some(Ok(()))) {
            self.leave();
        }
    }

    /// The answer is whole, and nothing waits for the caller any more.
    pub(super) async fn finish(mut self) {
        self.patience = None;
        if let Some(part) = self.held_back.take() {
            self.give(part, false).await;
        }
        self.whole.store(self.parts.is_some(), Ordering::Release);
    }
}
