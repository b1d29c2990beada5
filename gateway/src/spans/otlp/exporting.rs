//! What exports spans: a bounded queue, a thread that empties it, and the collector. Nobody waits for any of them but a
//! stop, which does for a moment.

use std::env;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::resource::ResourceDetector as _;
use opentelemetry_sdk::trace::SdkTracerProvider;

use super::TRACER;
use super::collector::{Client, Watched};
use crate::spans::LINKS_MAX;

/// What is spoken. The others would need more crates, and all collectors know this one.
const PROTOCOL: &str = "http/protobuf";
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const NAME: &str = "service.name";

/// What exports spans, if anything does.
#[derive(Debug, Default)]
pub struct Exporting(Option<SdkTracerProvider>);

impl Exporting {
    /// Begins; once per process, on a runtime. All but the endpoint the SDK reads by itself: headers, sampler, resource,
    /// sizes and times of the queue.
    pub(crate) fn start(endpoint: &str) -> anyhow::Result<Self> {
        let said = |name| env::var(name).ok().filter(|value: &String| !value.is_empty());
        if let Some(protocol) = PROTOCOLS.into_iter().find_map(said) {
            ensure!(protocol == PROTOCOL, "{protocol} is not spoken here, but {PROTOCOL}");
        }
        let url: reqwest::Url = endpoint.parse().context("the endpoint is no URL")?;
        let client = Client::new(&url, said)?;
        let exporter = SpanExporter::builder().with_http().with_http_client(client).build()?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(Watched::new(exporter))
            .with_max_links_per_span(LINKS_MAX as u32)
            .with_resource(resource())
            .build();
        let tracer = provider.tracer("fencegate");
        ensure!(TRACER.set(tracer).is_ok(), "they are exported already");
        // The rest of it may hold a password.
        let collector = url.host_str().unwrap_or_default();
        tracing::info!(collector, "spans are exported by OTLP");
        Ok(Self(Some(provider)))
    }

    /// Sends what is left, for so long at most. Spans that begin after that are nobody's.
    pub async fn end(self, within: Duration) {
        let Some(provider) = self.0 else { return };
        let end = move || provider.shutdown_with_timeout(within);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(end).await {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// What the spans are of, as the environment says; the name of the service otherwise is that of this program.
fn resource() -> Resource {
    let is_named = env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty())
        || EnvResourceDetector::new().detect().get(&Key::new(NAME)).is_some();
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    match is_named {
        true => builder.build(),
        false => builder.with_service_name("fencegate").build(),
    }
}
