//! `/locks/{id}` and `/locks/{id}/events`: a look at one's own lock, and being told when it changes.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use fence_core::LockEnd;
use fence_core::ports::LockRecord;
use fence_core::wire;
use fencegate_access::Action;
use futures::{Stream, stream};
use jiff::Timestamp;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::views;
use crate::engine::access::{Asks, Want};
use crate::engine::error::EngineError;
use crate::engine::{Engine, Watcher};
use crate::http::extract::{InLock, NoQuery, Query, wait};
use crate::http::long_calls::LongCall;
use crate::http::peers::Counted;
use crate::http::problem::Problem;
use crate::http::spec::{EventsProblems, LockProblems};
use crate::http::state::App;

/// How often a stream shows that it is alive.
pub(super) const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// The parameters of a look.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Answer only when the lock's word differs from `since`, or after this time: at most `50s`. At
    /// once by default. A gateway that begins to shut down answers at once, too.
    #[serde(default, deserialize_with = "wait")]
    #[param(value_type = Option<fence_core::schema::Wait>)]
    pub wait: Option<Duration>,
    /// The word that was seen last: how the lock ended (`superseded`, `released`, `broken`, `void`),
    /// or else its state. Without it, its word when the call arrives.
    pub since: Option<wire::LockWord>,
}

/// Look at your own lock
///
/// As it stands, or how it ended, for 24 hours unless the settings say otherwise. With `wait` the answer comes when that changes.
#[utoipa::path(
    get, path = "/locks/{id}", operation_id = "getLock", tag = "locks",
    params(("id" = fence_core::LockId, Path, description = "The lock's id."), Look),
    responses((status = 200, description = "The lock.", body = wire::Lock), LockProblems)
)]
pub async fn get(
    State(app): State<App>,
    asks: Asks,
    InLock(id): InLock,
    Query(look): Query<Look>,
    counted: Counted,
) -> Result<Json<serde_json::Value>, Problem> {
    asks.may(Want::Somewhere(Action::Lock)).await?;
    let permit = asks.permit();
    if let Some(wait) = look.wait.filter(|wait| !wait.is_zero()) {
        let _waits = app.room.long_calls.begin_stream(&counted)?;
        let mut watcher = app.engine.watch(id, &permit).await?;
        let since = look.since.map_or_else(|| word(watcher.record()), |word| word.as_str());
        let changed = async {
            while word(watcher.record()) == since {
                watcher.changed().await?;
            }
            Some(watcher.record().clone())
        };
        let changed = async {
            tokio::select! {
                biased;
                changed = changed => changed,
                () = app.draining.cancelled() => None,
            }
        };
        if let Some(Some(record)) = app.engine.runtime().within(wait, changed).await {
            return Ok(own(&app, record).await);
        }
    }
    // Read anew: what was seen last has grown old while it did not change.
    let record = app.engine.lock(id, &permit).await?;
    Ok(own(&app, record).await)
}

async fn own(app: &App, record: LockRecord) -> Json<serde_json::Value> {
    let reason = app.engine.why_ending(&record).await;
    Json(views::own_lock(record, reason))
}

/// How a lock ended, or else its state.
fn word(record: &LockRecord) -> &'static str {
    match record.ended {
        Some((how, _)) => how.as_str(),
        None => record.grant.state.as_str(),
    }
}

/// Be told what happens to your lock
///
/// Server-sent events, each with a `LockEvent` as its data:
///
/// - `expiring`: two thirds of the ttl have gone without a renewal. Once, and again after a renewal.
/// - `breaking`: an operator has decided to break the lock, and it comes at `due`. Again if it is to
///   come sooner. `reason` says why, in the operator's words; so does that of a lock that was broken.
/// - `frozen`: an operator has stopped all writes to a resource of the lock, for the `reason` given.
/// - `unfrozen`: writes are admitted again.
/// - `lost`: the lock was taken over (`superseded`), broken or voided. The stream ends.
/// - `released`: the lock was given back. The stream ends.
///
/// The first event says so if one of these is the case already. A lock that has expired and that nobody
/// took over is not lost: renew it. Events come within a second wherever their cause was; those that
/// come too fast after each other may be told as one. Nothing depends on them: a token that is stale is
/// refused whether its holder was told or not. A comment comes every 15 seconds. When the gateway begins
/// to shut down the stream ends; connect again.
#[utoipa::path(
    get, path = "/locks/{id}/events", operation_id = "watchLock", tag = "locks",
    params(("id" = fence_core::LockId, Path, description = "The lock's id.")),
    responses(
        (status = 200, description = "The events.", body = String,
            content_type = "text/event-stream", headers(
            ("Cache-Control" = String, description = "`no-store`"),
            ("X-Accel-Buffering" = String, description = "`no`: proxies pass events on at once."),
        )),
        EventsProblems,
    )
)]
pub async fn events(
    State(app): State<App>,
    asks: Asks,
    InLock(id): InLock,
    _: NoQuery,
    counted: Counted,
) -> Result<Response, Problem> {
    if app.draining.is_cancelled() {
        return Err(EngineError::ShuttingDown.into());
    }
    asks.may(Want::Somewhere(Action::Lock)).await?;
    let permit = asks.permit();
    let waits = app.room.long_calls.begin_stream(&counted)?;
    let watcher = app.engine.watch(id, &permit).await?;
    let alive = KeepAlive::new().interval(COMMENT_INTERVAL).text("alive");
    let events = Sse::new(told((app.engine.clone(), asks), (watcher, waits), app.draining.clone()));
    let events = events.keep_alive(alive);
    let mut response = events.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

/// The events of a lock, until it ends or the gateway drains.
fn told(
    (engine, asks): (Engine, Asks),
    (watcher, waits): (Watcher, LongCall),
    draining: CancellationToken,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let begin = ((engine, asks), Some((watcher, waits)), Told::default(), draining);
    stream::unfold(begin, |((engine, asks), watcher, mut told, draining)| async move {
        let (mut watcher, waits) = watcher?;
        loop {
            if let Some(news) = told.news(watcher.record()) {
                let reason = match news {
                    News::Breaking | News::Lost => engine.why_ending(watcher.record()).await,
                    News::Frozen => watcher.record().frozen.clone(),
                    News::Expiring | News::Released | News::Unfrozen => None,
                };
                let event = event(news, watcher.record(), reason);
                let goes_on = !matches!(news, News::Lost | News::Released);
                return Some((
                    Ok(event),
                    ((engine, asks), goes_on.then_some((watcher, waits)), told, draining),
                ));
            }
            tokio::select! {
                biased;
                () = draining.cancelled() => return None,
                // Under other rules, or with another credential, it begins anew, if it may.
                () = asks.moved() => return None,
                changed = watcher.changed() => { changed?; }
            }
            // What was seen under older rules is not sent.
            asks.confirm().await.ok()?;
        }
    })
}

/// What has happened to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Expiring,
    Breaking,
    Frozen,
    Unfrozen,
    Lost,
    Released,
}

/// What a stream has told already.
#[derive(Debug, Default)]
struct Told {
    /// That the ttl which began then is running out.
    expiring: Option<Timestamp>,
    /// That the lock is broken then.
    due: Option<Timestamp>,
    /// That a resource is frozen, and why.
    frozen: Option<String>,
}

impl Told {
    /// What is news about this lock, if anything is.
    fn news(&mut self, record: &LockRecord) -> Option<News> {
        match record.ended {
            Some((LockEnd::Released, _)) => return Some(News::Released),
            Some((LockEnd::Superseded | LockEnd::Broken | LockEnd::Void, _)) => {
                return Some(News::Lost);
            }
            None => {}
        }
        if self.frozen != record.frozen {
            self.frozen.clone_from(&record.frozen);
            return Some(if record.frozen.is_some() { News::Frozen } else { News::Unfrozen });
        }
        if let Some(due) = record.break_due {
            // Nothing is extended any more, so that it expires is no news.
            return (self.due.replace(due.at) != Some(due.at)).then_some(News::Breaking);
        }
        let renewed_at = record.renewed_at;
        let tell = record.is_late() && self.expiring != Some(renewed_at);
        tell.then(|| {
            self.expiring = Some(renewed_at);
            News::Expiring
        })
    }
}

fn event(news: News, record: &LockRecord, reason: Option<String>) -> Event {
    let name = match news {
        News::Expiring => "expiring",
        News::Breaking => "breaking",
        News::Frozen => "frozen",
        News::Unfrozen => "unfrozen",
        News::Lost => "lost",
        News::Released => "released",
    };
    let data = wire::LockEvent {
        state: word(record).to_owned(),
        expires_in_ms: views::left(record.grant.remaining_ms),
        due: record.break_due.map(|due| due.at),
        superseded_by: record.superseded_by.map(Into::into),
        reason,
    };
    // INVARIANT: a struct of strings and numbers always serializes, and to one line.
    let data = serde_json::to_string(&data).expect("an event is JSON");
    Event::default().event(name).data(data)
}
