//! An HTTP service that knows no fence: what the gateway fronts in the tests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as the upstream saw it, in the order in which they came to act.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The method.
    pub method: Method,
    /// The path and query, as they came.
    pub target: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The number of bytes in its body.
    pub bytes: usize,
}

impl Seen {
    /// The token that came along.
    pub fn token(&self) -> Option<i64> {
        self.headers.get("x-fence-token")?.to_str().ok()?.parse().ok()
    }
}

/// Who is told of each request at the moment at which the upstream acts on it.
type Watcher = Box<dyn Fn(&Seen) + Send + Sync>;

struct Shared {
    seen: Mutex<Vec<Seen>>,
    watcher: Watcher,
    begun: AtomicUsize,
    delay_ms: AtomicU64,
}

/// A running upstream. It ends with this.
///
/// What it does, a request asks for in its query: `delay=<ms>` before it acts, `late=<ms>` between the head
/// and the end of the answer, `status=<code>`, `size=<bytes>` of the answer, `chunked`, `hang`, `cut`, `loud` for headers that act on more than the
/// answer.
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Upstream {
    /// Starts one on a free port.
    pub async fn start() -> Self {
        Self::watched(|_| {}).await
    }

    /// The same; whoever watches is told of each request at the moment at which it acts on it.
    pub async fn watched(watcher: impl Fn(&Seen) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            watcher: Box::new(watcher),
            begun: AtomicUsize::new(0),
            delay_ms: AtomicU64::new(0),
        });
        let app = Router::new().fallback(act).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("it serves");
        });
        Self { address, shared, server }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A flag for `--upstream`: `/r/{resource}` names the resources, which are prefixed with `u:`.
    pub fn setting(&self, guarantee: &str, more: &str) -> String {
        let url = self.url();
        format!(
            "name=u,url={url},resource=/r/{{resource}},resource_form=digits,guarantee={guarantee}{more}"
        )
    }

    /// What it acted on so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests have reached it, whether it has acted on them or not.
    pub fn begun(&self) -> usize {
        self.shared.begun.load(Ordering::Acquire)
    }

    /// From now on it waits so long before it acts, unless a request says otherwise.
    pub fn delay(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).expect("short");
        self.shared.delay_ms.store(ms, Ordering::Release);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Acts in a task of its own, as services do that finish what they began although nobody waits any more.
async fn act(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    shared.begun.fetch_add(1, Ordering::AcqRel);
    tokio::spawn(perform(shared, request)).await.expect("no panic")
}

fn asked<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| match pair.split_once('=') {
        Some((key, value)) if key == name => Some(value),
        None if pair == name => Some(""),
        _ => None,
    })
}

fn number(query: &str, name: &str) -> Option<u64> {
    asked(query, name)?.parse().ok()
}

async fn perform(shared: Arc<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let mut bytes = 0;
    let mut body = body.into_data_stream();
    while let Some(Ok(part)) = body.next().await {
        bytes += part.len();
    }
    if asked(&query, "hang").is_some() {
        return std::future::pending().await;
    }
    let delay = number(&query, "delay").unwrap_or(shared.delay_ms.load(Ordering::Acquire));
    tokio::time::sleep(Duration::from_millis(delay)).await;
    let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let seen = Seen { method: parts.method, target, headers: parts.headers, bytes };
    (shared.watcher)(&seen);
    shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    let status = number(&query, "status").and_then(|code| u16::try_from(code).ok());
    let status = status.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::OK);
    let mut response = answer(&query);
    *response.status_mut() = status;
    if let Some(to) = asked(&query, "location") {
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_str(to).expect("plain"));
    }
    if asked(&query, "loud").is_some() {
        let loud = LOUD
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        response.headers_mut().extend(loud);
    }
    response
}

/// What a service may say to browsers about its own origin, and one header that is about nothing.
const LOUD: &[(&str, &str)] = &[
    ("set-cookie", "session=1"),
    ("access-control-allow-origin", "*"),
    ("service-worker-allowed", "/"),
    ("clear-site-data", "\"*\""),
    ("alt-svc", "h3=\":1\""),
    ("strict-transport-security", "max-age=1"),
    ("content-security-policy", "script-src *"),
    ("cross-origin-resource-policy", "cross-origin"),
    ("x-fence-token", "7"),
    ("x-own", "kept"),
];

fn answer(query: &str) -> Response {
    let size = usize::try_from(number(query, "size").unwrap_or(0)).expect("small enough");
    let late = Duration::from_millis(number(query, "late").unwrap_or(0));
    let cut = asked(query, "cut").is_some();
    if size == 0 && late.is_zero() && !cut {
        return "done".into_response();
    }
    const PART: usize = 64 * 1024;
    let parts = futures::stream::unfold(0, move |sent| async move {
        if sent >= size {
            tokio::time::sleep(late).await;
            let broken = std::io::Error::other("cut");
            return (cut && sent < usize::MAX).then_some((Err(broken), usize::MAX));
        }
        let part = Bytes::from(vec![b'x'; PART.min(size - sent)]);
        let sent = sent + part.len();
        Some((Ok::<_, std::io::Error>(part), sent))
    });
    let mut response = Body::from_stream(parts).into_response();
    if asked(query, "chunked").is_none() && size > 0 && !cut {
        response.headers_mut().insert(header::CONTENT_LENGTH, size.into());
    }
    response
}
