//! `/events` and the history of a resource: what was written, by whom.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use fence_core::ErrorCode;
use fence_core::ports::{Applied, Clock, EventCursor, VersionsFilter};
use fence_core::wire;
use fencegate_access::{Action, Quota};
use futures::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::watching::COMMENT_INTERVAL;
use crate::engine::access::{Asks, Want};
use crate::engine::error::EngineError;
use crate::engine::{EventReader, EventsFrom};
use crate::http::extract::{Asker, InResource, Query, before, cursor_before, limit, prefix, wait};
use crate::http::long_calls::LongCall;
use crate::http::peers::Counted;
use crate::http::problem::Problem;
use crate::http::spec::{FeedProblems, ResourceProblems};
use crate::http::state::App;

/// The parameters of a list of versions.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// Only of objects whose keys begin with this, deletions of all objects, and commits.
    #[serde(default)]
    #[param(value_type = fence_core::schema::Prefix, required = false)]
    prefix: String,
    /// At most this many items.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<fence_core::schema::NumberCursor>)]
    cursor: Option<String>,
}

/// List the versions of a resource
///
/// Newest first: every write that took effect, and whose it was. With a prefix a page covers no more than 10,000
/// versions, so it may hold few items or none, and yet have a `next_cursor`.
#[utoipa::path(
    get, path = "/resources/{resource}/versions", operation_id = "listVersions", tag = "resources",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource."), History),
    responses((status = 200, description = "A page.", body = wire::VersionList), ResourceProblems)
)]
pub async fn versions(
    asks: Asks,
    InResource(name): InResource,
    Query(query): Query<History>,
    Asker(engine): Asker,
) -> Result<Json<wire::VersionList>, Problem> {
    asks.may(Want::On(Action::Read, name.clone())).await?;
    let limit = limit(query.limit)?;
    let filter = history(query, limit)?;
    let found = engine.versions(name.clone(), filter).await;
    let (mut found, rest) = found.map_err(|error| Problem::from(error).about(&name))?;
    let number = |applied: &Applied| applied.version.unwrap_or_default();
    let next_cursor = cursor_before(&mut found, limit, number);
    let next_cursor = next_cursor.or_else(|| rest.map(|below| below.to_string()));
    let items = found.into_iter().map(version).collect();
    Ok(Json(wire::VersionList { items, next_cursor }))
}

/// One item more than asked for, which tells whether there is another page.
fn history(query: History, limit: i64) -> Result<VersionsFilter, Problem> {
    let before = before(query.cursor.as_deref())?;
    Ok(VersionsFilter { prefix: prefix(query.prefix)?, before, from: 0, limit: limit + 1 })
}

fn version(applied: Applied) -> wire::Version {
    wire::Version {
        version: applied.version.unwrap_or_default(),
        operation: applied.operation,
        size: applied.stored(),
        kind: applied.kind,
        key: applied.key.map(|key| key.to_string()),
        sha256: applied.sha256.map(hex::encode),
        owner: applied.owner,
        committed_at: applied.committed_at,
    }
}

/// The parameters of a look at the feed.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Go on behind this `event`, or this `next_cursor`. With `now`, only what is committed from now
    /// on; from the beginning by default. `Last-Event-ID` takes its place.
    #[param(value_type = Option<fence_core::schema::EventsAfter>)]
    after: Option<String>,
    /// At most this many items; a stream has no end.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
    /// Answer only when there is an event, or after this time: at most `50s`. At once by default. A
    /// gateway that begins to shut down answers at once, too.
    #[serde(default, deserialize_with = "wait")]
    #[param(value_type = Option<fence_core::schema::Wait>)]
    wait: Option<Duration>,
}

/// What `Last-Event-ID` says, for the documentation.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct FeedParams {
    /// Go on behind this event: browsers send it when they connect again.
    #[param(rename = "Last-Event-ID")]
    last_event_id: Option<fence_core::schema::LastEvent>,
}

/// Follow what is written
///
/// Every committed write of every resource, once, and those of one resource in the order of their
/// versions; whatever was committed before the call is seen by it, whichever gateway took it. An event
/// comes within a second. Deletes of nothing are no events.
///
/// With `Accept: text/event-stream` as server-sent events named `write`, each with its cursor as its id
/// and a `WriteEvent` as its data; the first thing sent is the cursor at which the stream begins. A
/// comment comes every 15 seconds. When the gateway begins to shut down, or the ledger cannot be read,
/// the stream ends; connect again.
///
/// A re-fence makes earlier cursors void, 410: events that were read may have been lost, and
/// `begin_after` in the problem says behind which event that begins.
#[utoipa::path(
    get, path = "/events", operation_id = "listEvents", tag = "seeing", params(Look, FeedParams),
    responses(
        (status = 200, description = "Events.", content(
            (wire::EventList = "application/json"), (String = "text/event-stream"),
        )),
        FeedProblems,
    )
)]
pub async fn events(
    State(app): State<App>,
    asks: Asks,
    headers: HeaderMap,
    Query(look): Query<Look>,
    counted: Counted,
) -> Result<Response, Problem> {
    asks.may(Want::Somewhere(Action::Read)).await?;
    let limit = limit(look.limit)?;
    let from = from(&headers, look.after.as_deref())?;
    let streamed = wants_stream(&headers);
    if streamed && app.draining.is_cancelled() {
        return Err(EngineError::ShuttingDown.into());
    }
    let wait = look.wait.filter(|wait| !wait.is_zero());
    let waits = match streamed || wait.is_some() {
        true => Some(app.room.long_calls.begin_stream(&counted)?),
        false => None,
    };
    // Before its turn, which is paid for by its time: the wait is nobody's work.
    app.engine.number_events().await;
    // One that waits is counted by that: its turn would last as long.
    let engine = match waits {
        Some(_) => app.engine.clone(),
        None => Asker::take(&app, &counted).await?.0,
    };
    let mut reader = engine.read_events(from).await?;
    if streamed {
        // A void cursor is an answer of its own. What there is comes later, at the pace of the principal.
        reader.page(0).await?;
        let until = (app.draining.clone(), Arc::clone(&app.engine.runtime().clock));
        return Ok(stream_of((reader, waits), asks, until));
    }
    let mut found = reader.page(limit).await?;
    if let Some(wait) = wait.filter(|_| found.is_empty()) {
        let next = async {
            tokio::select! {
                biased;
                next = reader.next(limit) => next,
                () = app.draining.cancelled() => Ok(Vec::new()),
            }
        };
        found = app.engine.runtime().within(wait, next).await.unwrap_or(Ok(Vec::new()))?;
    }
    let next_cursor = reader.at().to_string();
    // By the rules that are in force now: it may have waited for long. What is shown of it is asked for, so that the
    // answer is held to the rules for each resource that it names.
    asks.confirm().await?;
    found.retain(|(_, applied)| may_see(&asks, applied));
    let shown: BTreeSet<_> = found.iter().map(|(_, applied)| applied.resource.clone()).collect();
    for resource in shown {
        asks.may(Want::On(Action::Read, resource)).await?;
    }
    let items = found.into_iter().map(|(at, applied)| event(at, applied)).collect();
    Ok(Json(wire::EventList { items, next_cursor }).into_response())
}

/// `Last-Event-ID` comes from a client that has read on since it made its URL.
fn from(headers: &HeaderMap, after: Option<&str>) -> Result<EventsFrom, Problem> {
    let mut ids = headers.get_all("last-event-id").iter();
    let (text, problem) = match (ids.next(), ids.next()) {
        (None, _) => (after, ErrorCode::QueryMalformed),
        // Empty: nothing was read yet.
        (Some(id), None) if id.is_empty() => (after, ErrorCode::QueryMalformed),
        (Some(id), None) => (Some(id.to_str().unwrap_or("?")), ErrorCode::RequestMalformed),
        (Some(_), Some(_)) => {
            return Err(Problem::malformed("more than one Last-Event-ID"));
        }
    };
    match text {
        None => Ok(EventsFrom::Beginning),
        Some("now") => Ok(EventsFrom::Now),
        Some(text) => EventCursor::parse(text)
            .map(EventsFrom::After)
            .ok_or_else(|| Problem::new(problem, "a place in the feed looks like g0-17")),
    }
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let types = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = types.flat_map(|line| line.split(','));
    types.any(|one| {
        let name = one.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("text/event-stream")
    })
}

fn event(at: EventCursor, applied: Applied) -> wire::WriteEvent {
    wire::WriteEvent {
        event: at.to_string(),
        resource: applied.resource.to_string(),
        version: applied.version.unwrap_or_default(),
        operation: applied.operation,
        size: applied.stored(),
        kind: applied.kind,
        key: applied.key.map(|key| key.to_string()),
        owner: applied.owner,
        committed_at: applied.committed_at,
    }
}

/// Whether a caller may read what a write was to.
fn may_see(asks: &Asks, applied: &Applied) -> bool {
    asks.could(&Want::On(Action::Read, applied.resource.clone()))
}

type Found = Vec<(EventCursor, Applied)>;

fn stream_of(
    (reader, waits): (EventReader, Option<LongCall>),
    asks: Asks,
    (draining, clock): (CancellationToken, Arc<dyn Clock>),
) -> Response {
    // Where it begins, so that a stream on which nothing came yet is resumed there, too.
    let begin = stream::iter([Ok(Event::default().id(reader.at().to_string()))]);
    let alive = KeepAlive::new().interval(COMMENT_INTERVAL).text("alive");
    let events = begin.chain(following((reader, waits), asks, (draining, clock)));
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Events at a time: whoever is behind reads many at once.
const STREAM_PAGE_MAX: i64 = 250;
/// Events that the streams of a principal are sent for each request that its rate allows.
const EVENTS_OF_RATE: u64 = 2;
/// As many as in this time may come at once.
const EVENTS_AT_FIRST: Duration = Duration::from_secs(1);
/// How long a stream waits at most.
const EVENTS_OWED_MAX: Duration = Duration::from_secs(30);

/// The next events of a stream, once there are any. The streams of a principal read one after the other, and no more than so
/// many events a second together. Who is no principal is not counted.
async fn at_its_pace(
    reader: &mut EventReader,
    asks: &Asks,
    clock: &dyn Clock,
) -> Result<Found, EngineError> {
    let Some(known) = asks.known() else { return reader.next(STREAM_PAGE_MAX).await };
    let rate = known.caller.quotas().get(Quota::Rate).unwrap_or(u64::MAX);
    let a_second = rate.saturating_mul(EVENTS_OF_RATE).max(1);
    let spent = &known.holdings.events;
    loop {
        let turn = known.holdings.reading.lock().await;
        let wait = spent.must_wait(clock.elapsed(), EVENTS_AT_FIRST);
        if !wait.is_zero() {
            clock.sleep(wait).await;
        }
        let events = reader.behind(STREAM_PAGE_MAX).await?;
        let takes = Duration::from_secs_f64(events.len() as f64 / a_second as f64);
        spent.spend(clock.elapsed(), takes, EVENTS_AT_FIRST + EVENTS_OWED_MAX);
        drop(turn);
        if !events.is_empty() {
            return Ok(events);
        }
        reader.news().await?;
    }
}

/// What was found, and what comes then, until the gateway drains or the ledger cannot be read.
fn following(
    reader: (EventReader, Option<LongCall>),
    asks: Asks,
    (draining, clock): (CancellationToken, Arc<dyn Clock>),
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let pages = stream::unfold(
        (reader, asks, draining, clock),
        |((mut reader, waits), asks, draining, clock)| async move {
            let page = tokio::select! {
                biased;
                () = draining.cancelled() => return None,
                // Under other rules, or with another credential, it begins anew, if it may.
                () = asks.moved() => return None,
                page = at_its_pace(&mut reader, &asks, &*clock) => page.ok()?,
            };
            // What was read under older rules is not sent.
            asks.confirm().await.ok()?;
            let seen: Found =
                page.into_iter().filter(|(_, applied)| may_see(&asks, applied)).collect();
            Some((stream::iter(seen), ((reader, waits), asks, draining, clock)))
        },
    );
    pages.flatten().map(|(at, applied)| {
        // INVARIANT: a struct of strings and numbers always serializes, and to one line.
        let data = serde_json::to_string(&event(at, applied)).expect("an event is JSON");
        Ok(Event::default().event("write").id(at.to_string()).data(data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_stream_is_asked_for_by_its_type() {
        let asked = |value| wants_stream(&headers(&[("accept", value)]));
        assert!(asked("text/event-stream") && asked("text/html, TEXT/Event-Stream;q=0.9"));
        assert!(!asked("application/json") && !asked("*/*"));
        assert!(!wants_stream(&HeaderMap::new()));
    }

    #[test]
    fn a_stream_that_is_resumed_goes_on_where_it_was() {
        let at = EventsFrom::After(EventCursor { generation: 0, number: 7 });
        let id = |value| headers(&[("last-event-id", value)]);
        assert_eq!(from(&id("g0-7"), Some("g0-3")).unwrap(), at);
        assert_eq!(from(&id(""), Some("g0-7")).unwrap(), at);
        assert_eq!(from(&HeaderMap::new(), Some("now")).unwrap(), EventsFrom::Now);
        assert_eq!(from(&HeaderMap::new(), None).unwrap(), EventsFrom::Beginning);
        assert!(from(&id("7"), None).is_err());
        assert!(from(&HeaderMap::new(), Some("7")).is_err());
        let twice = headers(&[("last-event-id", "g0-7"), ("last-event-id", "g0-7")]);
        assert!(from(&twice, None).is_err());
    }

    #[test]
    fn a_history_is_paged_by_version() {
        let query = |cursor: &str| History { cursor: Some(cursor.into()), ..History::default() };
        assert_eq!(history(query("17"), 5).unwrap().before, Some(17));
        assert_eq!(history(History::default(), 5).unwrap().limit, 6);
        for bad in ["x", "0", "-1", "9223372036854775808", ""] {
            assert!(history(query(bad), 5).is_err(), "{bad}");
        }
        assert!(history(History { prefix: "a\0".into(), ..History::default() }, 5).is_err());
    }
}
