//! Calls that may simply be made again: reads, renewals, releases and what operators do.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::Inner;
use crate::clock::{draw, ms, now_ms, sleep_until_ms};
use crate::error::Error;
use crate::hooks::Event;
use crate::machine::backoff::Backoff;
use crate::transport::answer::{Answer, Reply};
use crate::transport::request::{Request, RequestIds};

impl Inner {
    /// Until when a call that begins now goes on.
    pub(crate) fn call_until_ms(&self) -> u64 {
        now_ms() + ms(self.call_within)
    }

    /// Makes a call, again and again until its deadline (CC10, CC11), and gives the answer's head and body.
    pub(crate) async fn call(
        &self,
        call: &'static str,
        request: &Request,
        until_ms: u64,
    ) -> Result<Answer, Error> {
        self.call_and(call, request, until_ms, async |answer| Ok(answer)).await
    }

    /// The same, for an answer in JSON.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        call: &'static str,
        request: &Request,
        until_ms: u64,
    ) -> Result<T, Error> {
        self.call_and(call, request, until_ms, async |answer| answer.json().await).await
    }

    /// The same, for an answer of which only the head counts.
    pub(crate) async fn done(
        &self,
        call: &'static str,
        request: &Request,
        until_ms: u64,
    ) -> Result<(), Error> {
        self.call(call, request, until_ms).await.map(drop)
    }

    async fn call_and<T>(
        &self,
        call: &'static str,
        request: &Request,
        until_ms: u64,
        read: impl AsyncFn(Answer) -> Result<T, Reply>,
    ) -> Result<T, Error> {
        let (began_ms, mut ids, mut backoff) = (now_ms(), RequestIds::new(), Backoff::default());
        let is_replayable = request.body.as_ref().is_none_or(|body| body.is_replayable());
        let result = loop {
            let reply = self.transport.attempt(request, &ids.next()).await;
            let reply = match reply {
                Reply::Done(answer) => match read(answer).await {
                    Ok(read) => break Ok(read),
                    Err(reply) => reply,
                },
                reply => reply,
            };
            self.note_slowness(&reply).await;
            let left_ms = until_ms.saturating_sub(now_ms());
            let again = reply.is_retried() && self.retries && is_replayable;
            let pause_ms = backoff.next(draw(), reply.floor_ms(), left_ms).filter(|_| again);
            let Some(pause_ms) = pause_ms.filter(|pause_ms| *pause_ms < left_ms) else {
                break Err(reply.error(ids.attempts()));
            };
            let (attempt, detail) = (ids.attempts(), reply.summary());
            self.hooks.tell(&Event::Retry { call, attempt, detail });
            sleep_until_ms(now_ms() + pause_ms).await;
        };
        self.called(call, began_ms, ids.attempts(), result.as_ref().err());
        result
    }

    /// Tells the hooks how a call ended.
    pub(crate) fn called(
        &self,
        call: &'static str,
        began_ms: u64,
        attempts: u32,
        error: Option<&Error>,
    ) {
        let (class, took) = (error.map(Error::class), since(began_ms));
        self.hooks.tell(&Event::Called { call, class, attempts, took });
    }

    /// After an answer that did not come in time: how long may they take here (CC9)?
    pub(crate) async fn note_slowness(&self, reply: &Reply) {
        if matches!(reply, Reply::Nothing(nothing) if nothing.timed_out) {
            let _known = self.status_now().await;
        }
    }

    /// Asks a gateway for its state, once, and keeps what calls need of it.
    pub(crate) async fn status_now(&self) -> Option<Status> {
        let request = Request::get("/status");
        let id = RequestIds::new().next();
        let asked = self.transport.attempt(&request, &id);
        let Ok(Reply::Done(answer)) = tokio::time::timeout(Duration::from_secs(5), asked).await
        else {
            return None;
        };
        let read = tokio::time::timeout(Duration::from_secs(5), answer.json::<Status>()).await;
        let status = read.ok()?.ok()?;
        self.learn_status(&status);
        Some(status)
    }

    /// Keeps what calls need of the state of a gateway.
    pub(crate) fn learn_status(&self, status: &Status) {
        if let Some(within_ms) = status.answer_within_ms {
            self.transport.learn_answer_within(within_ms);
        }
        if let Some(kept_ms) = status.keys_kept_ms {
            self.keys_kept_ms.store(kept_ms.max(1), std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// What calls need of `GET /status`.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Status {
    answer_within_ms: Option<u64>,
    pub(crate) keys_kept_ms: Option<u64>,
}

/// How long ago that was.
pub(crate) fn since(began_ms: u64) -> Duration {
    Duration::from_millis(now_ms().saturating_sub(began_ms))
}
