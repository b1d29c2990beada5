//! Follows the events of a lock (CC39): a loss is known before the next renewal tells it. Silence means
//! nothing: the deadline alone decides.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fencegate_wire::json::LockEvent;
use futures::StreamExt as _;
use reqwest::header::{ACCEPT, HeaderValue};
use tokio_util::sync::CancellationToken;

use super::held::Held;
use super::renewing;
use crate::class::LossReason;
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::encoding::sse::{SseItem, SseParser};
use crate::machine::backoff::portion;
use crate::machine::lease::{Input, State};
use crate::transport::answer::{Answer, Reply};
use crate::transport::request::{Request, RequestIds};

/// Without a byte for so long, a stream is dead: gateways send comments.
const DEAD: Duration = Duration::from_secs(60);
/// A gateway that refuses a stream is not asked for one for so long.
const REFUSED_MS: u64 = 60_000;

/// Follows until the guard is over or its signal is given.
pub(super) async fn follow(guard: Weak<Held>, signal: CancellationToken) {
    let mut pause_ms = 500;
    while let Some(held) = guard.upgrade() {
        let mut refused_ms = 0;
        if !matches!(held.state(), State::Held | State::Uncertain) {
            return;
        }
        let inner = held.inner.clone();
        let mut request = Request::get(format!("/locks/{}/events", held.id));
        request.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        drop(held);
        let (began_ms, id) = (now_ms(), RequestIds::new().next());
        // Of the streams that a client may have, those of locks are the first to do without.
        if let Ok(_stream) = inner.streams.try_acquire() {
            tokio::select! {
                () = signal.cancelled() => return,
                reply = inner.transport.attempt(&request, &id) => {
                    match reply {
                        Reply::Done(answer) => read(answer, &guard, &signal).await,
                        Reply::Problem(problem) => {
                            refused_ms = REFUSED_MS;
                            if let Some(held) = guard.upgrade() {
                                held.refused(&problem);
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        // Whoever ends streams at once is asked less and less often.
        pause_ms = if now_ms() > began_ms + 30_000 { 500 } else { (pause_ms * 2).min(30_000) };
        tokio::select! {
            () = signal.cancelled() => return,
            () = sleep_until_ms(now_ms() + refused_ms + pause_ms / 2 + portion(pause_ms, draw())) => {}
        }
    }
}

async fn read(answer: Answer, guard: &Weak<Held>, signal: &CancellationToken) {
    let mut parser = SseParser::default();
    let mut pieces = answer.response.bytes_stream();
    loop {
        let piece = tokio::select! {
            () = signal.cancelled() => return,
            piece = tokio::time::timeout(DEAD, pieces.next()) => piece,
        };
        let (Ok(Some(Ok(piece))), Some(held)) = (piece, guard.upgrade()) else { return };
        for item in parser.push(&piece) {
            if let SseItem::Event(event) = item {
                learn(&held, &event.event, &event.data);
            }
        }
        if !matches!(held.state(), State::Held | State::Uncertain) {
            return;
        }
    }
}

fn learn(held: &Arc<Held>, name: &str, data: &str) {
    let Ok(event) = serde_json::from_str::<LockEvent>(data) else { return };
    if matches!(event.state.as_str(), "broken" | "breaking") {
        held.heard_why(event.reason.as_deref());
    }
    match (name, event.state.as_str()) {
        ("lost" | "released", state) => held.learn(Input::Lost(match state {
            "superseded" => LossReason::Superseded,
            "broken" => LossReason::Broken,
            "void" => LossReason::Void,
            "released" => LossReason::ReleasedElsewhere,
            _ => LossReason::Gone,
        })),
        // Nobody knows how long the event was on its way.
        ("breaking", _) => renewing::breaking(held),
        _ => {}
    }
}
