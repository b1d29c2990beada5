//! A collector of OpenTelemetry: takes spans by OTLP over HTTP, and keeps them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Sent;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as Status;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::gateway::Settings;
use crate::process::eventually;

/// Names and values.
pub type Words = BTreeMap<String, String>;

/// A span as it was sent.
#[derive(Debug, Clone)]
pub struct Span {
    /// Its trace, and its own id, as text.
    pub trace: String,
    /// Its own id.
    pub id: String,
    /// That of its parent; empty: it has none.
    pub parent: String,
    /// What it is of.
    pub name: String,
    /// Whether it is the one of a request that came in.
    pub is_server: bool,
    /// Whether it came to nothing.
    pub is_failed: bool,
    /// What it says.
    pub words: Words,
    /// Trace and span of each that it is linked to.
    pub links: Vec<(String, String)>,
    /// What it says of its program.
    pub program: Words,
}

#[derive(Default)]
struct Kept {
    spans: Vec<Span>,
    headers: Vec<HeaderMap>,
}

type Shared = Arc<Mutex<Kept>>;

/// A running collector; it ends with this.
pub struct Collector {
    address: SocketAddr,
    kept: Shared,
    server: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Collector {
    /// Starts one on a free port.
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address")).await
    }

    /// Starts one there.
    pub async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let kept = Shared::default();
        let app = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&kept));
        let server = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("it serves");
        });
        Self { address, kept, server }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Has a gateway export its spans here, soon.
    pub fn of(&self, settings: Settings) -> Settings {
        let settings = settings.env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.url());
        settings.env("OTEL_BSP_SCHEDULE_DELAY", "20")
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).spans.clone()
    }

    /// With which headers they came.
    pub fn headers(&self) -> Vec<HeaderMap> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).headers.clone()
    }

    /// Waits for a span.
    pub async fn span(&self, what: &str, is: impl Fn(&Span) -> bool) -> Span {
        eventually(&format!("{what} among the spans"), async || self.spans().into_iter().find(&is))
            .await
    }
}

async fn take(State(kept): State<Shared>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let Ok(sent) = ExportTraceServiceRequest::decode(body) else { return StatusCode::BAD_REQUEST };
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.headers.push(headers);
    for of_program in sent.resource_spans {
        let program = words(of_program.resource.unwrap_or_default().attributes);
        let spans = of_program.scope_spans.into_iter().flat_map(|scope| scope.spans);
        kept.spans.extend(spans.map(|span| read(span, &program)));
    }
    StatusCode::OK
}

fn read(sent: Sent, program: &Words) -> Span {
    let links = sent.links.iter();
    Span {
        is_server: sent.kind() == SpanKind::Server,
        is_failed: sent.status.as_ref().is_some_and(|status| status.code() == Status::Error),
        links: links
            .map(|link| (hex::encode(&link.trace_id), hex::encode(&link.span_id)))
            .collect(),
        trace: hex::encode(sent.trace_id),
        id: hex::encode(sent.span_id),
        parent: hex::encode(sent.parent_span_id),
        name: sent.name,
        words: words(sent.attributes),
        program: program.clone(),
    }
}

fn words(sent: Vec<KeyValue>) -> Words {
    let text = |value| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    sent.into_iter().map(|one| (one.key, text(one.value.and_then(|any| any.value)))).collect()
}
