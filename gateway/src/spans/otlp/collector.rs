//! The collector: how it is reached, and what is said of one that is away.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::runtime::Handle;

use crate::files::{self, FILE_BYTES_MAX};
use crate::this_machine::is_this_machine;

/// How long one sending takes at most, in milliseconds.
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Whom to trust besides those whom this machine trusts.
const CERTIFICATES: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
/// The longest answer of a collector that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The HTTP client that all of the gateway has, for the thread of the SDK, which is on no runtime.
#[derive(Debug)]
pub(super) struct Client {
    client: reqwest::Client,
    runtime: Handle,
}

impl Client {
    /// Makes one for this endpoint, by what the environment says of the rest.
    pub(super) fn new(
        endpoint: &reqwest::Url,
        said: impl Fn(&'static str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let timeout = match TIMEOUTS.into_iter().find_map(&said) {
            Some(ms) => Duration::from_millis(ms.parse().context("the timeout is no number")?),
            None => TIMEOUT,
        };
        let builder = reqwest::Client::builder()
            .timeout(timeout.clamp(Duration::from_millis(1), TIMEOUT_MAX))
            // What else is sent may be a credential.
            .redirect(reqwest::redirect::Policy::none());
        // Spans that do not leave the machine go through no proxy, whatever the environment says.
        let builder = match is_this_machine(endpoint.host_str().unwrap_or_default()) {
            true => builder.no_proxy(),
            false => builder,
        };
        let builder = match CERTIFICATES.into_iter().find_map(&said) {
            Some(path) => {
                let pem = files::read(Path::new(&path), FILE_BYTES_MAX);
                let pem = pem.with_context(|| format!("cannot read {path}"))?;
                builder.tls_certs_merge(reqwest::Certificate::from_pem_bundle(&pem)?)
            }
            None => builder,
        };
        Ok(Self { client: builder.build()?, runtime: Handle::try_current()? })
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (client, request) = (self.client.clone(), request.try_into()?);
        let sent = async move {
            let answer = client.execute(request).await;
            let mut answer = answer.map_err(reqwest::Error::without_url)?;
            let mut body = Vec::new();
            while let Some(piece) = answer.chunk().await? {
                body.extend_from_slice(&piece);
                if body.len() > ANSWER_BYTES_MAX {
                    return Err(HttpError::from("the collector's answer is too long"));
                }
            }
            let mut response = Response::new(Bytes::from(body));
            *response.status_mut() = answer.status();
            *response.headers_mut() = std::mem::take(answer.headers_mut());
            Ok(response)
        };
        self.runtime.spawn(sent).await?
    }
}

/// An exporter that says once that the collector is away, and once that it is back, and how many spans were lost.
#[derive(Debug)]
pub(super) struct Watched<E> {
    exporter: E,
    lost: AtomicU64,
}

impl<E> Watched<E> {
    pub(super) fn new(exporter: E) -> Self {
        Self { exporter, lost: AtomicU64::new(0) }
    }
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len() as u64;
        match self.exporter.export(batch).await {
            Ok(()) => {
                let lost = self.lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    tracing::info!(lost, "the collector of spans takes them again");
                }
            }
            Err(error) => {
                if self.lost.fetch_add(count, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, "the collector takes no spans; they are lost until it does");
                }
            }
        }
        // The SDK would say each failure.
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
