//! Requests to upstreams when the machine sleeps, a task dies, or the ledger's answer is lost.
#![expect(clippy::disallowed_methods, reason = "a test owns the clocks and starts tasks")]

use fencegate::engine::access::Permit;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{HeaderMap, Method};
use fence_core::ErrorCode;
use fence_core::ports::{Clock, Intents as _, Runtime, Spawn, Task};
use fence_core::wire;
use fence_tests::process::eventually;
use fence_tests::scripted::{Step, lost, rolled_back};
use fence_tests::upstream::Upstream;
use fencegate::config::{self, Credentials, Guarantee, ResourceForm};
use fencegate::engine::Forward;
use fencegate::http::budget::Budget;
use fencegate::http::peers::Counted;
use fencegate::http::proxy::{Passage, Upstreams, forward, is_fenced, read_ahead};
use fencegate::http::{Limits, Problem};
use fencegate::runtime::{TokioClock, runtime};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::engine::rig::{self, Rig, counter};

/// An upstream as the settings have it.
fn settings(upstream: &Upstream, max_effect_delay: Option<Duration>) -> config::Upstream {
    config::Upstream {
        name: "u".into(),
        url: upstream.url(),
        resource: "/r/{resource}".into(),
        resource_form: ResourceForm::Digits,
        resource_prefix: None,
        guarantee: Guarantee::Drained,
        timeout: Duration::from_secs(60),
        connect_timeout: None,
        body_bytes_max: 1000,
        in_flight_max: 9,
        max_effect_delay,
        intermediary: true,
        authorization: Credentials::Strip,
        ca_file: None,
        cert_file: None,
        key_file: None,
    }
}

/// Sends a request with a sequence number through the proxy, past its routes; the problem that comes back.
async fn refused(
    rig: &Rig,
    settings: &config::Upstream,
    method: Method,
    query: Option<&str>,
) -> (ErrorCode, wire::Problem) {
    let upstream = Upstreams::new(std::slice::from_ref(settings)).expect("usable").get("u");
    let upstream = upstream.expect("it is there");
    let limits = Limits::default();
    let bodies = Budget::new(1000, 1000);
    let body = read_ahead(Body::empty(), 1000, &limits, bodies.of(&Counted::Nobody))
        .await
        .expect("a body");
    let mut fenced = None;
    if is_fenced(&method) {
        fenced = Some(Forward {
            upstream: "u".into(),
            drained: true,
            max_effect_delay: settings.max_effect_delay,
            resource: rig::name(rig::R),
            token: rig.granted(rig::R).await.token,
            lock: None,
            sequence: Some(1),
            resource_version: None,
            method: method.to_string(),
            path: "/r/1".into(),
            request_id: "test".into(),
            permit: Permit::default(),
        });
    }
    let target = upstream.target("/r/1", query).expect("a good path");
    let room = upstream.enter().expect("room");
    let headers = HeaderMap::new();
    let passage = Passage { upstream, target, method, headers, body, fenced, room, asks: None };
    let problem: Problem = forward(&rig.engine, &limits, passage).await.expect_err("no answer");
    let document =
        serde_json::from_slice(&problem.clone().render("test", None, None)).expect("a document");
    (problem.code(), document)
}

fn used_up(problem: &wire::Problem, is: &str) -> bool {
    problem.detail.contains(&format!("X-Fence-Seq {is} used up"))
}

/// The wall clock of a machine that sleeps goes on; the other one does not.
struct Sleeper {
    awake: TokioClock,
    slept_ms: AtomicI64,
}

#[async_trait]
impl Clock for Sleeper {
    fn now(&self) -> Timestamp {
        self.awake.now() + SignedDuration::from_millis(self.slept_ms.load(Ordering::Acquire))
    }

    fn elapsed(&self) -> Duration {
        self.awake.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        self.awake.sleep(duration).await;
    }
}

/// It was admitted, then the machine slept: nothing that may count as closed by now is sent.
#[tokio::test]
async fn a_machine_that_slept_sends_nothing() {
    let upstream = Upstream::start().await;
    let clock = Arc::new(Sleeper { awake: TokioClock::new(), slept_ms: AtomicI64::new(0) });
    let rig = Rig::on_runtime(Runtime { clock: clock.clone(), ..runtime(TaskTracker::new()) });
    rig.ledger.on_open(move |_, _| {
        let clock = Arc::clone(&clock);
        Step::act().and_then(async move { clock.slept_ms.store(3_600_000, Ordering::Release) })
    });
    let settings = settings(&upstream, Some(Duration::from_secs(7200)));
    let (code, problem) = refused(&rig, &settings, Method::PUT, None).await;
    assert_eq!((code, problem.outcome.as_deref()), (ErrorCode::UpstreamTimeout, None));
    assert!(used_up(&problem, "is"), "{}", problem.detail);
    assert_eq!(
        (upstream.begun(), rig.ledger.intents_open().await.map(|open| open.count)),
        (0, Ok(0))
    );
}

/// Tasks that forward end when this says so, as if they had panicked.
struct Deadly {
    safe: Arc<dyn Spawn>,
    death: Arc<Notify>,
}

impl Spawn for Deadly {
    fn spawn(&self, name: &'static str, task: Task) {
        if name != "forward" {
            return self.safe.spawn(name, task);
        }
        let death = Arc::clone(&self.death);
        tokio::spawn(async move {
            tokio::select! {
                () = task => {}
                () = death.notified() => {}
            }
        });
    }
}

/// It may have been sent: whoever asks is not told that it has failed.
#[tokio::test]
async fn a_task_that_dies_leaves_the_fate_open() {
    for (method, outcome, open) in [(Method::POST, Some("unknown"), 1), (Method::GET, None, 0)] {
        let upstream = Upstream::start().await;
        let death = Arc::new(Notify::new());
        let real = runtime(TaskTracker::new());
        let spawn = Deadly { safe: Arc::clone(&real.spawn), death: Arc::clone(&death) };
        let rig = Rig::on_runtime(Runtime { spawn: Arc::new(spawn), ..real });
        let settings = settings(&upstream, None);
        let killing = async {
            eventually("it is there", async || (upstream.begun() == 1).then_some(())).await;
            death.notify_one();
        };
        let sent = refused(&rig, &settings, method, Some("hang"));
        let ((code, problem), ()) = tokio::join!(sent, killing);
        assert_eq!((code, problem.outcome.as_deref()), (ErrorCode::Internal, outcome));
        assert_eq!(rig.ledger.intents_open().await.map(|open| open.count), Ok(open));
    }
}

/// Nobody knows whether it was admitted, so nobody knows whether its number is used up.
#[tokio::test]
async fn a_number_may_be_used_up_when_the_answer_was_lost() {
    let upstream = Upstream::start().await;
    let rig = Rig::new();
    let (_, mut call) = counter();
    rig.ledger.on_open(move |_, _| match call() {
        0 => Step::act_but(lost()),
        _ => Step::fail(rolled_back()),
    });
    let (code, problem) = refused(&rig, &settings(&upstream, None), Method::PUT, None).await;
    assert_eq!((code, problem.outcome.as_deref()), (ErrorCode::LedgerUnavailable, None));
    assert!(used_up(&problem, "may be"), "{}", problem.detail);
    assert_eq!(upstream.begun(), 0);
}
