//! One peer keeps no room from others: the whole router, with peers that are made up.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts tasks of its own and waits on the real clock"
)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use fence_core::memory::MemoryBlobs;
use fence_core::ports::{Grant, Rulebook as _};
use fence_tests::conformance::ledger::build::rules_change;
use fence_tests::process::eventually;
use fencegate::http::identify::Issuers;
use fencegate::http::peers::{PLACES_MAX, Proxies};
use fencegate::http::room::Room;
use fencegate::http::routes::Exported;
use fencegate::http::{AppState, Ends, Limits, router};
use fencegate::runtime::runtime;
use fencegate_access::ApiKey;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::engine::rig::{R, Rig};

const ONE: Option<&str> = Some("192.0.2.1");
const OTHER: Option<&str> = Some("192.0.2.2");
const MIB: usize = 1 << 20;

/// A call that has begun.
type Call = BoxFuture<'static, Response<Body>>;

struct Door {
    rig: Rig,
    routes: Router,
}

impl Door {
    /// With room for 20 connections, 8 MiB of bodies, and 4 uploads.
    fn new() -> Self {
        Self::of(20)
    }

    fn of(connections_max: usize) -> Self {
        let clock = runtime(TaskTracker::new()).clock;
        let rig = Rig::on_blobs(Some(Arc::new(MemoryBlobs::new(clock))));
        let limits = Limits { connections_max, ..Limits::default() };
        let routes = router(AppState {
            engine: rig.engine.clone(),
            limits,
            room: Room::new(&limits, 8 * MIB, 4),
            metrics: PrometheusBuilder::new().build_recorder().handle(),
            exported: Exported::of(&["r".into()]),
            draining: CancellationToken::new(),
            guarantee: "strict",
            ground: Default::default(),
            requires_lock_id: false,
            upstreams: fencegate::http::proxy::Upstreams::default(),
            issuers: Arc::new(Issuers::new(rig.engine.runtime().clock.clone()).expect("TLS")),
            doors: Arc::default(),
            page: None,
            s3: None,
        });
        Self { rig, routes }
    }

    /// From now on no list is answered before the gate has a permit for it. Counts those that were asked for.
    fn gated_lists(&self) -> (Arc<AtomicUsize>, Arc<Semaphore>) {
        let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (asking, until) = (Arc::clone(&asked), Arc::clone(&gate));
        self.rig.ledger.on_list(move || {
            asking.fetch_add(1, Ordering::SeqCst);
            let until = Arc::clone(&until);
            async move { until.acquire().await.unwrap().forget() }.boxed()
        });
        (asked, gate)
    }

    fn call(&self, from: Option<&str>, mut request: Request<Body>) -> Call {
        let peer = from.map(|ip| SocketAddr::new(ip.parse().unwrap(), 40_000));
        request.extensions_mut().insert(Ends::of(peer, None, &Proxies::default()));
        request.headers_mut().insert("host", "localhost".parse().unwrap());
        let routes = self.routes.clone();
        async move {
            let Ok(answer) = routes.oneshot(request).await;
            answer
        }
        .boxed()
    }

    /// A put of so many bytes, of which the first `sent` come and no more, if there are more.
    fn put(&self, from: Option<&str>, under: &Grant, (sent, of): (usize, Option<usize>)) -> Call {
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![7; sent]))]);
        let body = match of {
            Some(of) if of == sent => Body::from_stream(first),
            _ => Body::from_stream(first.chain(stream::pending())),
        };
        let mut request = Request::put(format!("/resources/{R}/objects/k"))
            .header("x-fence-token", under.token.to_string());
        if let Some(of) = of {
            request = request.header("content-length", of);
        }
        self.call(from, request.body(body).unwrap())
    }

    fn lock(&self, from: Option<&str>, resource: &str, wait: Option<&str>) -> Call {
        let mut wish = json!({ "resource": resource, "owner": "w", "ttl": "1m" });
        if let Some(wait) = wait {
            wish["wait"] = json!(wait);
        }
        let request = Request::post("/locks").header("content-type", "application/json");
        self.call(from, request.body(Body::from(wish.to_string())).unwrap())
    }

    fn list(&self, from: Option<&str>) -> Call {
        self.call(from, Request::get("/resources").body(Body::empty()).unwrap())
    }
}

/// A call that goes on.
fn held(mut call: Call) -> Call {
    if let Some(answer) = (&mut call).now_or_never() {
        panic!("it is answered: {} {:?}", answer.status(), answer.headers());
    }
    call
}

/// What is answered to who has its share already.
fn refused(answer: &Response<Body>) {
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers().contains_key("retry-after"), "{:?}", answer.headers());
}

/// Stalled bodies of one peer fill its share to the last byte, 1 MiB; those of all, the 7 MiB that JSON bodies do not
/// have.
#[tokio::test]
async fn bodies() {
    let door = Door::new();
    let grant = door.rig.granted(R).await;
    let part = 200 * 1024;
    let stalled: Vec<_> =
        (0..5).map(|_| held(door.put(ONE, &grant, (part, Some(part + 1))))).collect();
    let last = 24 * 1024;
    let filled = held(door.put(ONE, &grant, (last, Some(last + 1))));
    refused(&door.put(ONE, &grant, (part, Some(part + 1))).await);
    let put = door.put(OTHER, &grant, (part, Some(part))).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    assert_eq!(door.lock(ONE, "job:1", None).await.status(), StatusCode::CREATED);
    // Who is not counted fills the rest; what the ledger in memory keeps is a body still.
    let rest: Vec<_> =
        (0..29).map(|_| held(door.put(None, &grant, (part, Some(part + 1))))).collect();
    let last = 144 * 1024;
    let full = held(door.put(None, &grant, (last, Some(last + 1))));
    refused(&door.put(None, &grant, (part, Some(part + 1))).await);
    refused(&door.put(OTHER, &grant, (part, Some(part + 1))).await);
    assert_eq!(door.lock(OTHER, "job:2", None).await.status(), StatusCode::CREATED);
    drop((stalled, filled, rest, full));
    assert!(door.put(ONE, &grant, (part, Some(part))).await.status().is_success());
}

/// A quarter of four uploads is one, or two that are known to be small.
#[tokio::test]
async fn uploads() {
    let door = Door::new();
    let grant = door.rig.granted(R).await;
    let large = held(door.put(ONE, &grant, (MIB, None)));
    refused(&door.put(ONE, &grant, (MIB, Some(2 * MIB))).await);
    let put = door.put(OTHER, &grant, (MIB, Some(MIB))).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    drop(large);
    let small: Vec<_> = (0..2).map(|_| held(door.put(ONE, &grant, (MIB, Some(8 * MIB))))).collect();
    refused(&door.put(ONE, &grant, (MIB, Some(8 * MIB))).await);
    drop(small);
    refused(&{
        let _one = held(door.put(ONE, &grant, (MIB, Some(8 * MIB))));
        door.put(ONE, &grant, (MIB, Some(8 * MIB + 1))).await
    });
}

/// Of 20 connections 16 may wait, and 4 of one peer.
#[tokio::test]
async fn long_calls() {
    let door = Door::new();
    door.rig.granted(R).await;
    let waiting: Vec<_> = (0..4).map(|_| held(door.lock(ONE, R, Some("50s")))).collect();
    refused(&door.lock(ONE, R, Some("50s")).await);
    let events = Request::get("/events").header("accept", "text/event-stream");
    refused(&door.call(ONE, events.body(Body::empty()).unwrap()).await);
    let other = held(door.lock(OTHER, R, Some("50s")));
    assert_eq!(door.lock(ONE, R, None).await.status(), StatusCode::CONFLICT, "it need not wait");
    drop((waiting, other));
    drop(held(door.lock(ONE, R, Some("50s"))));
}

#[tokio::test]
async fn places_in_line() {
    let door = Door::of(10_000);
    for resource in [R, "other"] {
        door.rig.granted(resource).await;
    }
    let waiting: Vec<_> = (0..PLACES_MAX).map(|_| held(door.lock(ONE, R, Some("50s")))).collect();
    // All have joined: the engine has room for more in its queues.
    assert_eq!(door.list(None).await.status(), StatusCode::OK);
    refused(&door.lock(ONE, R, Some("50s")).await);
    drop(held(door.lock(ONE, "other", Some("50s"))));
    drop(held(door.lock(OTHER, R, Some("50s"))));
    drop(waiting);
    drop(held(door.lock(ONE, R, Some("50s"))));
}

/// One query at a time is asked for one peer, also if its callers hang up.
#[tokio::test]
async fn queries() {
    let door = Door::new();
    let (asked, gate) = door.gated_lists();
    let until_asked = async |times: usize| {
        eventually("the ledger is asked", async || {
            (asked.load(Ordering::SeqCst) == times).then_some(())
        })
        .await;
    };
    let first = tokio::spawn(door.list(ONE));
    until_asked(1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let more: Vec<_> = (0..20).map(|_| tokio::spawn(door.list(ONE))).collect();
    let other = tokio::spawn(door.list(OTHER));
    until_asked(2).await;
    // Who waits for its turn is not answered, and does not come to the ledger, before the query has ended that nobody
    // waits for any more.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(more.iter().all(|one| !one.is_finished()));
    gate.add_permits(1_000);
    for one in more.into_iter().chain([other]) {
        assert_eq!(one.await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 22);
    // More than a line has room for.
    let (_asked, _gate) = door.gated_lists();
    let line: Vec<_> = (0..32).map(|_| held(door.list(ONE))).collect();
    refused(&door.list(ONE).await);
    drop(held(door.list(OTHER)));
    drop(line);
}

/// However many ask for the metrics, the ledger is asked once a second.
#[tokio::test(start_paused = true)]
async fn metrics_are_read_once_for_all_who_ask() {
    let door = Door::new();
    door.rig.granted(R).await;
    let (asked, gate) = door.gated_lists();
    let metrics = || door.call(None, Request::get("/metrics").body(Body::empty()).unwrap());
    let first = tokio::spawn(metrics());
    eventually("the ledger is asked", async || (asked.load(Ordering::SeqCst) == 1).then_some(()))
        .await;
    // Its caller hangs up: the read goes on, and is good for those who come meanwhile.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let more: Vec<_> = (0..10).map(|_| tokio::spawn(metrics())).collect();
    gate.add_permits(1_000);
    for one in more {
        let page = axum::body::to_bytes(one.await.unwrap().into_body(), MIB).await.unwrap();
        let line = "fencegate_resource_grants_total{resource=\"r\"} 1";
        assert!(String::from_utf8_lossy(&page).contains(line));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    metrics().await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// A peer that sends thirty keys within a minute that are nobody's is not listened to for the rest of it.
#[tokio::test]
async fn guesses() {
    let (door, key, other) =
        (Door::new(), ApiKey::generate().unwrap(), ApiKey::generate().unwrap());
    let text = format!(
        "[[roles]]\nname = \"r\"\nallow = [\"list\"]\nresources = [\"*\"]\n[[principals]]\nname = \"ann\"\nroles = [\"r\"]\n\
         keys = [{{ id = \"{}\", sha256 = \"{}\", expires = 2999-01-01T00:00:00Z }}]\n",
        key.kid(),
        key.digest().to_hex()
    );
    door.rig.memory().apply_rules(rules_change(&text)).await.unwrap();
    door.rig.engine.access().current().await.unwrap();
    let shows = async |from, credential: &str| {
        let request = Request::get("/resources?prefix=a")
            .header("authorization", format!("Bearer {credential}"));
        let answer = door.call(from, request.body(Body::empty()).unwrap()).await;
        (answer.status().as_u16(), answer.headers().contains_key("retry-after"))
    };
    for _ in 0..30 {
        assert_eq!(shows(ONE, other.reveal()).await, (401, false));
    }
    for guess in [other.reveal(), "e30.e30.e30"] {
        assert_eq!(shows(ONE, guess).await, (429, true));
    }
    assert_eq!(shows(ONE, key.reveal()).await.0, 200);
    let nothing = Request::get("/resources?prefix=a").body(Body::empty()).unwrap();
    assert_eq!(
        door.call(ONE, nothing).await.status().as_u16(),
        401,
        "who shows nothing does not guess"
    );
    for from in [OTHER, None] {
        assert_eq!(shows(from, other.reveal()).await.0, 401, "{from:?}");
    }
}
