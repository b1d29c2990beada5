//! The whole router, on a ledger, a mint and blobs in memory: the input is a script of requests.

mod checks;
mod clock;
mod script;
mod strangers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use fence_core::memory::{MemoryBlobs, MemoryLedger, MemoryMint};
use fence_core::ports::{
    BlobTimes, Page, ResourceView, Retention, Rulebook as _, RulesChange, Which,
};
use fencegate::engine::{Engine, Settings};
use fencegate::http::identify::Issuers;
use fencegate::http::proxy::Upstreams;
use fencegate::http::receipt::Receipt;
use fencegate::http::room::Room;
use fencegate::http::routes::Exported;
use fencegate::http::{AppState, Limits, router as routes};
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use uuid::Uuid;

use clock::HandClock;
use script::{Call, Granted, split};
pub use strangers::strangers;

/// The number after which tokens begin, so that they stand out wherever they are shown.
const FIRST_TOKEN: i64 = 770_000_000_000;
/// How long a caller waits for an answer before it hangs up.
const PATIENCE: Duration = Duration::from_secs(55);
/// How long a stream is read.
const STREAMED: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(1_000_000);

/// No request makes the gateway fail; every error is a problem document of a known code; a version rises
/// only by an admitted write under the token that was granted last; and no token or id is shown to
/// anybody but its holder.
pub fn router(input: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new();
        world.clock.drive(LONG, world.engine.looked_around()).await.unwrap();
        for text in split(input) {
            if let Some(call) = Call::read(text, &world.granted) {
                world.play(&call).await;
            }
        }
    });
}

/// The resources, by name.
type Views = BTreeMap<String, ResourceView>;

/// An answer.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

struct World {
    engine: Engine,
    routes: Router,
    clock: Arc<HandClock>,
    granted: Vec<Granted>,
    /// All that callers have said so far, which may be shown again.
    said: Vec<u8>,
}

impl World {
    fn new() -> Self {
        Self::with(None)
    }

    /// One with these rules of access in force.
    fn with(rules: Option<String>) -> Self {
        let clock = Arc::new(HandClock::default());
        let runtime = clock::runtime(clock.clone());
        let ledger = Arc::new(MemoryLedger::new(clock.clone(), Uuid::from_u128(1)));
        if let Some(text) = rules {
            let change = RulesChange {
                follows: None,
                text,
                database_roles: Vec::new(),
                applied_by: None,
                reason: "a script".into(),
                request_id: "fuzz".into(),
                asked: None,
            };
            ledger.apply_rules(change).now_or_never().unwrap().unwrap();
        }
        let mint = MemoryMint::default();
        mint.set_number(FIRST_TOKEN);
        let engine = Engine::new(
            ledger,
            Arc::new(mint),
            Some(Arc::new(MemoryBlobs::new(clock.clone()))),
            runtime,
            settings(),
        );
        let routes = routes(AppState {
            engine: engine.clone(),
            // So small that large and small bodies both come up.
            limits: Limits { inline_bytes_max: 64, object_bytes_max: 4096, ..Limits::default() },
            room: Room::new(&Limits::default(), 1 << 20, 4),
            metrics: PrometheusBuilder::new().build_recorder().handle(),
            exported: Exported::default(),
            draining: CancellationToken::new(),
            guarantee: "strict",
            ground: Default::default(),
            requires_lock_id: false,
            upstreams: Upstreams::default(),
            issuers: Arc::new(Issuers::new(engine.runtime().clock.clone()).expect("TLS")),
            doors: Arc::default(),
            page: None,
            s3: None,
        });
        Self { engine, routes, clock, granted: Vec::new(), said: Vec::new() }
    }

    /// Sends a request, and holds its answer against what has changed.
    async fn play(&mut self, call: &Call) -> Option<Answer> {
        let before = self.views().await;
        self.said.extend_from_slice(&call.said());
        // A caller that hangs up learns nothing.
        let answer = self.send(call).await?;
        let after = self.views().await;
        checks::is_sound(call, &answer);
        checks::keeps_secrets(call, &answer, &self.said, &before, &after);
        checks::versions(call, &answer, &before, &after);
        if let Some(path) = checks::stored(call, &answer) {
            let text = format!("GET {path}");
            let read = Call::read(text.as_bytes(), &[]).unwrap();
            checks::reads_back(call, &self.send(&read).await.unwrap());
        }
        self.granted.extend(checks::grant(call, &answer));
        Some(answer)
    }

    async fn send(&self, call: &Call) -> Option<Answer> {
        let response = self.clock.drive(PATIENCE, self.routes.clone().oneshot(call.request()));
        let Ok(response) = response.await?;
        let (mut parts, mut body) = response.into_parts();
        let receipt = parts.extensions.remove::<Receipt>();
        let streamed =
            parts.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let limit = if streamed { STREAMED } else { PATIENCE };
        let mut bytes = Vec::new();
        // A stream of events has no end; a body must have one.
        loop {
            match self.clock.drive(limit, body.frame()).await {
                Some(Some(frame)) => {
                    bytes.extend_from_slice(frame.unwrap().data_ref().map_or(b"", |data| data));
                }
                Some(None) => break,
                None => {
                    assert!(streamed, "a body that does not end");
                    break;
                }
            }
        }
        // Without that the lock is given back, as after an answer that was lost.
        if let Some(receipt) = receipt.filter(|_| !call.lost) {
            receipt.delivered();
        }
        Some(Answer { status: parts.status, headers: parts.headers, body: bytes.into() })
    }

    async fn views(&self) -> Views {
        let page = Page { prefix: String::new(), after: None, limit: 1000 };
        let views = self.clock.drive(LONG, self.engine.resources(page, Which::All)).await.unwrap();
        views.unwrap().into_iter().map(|view| (view.resource.to_string(), view)).collect()
    }
}

fn settings() -> Settings {
    Settings {
        request_timeout: LONG,
        queue_max: 100,
        waiters_max: 100,
        batch_max: 64,
        committers: 1,
        retention: Retention {
            keys: LONG,
            ended_locks: LONG,
            buried: LONG,
            history: None,
            rejections_max: 100,
            rows_per_pass: 100,
        },
        sweep_interval: LONG,
        blob_times: BlobTimes {
            upload: LONG,
            multipart: LONG,
            reader_grace: LONG,
            rollback_horizon: LONG,
            versions: LONG,
            redelete: LONG,
        },
        uploads_max: 4,
        terms: Default::default(),
        refencing: None,
        audit_key: Some(fencegate::engine::AuditKey([7; 32])),
        audit_places: fencegate::engine::AuditPlaces::default(),
        s3_keys: None,
        drained: Arc::from([]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statuses of the answers to a script.
    fn statuses(script: &str) -> Vec<u16> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            let mut found = Vec::new();
            for text in split(script.as_bytes()) {
                let call = Call::read(text, &world.granted).unwrap();
                let answer = world.play(&call).await;
                found.push(answer.map_or(0, |answer| answer.status.as_u16()));
            }
            found
        })
    }

    const LOCK: &str = "POST /locks\ncontent-type: application/json\n\n{\"resource\":\"r\"}";

    /// What could not go well would find nothing either.
    #[test]
    fn a_script_takes_locks_and_writes() {
        let write = "PUT /resources/r/objects/k\nx-fence-token: $0\n\nx";
        let release = "DELETE /locks/#0";
        let again = LOCK.replace("\"}", "\",\"wait\":\"40s\"}");
        let wait = [LOCK, write, &again, write, release, write].join("\n%%\n");
        assert_eq!(statuses(&wait), [201, 201, 201, 412, 204, 412]);
        let lost = LOCK.replacen('\n', " lost\n", 1);
        assert_eq!(statuses(&[&lost, write].join("\n%%\n")), [201, 412]);
        assert_eq!(
            statuses(&["GET /events\naccept: text/event-stream", LOCK].join("\n%%\n")),
            [200, 201]
        );
    }
}
