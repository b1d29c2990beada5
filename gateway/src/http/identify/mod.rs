//! Who sends a request, by what it shows: a key or token in `Authorization`, a client certificate, or the process at the
//! other end of a socket. Headers that name somebody are never believed.

mod bearer;
mod certificate;
mod issuers;
mod while_allowed;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use fence_core::ErrorCode;
use fence_core::ports::{AuditAction, By, Clock, Request as Asking};
use fencegate_access::{Identity, Quota};

pub use certificate::shown_by_certificate;
pub use issuers::Issuers;
pub use while_allowed::while_allowed;

use crate::engine::access::{Asks, InForce, Known, Refused};
use crate::engine::error::EngineError;
use crate::http::middleware::{Recorded, RequestId};
use crate::http::peers::{Counted, rate_limited};
use crate::http::problem::Problem;
use crate::http::serve::{Ends, Seat};
use crate::http::state::App;
use crate::spans::{Place, within};

/// How requests showed who sent them, and what came of it.
const AUTH: &str = "fencegate_auth_total";

/// Tells the recorder what the metric means.
pub fn describe() {
    metrics::describe_counter!(
        AUTH,
        "Requests by how they showed who sent them, and whether that was good"
    );
}

/// What a connection shows of who is at its other end, for all requests on it.
#[derive(Debug, Clone, Default)]
pub struct Shown(pub Option<Arc<Identity>>);

/// What needs no credential: that the gateway is alive and ready, and what it says to everybody. The files of the page
/// hold nothing of anybody: what it shows it asks for, with the credential that it is given.
const OPEN: [&str; 8] = [
    "/healthz",
    "/readyz",
    "/openapi.yaml",
    "/docs/errors/{code}",
    "/",
    "/ui",
    "/ui/",
    "/ui/{*file}",
];

/// The refusals after which newer rules are asked for: they may know the caller, or a longer time for its key.
const NOBODY: [ErrorCode; 3] =
    [ErrorCode::Unauthenticated, ErrorCode::CredentialExpired, ErrorCode::CredentialsConflict];

/// How long whoever is beyond its share waits to hear so: a flood is slowed down at its source, since a connection brings
/// one request at a time. Nobody else waits, and `Retry-After` says a second.
const REFUSED_AFTER: Duration = Duration::from_millis(100);
/// How many refusals of a principal a second are answered no later than that, and how many at once after a pause; it waits
/// for more of them, at most so long.
const REFUSALS_PER_SECOND: u32 = 50;
const REFUSALS_AT_ONCE: Duration = Duration::from_secs(1);
const REFUSED_AFTER_MAX: Duration = Duration::from_secs(3);

/// The refusals that cost the ledger something and that no sender needs twice: the token is no good.
pub const FENCED_OFF: [ErrorCode; 6] = [
    ErrorCode::FenceTokenUnknown,
    ErrorCode::FenceTokenStale,
    ErrorCode::FenceTokenVoid,
    ErrorCode::FenceTokenReleased,
    ErrorCode::FenceTokenBroken,
    ErrorCode::LockIdMismatch,
];

/// Finds out who sends a request, under the rules that are in force, and serves it. What is beyond a share is refused after a
/// moment, and so is who was refused again and again.
pub async fn identify(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let asks = match asks(&app, &parts).await {
        Ok(asks) => asks,
        Err(problem) => {
            let is_shown = parts.extensions.get::<Shown>().is_some_and(|shown| shown.0.is_some());
            if is_shown || parts.headers.contains_key(header::AUTHORIZATION) {
                note_refused(&app, None, &problem, &Sender::of(&parts));
            }
            return problem.into_response();
        }
    };
    let asks = match is_recorded(&parts) {
        true => asks.by_request(Sender::of(&parts).request()),
        false => asks,
    };
    // What is open to everybody is so to whoever has used up its share, too.
    let known = asks.known().filter(|_| !is_open(&parts));
    if let Err(problem) = take_seat(&app, known.as_ref(), &parts).await {
        return problem.into_response();
    }
    let place = span_of(&parts, &asks);
    parts.extensions.insert(asks.clone());
    let sender = Sender::of(&parts);
    let request = Request::from_parts(parts, body);
    let response = match known.clone().map_or(Ok(()), comes_in_time) {
        Ok(()) => within(place, served(asks, request, next)).await,
        Err(problem) => problem.into_response(),
    };
    if let (Some(known), Some(refused)) = (&known, response.extensions().get::<Problem>()) {
        tell_refused(&app, Some(known), refused, &sender).await;
    }
    response
}

/// The place of the span of a request, once it is known who asks. Under rules only who is somebody has a say in what is recorded.
pub fn span_of(parts: &Parts, asks: &Asks) -> Option<Place> {
    let recorded = parts.extensions.get::<Recorded>()?;
    recorded.is_of(!asks.is_ruled() || asks.known().is_some())
}

/// Takes the place that a connection has among those of its principal.
///
/// # Errors
/// It has as many as it may.
pub async fn take_seat(
    app: &App,
    known: Option<&Arc<Known>>,
    parts: &Parts,
) -> Result<(), Problem> {
    let (Some(known), Some(seat)) = (known, parts.extensions.get::<Seat>()) else { return Ok(()) };
    let Err(problem) = seat.take(known) else { return Ok(()) };
    if seat.waits_outside() {
        wait_refused(known, problem.code(), &*app.engine.runtime().clock).await;
    }
    Err(problem)
}

/// What becomes of a request that was refused: the audit is told of it, where it is to have that, and the caller waits the
/// longer to hear so, the more of them there were.
pub async fn tell_refused(
    app: &App,
    known: Option<&Arc<Known>>,
    problem: &Problem,
    sender: &Sender,
) {
    note_refused(app, known.map(|known| &**known), problem, sender);
    if let Some(known) = known {
        wait_refused(known, problem.code(), &*app.engine.runtime().clock).await;
    }
}

/// Tells the audit who was refused what its rules do not allow, or showed a credential that is not good.
fn note_refused(app: &App, known: Option<&Known>, problem: &Problem, sender: &Sender) {
    let refused = match (known, problem.code()) {
        (Some(known), ErrorCode::PermissionDenied) => Refused {
            action: AuditAction::Denied,
            who: known.caller.name().to_string(),
            detail: problem.detail().to_owned(),
            by: known.by.clone(),
            request: sender.request(),
        },
        (None, code) if NOBODY.contains(&code) => {
            let request = sender.request();
            Refused {
                action: AuditAction::AuthFailed,
                who: sender.counts_as(),
                detail: problem.detail().to_owned(),
                by: By::default(),
                request,
            }
        }
        _ => return,
    };
    app.engine.access().refused(refused);
}

/// Waits before a principal is told that it is refused, if that is for what it is better not to repeat: longer, the more of
/// that there was.
async fn wait_refused(known: &Known, code: ErrorCode, clock: &dyn Clock) {
    let at_least = match code {
        ErrorCode::RateLimited => REFUSED_AFTER,
        code if FENCED_OFF.contains(&code) => Duration::ZERO,
        _ => return,
    };
    let (refusals, now) = (&known.holdings.refusals, clock.elapsed());
    let each = Duration::from_secs(1) / REFUSALS_PER_SECOND;
    refusals.spend(now, each, REFUSALS_AT_ONCE + REFUSED_AFTER_MAX);
    let wait = refusals.must_wait(now, REFUSALS_AT_ONCE).max(at_least);
    if !wait.is_zero() {
        clock.sleep(wait).await;
    }
}

/// Serves a request. A read is held against the rules once more before a byte of its answer is sent: they may have changed
/// since. A body that takes its time ends once it is not allowed any more.
async fn served(asks: Asks, request: Request, next: Next) -> Response {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    let response = next.run(request).await;
    // A failure of the gateway itself tells nothing of what is there; that of an upstream may.
    let own = response.extensions().get::<Problem>();
    let tells = own.is_none_or(|problem| problem.code().status() < 500);
    if reads
        && tells
        && let Err(error) = asks.confirm().await
    {
        return Problem::from(error).into_response();
    }
    if reads { while_allowed(asks, response) } else { response }
}

/// Whether the caller's rate allows one more request, which is then counted.
///
/// # Errors
/// It does not.
pub fn comes_in_time(known: Arc<Known>) -> Result<(), Problem> {
    known.holdings.comes();
    let Some(wait) = known.rate.take() else { return Ok(()) };
    let why = "as many requests have come as may";
    Err(Counted::Principal(known).refused(Quota::Rate.as_str(), why).and_retry_after(wait))
}

/// Whether the audit may have an entry of it: of whatever changes something, but the data.
fn is_recorded(parts: &Parts) -> bool {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method);
    let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let is_data = ["/resources/{resource}/objects", "/commit", "/upstreams/"];
    !reads && !is_data.iter().any(|data| route.starts_with(data))
}

/// Where a request comes from.
pub struct Sender {
    ends: Option<Ends>,
    id: Option<RequestId>,
}

impl Sender {
    /// Of the request with this head.
    pub fn of(parts: &Parts) -> Self {
        Self {
            ends: parts.extensions.get::<Ends>().copied(),
            id: parts.extensions.get::<RequestId>().cloned(),
        }
    }

    /// The address or network that refusals of somebody unknown are counted by.
    fn counts_as(&self) -> String {
        let address = || self.ends.and_then(|ends| ends.peer).map(|peer| peer.ip().to_string());
        let counted = self.ends.and_then(|ends| ends.counted).map(|peer| peer.to_string());
        counted.or_else(address).unwrap_or_default()
    }

    /// What the audit is to have of it.
    fn request(&self) -> Asking {
        let peer = self.ends.map(|ends| ends.peer);
        let id = self.id.as_ref();
        Asking {
            peer: peer.map(|peer| peer.map_or_else(|| "unix".into(), |peer| peer.ip().to_string())),
            request_id: id.map_or_else(String::new, |id| id.as_str().to_owned()),
            gateway_request_id: id.and_then(RequestId::own).map(|own| own.to_string()),
        }
    }
}

fn is_open(parts: &Parts) -> bool {
    let route = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str);
    route.is_some_and(|route| OPEN.contains(&route))
}

/// Who asks. A peer from which many credentials came that are nobody's is only asked whether this gateway knows the one
/// that it shows: what it guesses costs no signature, no question to the ledger, and no line of the log.
async fn asks(app: &App, parts: &Parts) -> Result<Asks, Problem> {
    let peer = parts.extensions.get::<Ends>().and_then(|ends| ends.counted);
    let Some(peer) = peer else { return asked(app, parts, false).await };
    let now = app.engine.runtime().clock.elapsed();
    let must_wait = app.room.failures.must_wait(peer, now);
    let asked = asked(app, parts, must_wait.is_some()).await;
    // Whoever shows nothing does not guess.
    let is_guess = |problem: &Problem| {
        problem.code() == ErrorCode::Unauthenticated
            && parts.headers.contains_key(header::AUTHORIZATION)
    };
    match (asked, must_wait) {
        (Err(problem), Some(wait)) if is_guess(&problem) => {
            let why = "too many credentials that are nobody's have come from your address";
            Err(rate_limited("failures", why.into()).and_retry_after(wait))
        }
        (Err(problem), None) if is_guess(&problem) => {
            app.room.failures.note(peer, now);
            Err(problem)
        }
        (asked, _) => asked,
    }
}

/// Who asks, under the rules that this gateway knows. Somebody who is nobody under them may be somebody under newer ones:
/// those are asked for before that is said, unless a peer guesses.
async fn asked(app: &App, parts: &Parts, guesses: bool) -> Result<Asks, Problem> {
    let access = app.engine.access();
    let is_open = is_open(parts);
    let bearer = bearer::bearer(&parts.headers, &parts.uri)
        .inspect_err(|problem| counted("none", &Err(problem.clone())))?;
    let shown = parts.extensions.get::<Shown>().cloned().unwrap_or_default().0;
    let in_force = match access.in_force().await {
        Ok(in_force) => in_force,
        Err(error) if !is_open => return Err(error.into()),
        // What is open to everybody does not wait for the ledger.
        Err(_) => return Ok(Asks::of_nobody(access)),
    };
    // Whoever shows something where nobody has to may have heard of rules before this gateway.
    let shows = !is_open && (bearer.is_some() || shown.is_some());
    let in_force = match shows && in_force.rules().is_none() {
        true => access.newer(&in_force).await.unwrap_or(in_force),
        false => in_force,
    };
    let shows_as = match (bearer, &shown) {
        (Some(text), _) => bearer::kind(text),
        (None, Some(shown)) => method(shown),
        (None, None) => "none",
    };
    let known = found(app, &in_force, bearer, shown.clone(), guesses).await;
    let (known, in_force) = match known {
        Err(problem) if NOBODY.contains(&problem.code()) && !is_open && !guesses => {
            let newer = access.newer(&in_force).await.ok_or(problem)?;
            (found(app, &newer, bearer, shown, guesses).await, newer)
        }
        known => (known, in_force),
    };
    if in_force.rules().is_some() {
        counted(shows_as, &known);
    }
    match known {
        Ok(known) => Ok(Asks::new(access, in_force, known)),
        Err(_) if is_open => Ok(Asks::new(access, in_force, None)),
        Err(problem) => Err(problem),
    }
}

async fn found(
    app: &App,
    in_force: &InForce,
    bearer: Option<&str>,
    shown: Option<Arc<Identity>>,
    guesses: bool,
) -> Result<Option<Arc<Known>>, Problem> {
    let Some(rules) = in_force.rules() else { return Ok(None) };
    let now = app.engine.runtime().clock.now();
    let (text, shown) = match (bearer, shown) {
        (None, None) => return Err(EngineError::Unauthenticated.into()),
        (None, Some(shown)) => return Ok(in_force.known(Some(shown), now)?),
        (Some(text), shown) => (text, shown),
    };
    let known = bearer::known(&app.issuers, in_force, rules, (text, guesses), now).await?;
    let certificate = shown.filter(|shown| matches!(**shown, Identity::Certificate { .. }));
    // One that is nobody's says nothing: a proxy in between may have its own.
    let other = certificate.and_then(|shown| in_force.known(Some(shown), now).ok().flatten());
    if other.is_some_and(|other| *other.caller.name() != *known.caller.name()) {
        let why = "the client certificate is of another principal than the bearer credential";
        return Err(Problem::new(ErrorCode::CredentialsConflict, why));
    }
    Ok(Some(known))
}

fn method(identity: &Identity) -> &'static str {
    match identity {
        Identity::Key(_) => "key",
        Identity::Jwt { .. } => "jwt",
        Identity::Certificate { .. } => "certificate",
        Identity::Unix { .. } => "unix",
        Identity::S3Key { .. } => "s3-key",
        Identity::S3Lock { .. } => "s3-lock",
    }
}

/// Counts a request by how it showed who sent it. Each thread keeps the handles that it got from the recorder, of which
/// there are few: to ask for one again makes its key anew each time.
fn counted(method: &'static str, found: &Result<Option<Arc<Known>>, Problem>) {
    thread_local! {
        static HANDLES: RefCell<Vec<([&'static str; 2], metrics::Counter)>> = RefCell::default();
    }
    let outcome = match found {
        Ok(_) => "accepted",
        Err(problem) => match problem.code() {
            ErrorCode::CredentialExpired => "expired",
            ErrorCode::CredentialsConflict => "conflict",
            _ => "refused",
        },
    };
    let labels = [method, outcome];
    HANDLES.with_borrow_mut(|handles| {
        if let Some((_, counter)) = handles.iter().find(|(of, _)| *of == labels) {
            return counter.increment(1);
        }
        let counter = metrics::counter!(AUTH, "method" => method, "outcome" => outcome);
        counter.increment(1);
        handles.push((labels, counter));
    });
}

/// For handlers: who asks.
impl<S: Sync> FromRequestParts<S> for Asks {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let asks = parts.extensions.get::<Self>().cloned();
        asks.ok_or_else(|| EngineError::Defect("a route without a caller".into()).into())
    }
}

/// A credential that was found to be somebody's.
type Found = Result<Arc<Known>, EngineError>;
