//! `fence job exporter`: how jobs are doing, for Prometheus.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use clap::Args;
use fencegate_client::Client;
use fencegate_client::jobs::{JobStatus, JobView};
use futures::TryStreamExt as _;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::app::App;
use crate::contact::Patience;
use crate::failure::Failure;
use crate::files;
use crate::terminal::say;

/// The most jobs that are told of.
const JOBS_MAX: usize = 5_000;
/// How long a scrape may take.
const SCRAPE_WITHIN: Duration = Duration::from_secs(30);
/// Which states are told of, each of each job: 1 for that of now.
const STATES: [&str; 9] = [
    "never",
    "running",
    "lost",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
    "abandoned",
    "skipped",
];

/// How to tell.
#[derive(Debug, Args)]
pub struct Exporter {
    /// Answer `GET /metrics` at this address, such as 127.0.0.1:9469
    #[arg(long, value_name = "ADDRESS", required_unless_present = "textfile")]
    listen: Option<SocketAddr>,
    /// Write a file once, for the textfile collector of node_exporter, and end
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    textfile: Option<PathBuf>,
    /// Only jobs whose names begin with this
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
}

impl Exporter {
    /// One that serves tells of a gateway that is away, and does not end.
    pub fn patience(&self) -> Patience {
        if self.textfile.is_some() { Patience::Short } else { Patience::Unasked }
    }

    /// Tells until it is ended, or once.
    ///
    /// # Errors
    /// The address is taken, the file cannot be written, or with a file the gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        if let Some(path) = &self.textfile {
            let text = rendered(&app.client, &self.prefix).await?;
            // Whoever collects it is another user, and reads it whenever it likes.
            files::replace(path, text.as_bytes(), Some(0o644))?;
            return Ok(ExitCode::SUCCESS);
        }
        let address = self.listen.unwrap_or_else(|| ([127, 0, 0, 1], 9469).into());
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        let local = listener.local_addr().context("no address")?;
        let told = Arc::new((app.client.clone(), self.prefix.clone()));
        let router = axum::Router::new().route("/metrics", get(scrape)).with_state(told);
        say(&format!("answers on http://{local}/metrics"));
        axum::serve(listener, router).await.context("cannot serve")?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn scrape(State(told): State<Arc<(Client, String)>>) -> impl IntoResponse {
    let (client, prefix) = &*told;
    let text = match tokio::time::timeout(SCRAPE_WITHIN, rendered(client, prefix)).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => {
            return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response();
        }
        Err(_) => {
            return (StatusCode::SERVICE_UNAVAILABLE, "the gateway does not answer\n")
                .into_response();
        }
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn rendered(client: &Client, prefix: &str) -> Result<String, fencegate_client::Error> {
    let mut jobs = std::pin::pin!(client.jobs(prefix));
    // A recorder of its own each time: a job that is gone is told of no more.
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut count = 0;
    metrics::with_local_recorder(&recorder, describe);
    while let Some(view) = jobs.try_next().await? {
        count += 1;
        if count > JOBS_MAX {
            break;
        }
        metrics::with_local_recorder(&recorder, || tell(&view));
    }
    Ok(recorder.handle().render())
}

fn describe() {
    use metrics::describe_gauge as gauge;
    gauge!("fencegate_job_last_success_timestamp_seconds", "The slot of the last success.");
    gauge!("fencegate_job_last_run_timestamp_seconds", "When the last run began.");
    gauge!("fencegate_job_last_duration_seconds", "How long the run took that ended last.");
    gauge!("fencegate_job_running", "1 while a run is under way.");
    gauge!("fencegate_job_running_seconds", "For how long a run has been under way; 0 if none is.");
    gauge!("fencegate_job_failures_in_row", "How many runs have failed since the last success.");
    gauge!("fencegate_job_expected_interval_seconds", "How often the job is to run.");
    gauge!(
        "fencegate_job_grace_seconds",
        "How long after its next slot has begun the job is overdue."
    );
    gauge!("fencegate_job_state", "1 for the state that the job is in.");
}

fn tell(view: &JobView) {
    let name = view.name.to_string();
    let gauge = |metric: &'static str, value: Option<f64>| {
        if let Some(value) = value {
            metrics::gauge!(metric, "name" => name.clone()).set(value);
        }
    };
    let state = &view.state;
    let seconds = |ms: u64| ms as f64 / 1e3;
    let status = view.status();
    let last = state.last.as_ref();
    let success = state.last_success.as_ref().map(|it| it.slot.time().as_second() as f64);
    let began = state.running.as_ref().map(|it| it.started_at).or(last.map(|it| it.started_at));
    gauge("fencegate_job_last_success_timestamp_seconds", success);
    gauge(
        "fencegate_job_last_run_timestamp_seconds",
        began.map(|at| at.as_millisecond() as f64 / 1e3),
    );
    gauge("fencegate_job_last_duration_seconds", last.and_then(|it| it.duration_ms).map(seconds));
    gauge("fencegate_job_running", Some(f64::from(status == JobStatus::Running)));
    gauge("fencegate_job_running_seconds", Some(seconds(view.running_ms().unwrap_or(0))));
    gauge("fencegate_job_failures_in_row", Some(f64::from(state.failures_in_row)));
    gauge("fencegate_job_expected_interval_seconds", state.expect.every_ms.map(seconds));
    // As the state is judged: a client may have left the usual out.
    let grace_ms = state.expect.overdue_after_ms.or(state.expect.every_ms);
    gauge("fencegate_job_grace_seconds", grace_ms.map(seconds));
    for word in STATES {
        let is_this = f64::from(status.as_str() == word);
        metrics::gauge!("fencegate_job_state", "name" => name.clone(), "status" => word)
            .set(is_this);
    }
}
