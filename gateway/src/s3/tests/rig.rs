//! Gateways in one process: both fronts, the engine, and a ledger and a mint in memory, which all of them share.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use fence_core::memory::{MemoryBlobs, MemoryLedger, MemoryMint};
use fence_core::ports::{BlobTimes, Buckets as _, By, Ledger, Mint, Retention, Runtime};
use fence_core::{LockId, Token};
use fencegate_s3::key::{AccessKey, Keys, Root};
use fencegate_s3::sign::{PayloadHash, RequestHead, Signer};
use http_body_util::BodyExt as _;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::config::{S3Anonymous, S3Once};
use crate::engine::{AuditKey, AuditPlaces, Engine, Settings, refence_now};
use crate::http::identify::Issuers;
use crate::http::proxy::Upstreams;
use crate::http::receipt::Receipt;
use crate::http::room::Room;
use crate::http::routes::{Exported, Ground};
use crate::http::{AppState, Limits, S3Told, router};
use crate::runtime::runtime;

const LONG: Duration = Duration::from_secs(3600);

/// A gateway.
pub struct Rig {
    runtime: Runtime,
    ledger: Arc<MemoryLedger>,
    mint: Arc<MemoryMint>,
    blobs: MemoryBlobs,
    pub keys: Arc<Keys>,
    s3: Router,
    native: Router,
}

/// A lock, and the key that stands for it.
pub struct Lock {
    pub id: LockId,
    pub key: AccessKey,
}

/// An answer.
pub struct Told {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Told {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// Runs a test on a gateway of its own, on this thread alone.
pub fn played(test: impl AsyncFnOnce(Rig)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async { test(Rig::new()).await });
}

impl Rig {
    fn new() -> Self {
        let runtime = runtime(TaskTracker::new());
        let clock = || Arc::clone(&runtime.clock);
        let ledger = Arc::new(MemoryLedger::new(clock(), runtime.ids.uuid()));
        let root = Root::parse(&"07".repeat(32)).expect("a root");
        let keys = Arc::new(Keys::new(&[root]).expect("keys"));
        let (mint, blobs) = (Arc::new(MemoryMint::default()), MemoryBlobs::new(clock()));
        Self::of(runtime, (ledger, mint, blobs), keys)
    }

    fn of(
        runtime: Runtime,
        (ledger, mint, blobs): (Arc<MemoryLedger>, Arc<MemoryMint>, MemoryBlobs),
        keys: Arc<Keys>,
    ) -> Self {
        let settings = settings(&keys);
        let store = Some(Arc::new(blobs.clone()) as _);
        let engine = Engine::new(ledger.clone(), mint.clone(), store, runtime.clone(), settings);
        let limits = Limits::default();
        let app = Arc::new(AppState {
            engine,
            limits,
            room: Room::new(&limits, 64 << 20, 8),
            metrics: PrometheusBuilder::new().build_recorder().handle(),
            exported: Exported::of(&[]),
            draining: CancellationToken::new(),
            guarantee: "strict",
            ground: Ground::default(),
            requires_lock_id: false,
            upstreams: Upstreams::new(&[]).expect("none"),
            issuers: Arc::new(Issuers::new(Arc::clone(&runtime.clock)).expect("none")),
            s3: Some(S3Told { endpoint: "http://127.0.0.1".into(), region: "r".into() }),
            doors: Arc::default(),
            page: None,
        });
        let front = super::super::Settings {
            keys: Arc::clone(&keys),
            domain: None,
            region: "r".into(),
            anonymous: S3Anonymous::None,
            once: S3Once::All,
        };
        let s3 = super::super::router(Arc::clone(&app), front);
        Self { runtime, ledger, mint, blobs, keys, s3, native: router(app) }
    }

    /// Another gateway, on the same ledger and mint.
    pub fn another(&self) -> Self {
        let shared = (Arc::clone(&self.ledger), Arc::clone(&self.mint), self.blobs.clone());
        Self::of(runtime(TaskTracker::new()), shared, Arc::clone(&self.keys))
    }

    /// The ledger is re-fenced, as if it had gone back.
    pub async fn refenced(&self) {
        let (ledger, mint): (Arc<dyn Ledger>, Arc<dyn Mint>) =
            (self.ledger.clone(), self.mint.clone());
        let refenced = refence_now(ledger, mint, self.runtime.clone(), "a test", true).await;
        refenced.expect("re-fenced");
    }

    pub async fn makes_bucket(&self, name: &str) {
        self.ledger.make_bucket(name, 0, &By::default()).await.expect("made");
    }

    /// Takes a lock.
    pub async fn locks(&self, resource: &str) -> Lock {
        let body = json!({ "resource": resource, "ttl": "10m" });
        let told = self.native(Method::POST, "/locks", Some(body)).await;
        assert_eq!(told.status, StatusCode::CREATED, "{}", told.body);
        let json = told.json();
        let id = serde_json::from_value(json["id"].clone()).expect("an id");
        let token: Token = serde_json::from_value(json["token"].clone()).expect("a token");
        Lock { id, key: self.keys.of_lock(token, id) }
    }

    pub async fn releases(&self, lock: &Lock) {
        let told = self.native(Method::DELETE, &format!("/locks/{}", lock.id), None).await;
        assert_eq!(told.status, StatusCode::NO_CONTENT, "{}", told.body);
    }

    /// Asks the native side.
    pub async fn native(&self, method: Method, path: &str, body: Option<Value>) -> Told {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(header::HOST, HOST);
        let request = match body.is_empty() {
            true => request,
            false => request.header(header::CONTENT_TYPE, "application/json"),
        };
        let request = request.header(header::CONTENT_LENGTH, body.len()).body(Body::from(body));
        told(self.native.clone(), request.expect("a request")).await
    }

    /// Asks the S3 side, signed with this key.
    pub async fn s3(
        &self,
        method: Method,
        path: &str,
        key: &AccessKey,
        headers: &[(&'static str, &str)],
        body: String,
    ) -> Told {
        let mut all = HeaderMap::new();
        all.insert(header::HOST, HOST.parse().expect("a host"));
        for (name, value) in headers {
            all.insert(*name, value.parse().expect("a value"));
        }
        let head = RequestHead { method: &method, raw_path: path, raw_query: "", headers: &all };
        let signer = Signer { id: &key.id, secret: key.secret.reveal(), region: "r" };
        let payload = PayloadHash::Sha256(Sha256::digest(&body).into());
        let signed = signer.sign(&head, payload, self.runtime.clock.now()).expect("signed").0;
        all.extend(signed);
        let mut request = Request::builder().method(method).uri(path);
        request.headers_mut().expect("headers").extend(all);
        let request = request.header(header::CONTENT_LENGTH, body.len()).body(Body::from(body));
        told(self.s3.clone(), request.expect("a request")).await
    }
}

const HOST: &str = "127.0.0.1";

async fn told(service: Router, request: Request<Body>) -> Told {
    let (mut parts, body) = service.oneshot(request).await.expect("an answer").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    if let Some(receipt) = parts.extensions.remove::<Receipt>() {
        receipt.delivered();
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    Told { status: parts.status, headers: parts.headers, body }
}

fn settings(keys: &Arc<Keys>) -> Settings {
    Settings {
        request_timeout: Duration::from_secs(20),
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
            versions: Duration::ZERO,
            redelete: LONG,
        },
        uploads_max: 4,
        terms: Default::default(),
        refencing: None,
        audit_key: Some(AuditKey([7; 32])),
        audit_places: AuditPlaces::default(),
        s3_keys: Some(Arc::clone(keys)),
        drained: Arc::from([]),
    }
}
