//! One attempt of a call: to which gateway, for how long, and whose answer came back.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod credential;
pub(crate) mod request;
mod sending;
pub(crate) mod unreached;
pub(crate) mod urls;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fencegate_wire::ErrorCode;
use fencegate_wire::json::Problem;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue, RETRY_AFTER};

use self::answer::{Answer, Foreign, JSON_BYTES_MAX, Nothing, Reply, causes};
use self::credential::Credential;
use self::request::Request;

use self::urls::Urls;
use crate::clock::ms;
use crate::error::{Details, Error};

const REQUEST_ID: &str = "x-request-id";
/// How long a function may take that gives the credential.
const CREDENTIAL_WITHIN: Duration = Duration::from_secs(15);

/// Gives the `traceparent` of the span that is current, if there is one.
pub(crate) type TraceParent = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// To connect.
    pub(crate) connect: Duration,
    /// From the last byte of a request to the head of its answer.
    pub(crate) head: Duration,
    /// Between two pieces of a body.
    pub(crate) idle: Duration,
}

/// Sends requests.
pub(crate) struct Transport {
    /// For gateways on this machine, past any proxy.
    direct: reqwest::Client,
    /// For all others.
    outward: reqwest::Client,
    pub(crate) urls: Urls,
    pub(crate) credential: Option<Credential>,
    traceparent: Option<TraceParent>,
    pub(crate) headers: HeaderMap,
    pub(crate) patience: Patience,
    /// What the gateway says that it needs for an answer, if it was asked (CC9).
    answer_within_ms: AtomicU64,
    /// Set once anything has answered. A request that fails for good before is not tried again.
    was_reached: AtomicBool,
}

impl Transport {
    pub(crate) fn new(
        builder: impl Fn() -> reqwest::ClientBuilder,
        urls: Urls,
        credential: Option<Credential>,
        traceparent: Option<TraceParent>,
        headers: HeaderMap,
        patience: Patience,
    ) -> Result<Self, Error> {
        let client = |builder: reqwest::ClientBuilder| {
            let agent = concat!("fencegate-rust/", env!("CARGO_PKG_VERSION"), " (tokio)");
            let builder = builder.user_agent(agent).connect_timeout(patience.connect);
            let builder = builder.redirect(reqwest::redirect::Policy::none()).http1_only();
            let built = builder.pool_max_idle_per_host(64).build();
            built.map_err(|error| Error::misuse(format!("no HTTP client: {}", causes(&error))))
        };
        let direct = client(builder().no_proxy())?;
        let all_local = urls.all().iter().all(|base| base.is_loopback);
        let outward = if all_local { direct.clone() } else { client(builder())? };
        let answer_within_ms = AtomicU64::new(0);
        Ok(Self {
            direct,
            outward,
            urls,
            credential,
            traceparent,
            headers,
            patience,
            answer_within_ms,
            was_reached: AtomicBool::new(false),
        })
    }

    /// The gateway needs up to this long for an answer.
    pub(crate) fn learn_answer_within(&self, within_ms: u64) {
        self.answer_within_ms.store(within_ms.min(600_000), Ordering::Relaxed);
    }

    /// How long to wait for the head of an answer to a call that does not wait.
    pub(crate) fn head_ms(&self) -> u64 {
        ms(self.patience.head).max(self.answer_within_ms.load(Ordering::Relaxed))
    }

    /// One attempt. After a 401 a credential that may change is asked for once more, unless the body can be read only once.
    pub(crate) async fn attempt(&self, request: &Request, id: &str) -> Reply {
        let reply = self.send_once(request, id).await;
        let unauthorized = match &reply {
            Reply::Problem(problem) => problem.status == 401,
            Reply::Foreign(foreign) => foreign.status == 401,
            _ => false,
        };
        let is_replayable = request.body.as_ref().is_none_or(|body| body.is_replayable());
        let may_change = self.credential.as_ref().is_some_and(Credential::may_change);
        if unauthorized && is_replayable && may_change {
            return self.send_once(request, &format!("{id}.again")).await;
        }
        reply
    }

    /// The one attempt of a request to an upstream, whose answer counts whatever its status is.
    pub(crate) async fn attempt_forward(
        &self,
        request: &Request,
        id: &str,
    ) -> Result<Answer, Reply> {
        self.attempt_any(request, id, |headers| headers.contains_key("x-fence-guarantee")).await
    }

    /// One attempt whose answer counts whatever its status is, if its headers show that it is the one meant.
    pub(crate) async fn attempt_any(
        &self,
        request: &Request,
        id: &str,
        is_meant: impl FnOnce(&HeaderMap) -> bool,
    ) -> Result<Answer, Reply> {
        let (place, head) = self.exchange(request, id).await;
        let reply = match head {
            Ok(mut response) => {
                let headers = response.headers();
                if is_echoed(headers, id) && is_meant(headers) {
                    let status = response.status();
                    let headers = std::mem::take(response.headers_mut());
                    return Ok(Answer { status, headers, response, idle: self.patience.idle });
                }
                match self.judge(response, id).await {
                    Reply::Done(answer) => Reply::Foreign(foreign(&answer, true)),
                    reply => reply,
                }
            }
            Err(reply) => reply,
        };
        Err(self.concluded(place, reply, &request.method))
    }

    async fn send_once(&self, request: &Request, id: &str) -> Reply {
        let (place, head) = self.exchange(request, id).await;
        let reply = match head {
            Ok(response) => self.judge(response, id).await,
            Err(reply) => reply,
        };
        self.concluded(place, reply, &request.method)
    }

    /// Sends a request to the gateway that is asked now, and gives the head of the answer.
    async fn exchange(
        &self,
        request: &Request,
        id: &str,
    ) -> (usize, Result<reqwest::Response, Reply>) {
        let (place, base) = self.urls.current();
        let client = if base.is_loopback { &self.direct } else { &self.outward };
        let built = self.build(client, base.with(&request.path), request, id).await;
        let (built, progress) = match built {
            Ok(built) => built,
            Err(error) => return (place, Err(Reply::Unsendable(error))),
        };
        let usual_ms = self.head_ms().saturating_add(request.wait_ms);
        let head_ms = request.within_ms.map_or(usual_ms, |within_ms| within_ms.min(usual_ms));
        let head = sending::send(client, built, progress, (base.text(), head_ms)).await;
        if head.is_ok() {
            self.was_reached.store(true, Ordering::Relaxed);
        }
        (place, head.map_err(Reply::Nothing))
    }

    /// Looks elsewhere next, if that is better. Before anything has ever answered, a cause that no wait can mend ends the
    /// call, once it holds for each of the gateways.
    fn concluded(&self, place: usize, reply: Reply, method: &reqwest::Method) -> Reply {
        if is_elsewhere_better(&reply) {
            self.urls.avoid(place);
        }
        match reply {
            Reply::Nothing(nothing)
                if unreached::ends_call(&nothing, method)
                    && !self.was_reached.load(Ordering::Relaxed)
                    && self.urls.are_all_closed(place) =>
            {
                Reply::Unsendable(nothing.error(0))
            }
            reply => reply,
        }
    }

    async fn build(
        &self,
        client: &reqwest::Client,
        url: String,
        request: &Request,
        id: &str,
    ) -> Result<(reqwest::Request, sending::Progress), Error> {
        let mut headers = self.headers.clone();
        headers.extend(request.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        if let Ok(id) = HeaderValue::from_str(id) {
            headers.insert(REQUEST_ID, id);
        }
        let traced = self.traceparent.as_ref().and_then(|current| current());
        if let Some(Ok(traced)) = traced.map(HeaderValue::try_from) {
            headers.insert("traceparent", traced);
        }
        if let Some(credential) = &self.credential {
            let asked = tokio::time::timeout(CREDENTIAL_WITHIN, credential.header()).await;
            let late = || Error::Denied(Details::local("the credential was not there in time"));
            headers.insert(AUTHORIZATION, asked.unwrap_or_else(|_| Err(late()))?);
        }
        let progress = sending::Progress::default();
        let built = client.request(request.method.clone(), url).build();
        let mut built =
            built.map_err(|error| Error::misuse(format!("no request: {}", causes(&error))))?;
        if let Some(body) = &request.body {
            let (body, len) = sending::body(body.begin().await?, &progress);
            if let Some(len) = len {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
            }
            *built.body_mut() = Some(body);
        }
        *built.headers_mut() = headers;
        Ok((built, progress))
    }

    /// Whose answer it is: a gateway's has our id of the request (CC24a).
    async fn judge(&self, mut response: reqwest::Response, id: &str) -> Reply {
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let idle = self.patience.idle;
        let is_ours = is_echoed(&headers, id);
        let answer = Answer { status, headers, response, idle };
        let is_good = status.is_success() || status == StatusCode::NOT_MODIFIED;
        if is_ours && is_good {
            return Reply::Done(answer);
        }
        let foreign = foreign(&answer, is_ours);
        if !is_ours || !(400..600).contains(&status.as_u16()) {
            return Reply::Foreign(foreign);
        }
        match answer
            .bytes(JSON_BYTES_MAX)
            .await
            .map(|bytes| serde_json::from_slice::<Problem>(&bytes))
        {
            Ok(Ok(problem)) => Reply::Problem(Box::new(with_retry_after(problem, &foreign))),
            Ok(Err(_)) => Reply::Foreign(foreign),
            Err(nothing) => Reply::Nothing(nothing),
        }
    }
}

/// Whether an answer says which of our requests it is about.
fn is_echoed(headers: &HeaderMap, id: &str) -> bool {
    headers.get(REQUEST_ID).is_some_and(|echo| echo.as_bytes() == id.as_bytes())
}

/// `Retry-After` counts if the document does not say it.
fn with_retry_after(problem: Problem, head: &Foreign) -> Problem {
    let header = head.retry_after_ms.and_then(|ms| i64::try_from(ms).ok());
    Problem { retry_after_ms: problem.retry_after_ms.or(header), ..problem }
}

fn foreign(answer: &Answer, is_ours: bool) -> Foreign {
    let status = answer.status.as_u16();
    let what = answer.header("content-type").unwrap_or("no content type").to_owned();
    let detail = match is_ours {
        true => format!("the gateway answered {status} without saying why ({what})"),
        false => format!("something between here and the gateway answered {status} ({what})"),
    };
    let seconds = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    // A year is as good as never, and does not overflow.
    let seconds = seconds.and_then(|text| text.parse::<u64>().ok()).map(|s| s.min(31_536_000));
    Foreign { status, detail, retry_after_ms: seconds.map(|seconds| seconds * 1000) }
}

/// Whether the next gateway is asked instead (CC3).
fn is_elsewhere_better(reply: &Reply) -> bool {
    match reply {
        Reply::Nothing(_) => true,
        Reply::Problem(problem) => matches!(
            ErrorCode::parse(&problem.code),
            Some(ErrorCode::ShuttingDown | ErrorCode::Overloaded)
        ),
        Reply::Foreign(foreign) => foreign.status >= 500,
        Reply::Done(_) | Reply::Unsendable(_) => false,
    }
}

/// A body that went nowhere.
pub(crate) fn nothing(was_sent: bool, timed_out: bool, detail: impl Into<String>) -> Nothing {
    Nothing { was_sent, timed_out, unreached: None, detail: detail.into() }
}
