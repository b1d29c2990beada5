//! `/metrics`: what the process has measured, and what is found out anew for each scrape.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use fence_core::LockState;
use fence_core::ports::{ResourceView, Totals};
use fencegate_access::Action;
use metrics::{describe_gauge, gauge};
use metrics_process::Collector;
use tokio::task::spawn_blocking;

use super::VERSION;
use super::health::parts;
use crate::engine::access::{Asks, Want};
use crate::http::extract::NoQuery;
use crate::http::problem::Problem;
use crate::http::spec::PlainProblems;
use crate::http::state::App;

/// Which version runs.
const BUILD_INFO: &str = "fencegate_build_info";
/// Which parts work.
const READY: &str = "fencegate_ready";
/// Locks that keep others out, in the whole ledger.
const LOCKS_HELD: &str = "fencegate_locks_held";
/// Resources that are frozen, in the whole ledger.
const FROZEN_RESOURCES: &str = "fencegate_frozen_resources";

const LOCKS_HELD_HELP: &str = "Locks of the whole ledger that keep others out: leased, breaking or draining, each once \
     however many resources it covers. Counted every 5 s, at the worst 40 s old; missing while the ledger does not answer";
const FROZEN_RESOURCES_HELP: &str = "Resources of the whole ledger that operators have frozen. Counted every 5 s, at the \
     worst 40 s old; missing while the ledger does not answer";

/// What the system knows of the process.
static PROCESS: LazyLock<Collector> = LazyLock::new(Collector::default);

/// Tells the recorder what the metrics mean that are found out for each scrape, and which version runs.
pub fn describe() {
    describe_gauge!(BUILD_INFO, "Always 1; its label says which version runs");
    gauge!(BUILD_INFO, "version" => VERSION).set(1.0);
    describe_gauge!(
        READY,
        "Whether each part works, as /readyz tells: 1 or 0. Without gateway or ledger it is not ready; writes and grants say \
         whether those can be made; blobs and settings never make it not ready"
    );
    PROCESS.describe();
}

/// Metrics for Prometheus
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "seeing",
    responses(
        (status = 200, description = "The text format of Prometheus.",
            content_type = "text/plain", body = String),
        PlainProblems,
    )
)]
pub async fn metrics(State(app): State<App>, asks: Asks, _: NoQuery) -> Result<Response, Problem> {
    asks.may_here(&Want::All(Action::Observe, String::new()))?;
    let (ledger_works, totals) = futures::join!(tell_parts(&app), app.engine.totals());
    // It counts the files that are open, of which there may be many. If it cannot, its metrics are missing.
    let _ = spawn_blocking(|| PROCESS.collect()).await;
    let mut page = app.metrics.render();
    if let Some(totals) = totals.filter(|_| ledger_works) {
        of_ledger(&mut page, totals);
    }
    by_name(&mut page, &*app.exported.now(&app.engine).await);
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, page).into_response())
}

/// Tells the recorder which parts work; returns whether the ledger does.
async fn tell_parts(app: &App) -> bool {
    let mut ledger_works = false;
    for (part, state) in parts(app).await {
        gauge!(READY, "part" => part).set(if state.is_ok() { 1.0 } else { 0.0 });
        ledger_works |= part == "ledger" && state.is_ok();
    }
    ledger_works
}

/// What the ledger counts. Not by way of the recorder, which would go on to tell it when the ledger no longer does.
fn of_ledger(page: &mut String, totals: Totals) {
    let gauges = [
        (LOCKS_HELD, LOCKS_HELD_HELP, totals.locks_held),
        (FROZEN_RESOURCES, FROZEN_RESOURCES_HELP, totals.frozen_resources),
    ];
    for (name, help, value) in gauges {
        // Writing to a String cannot fail.
        let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    }
}

/// Resource names hold no character that would need escaping in a label.
fn by_name(page: &mut String, views: &BTreeMap<String, ResourceView>) {
    // Not their tokens, which are good for writing: how often the lock was granted says as much to a graph.
    let grants = "How often the lock of the resource was granted.";
    series(page, views, ("grants_total", "counter"), grants, |view| Some(view.grants.to_string()));
    let held_for = ("holder_age_seconds", "gauge");
    series(page, views, held_for, "How long the holder has held.", |view| {
        let held = !matches!(view.state, LockState::Released | LockState::Broken);
        held.then(|| seconds(view.age_ms))
    });
    let renewal = "When the lock was renewed last.";
    series(page, views, ("last_renewal_timestamp_seconds", "gauge"), renewal, |view| {
        Some(seconds(view.renewed_at.as_millisecond()))
    });
}

fn series(
    page: &mut String,
    views: &BTreeMap<String, ResourceView>,
    (name, kind): (&str, &str),
    help: &str,
    value: impl Fn(&ResourceView) -> Option<String>,
) {
    if views.is_empty() {
        return;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(page, "# HELP fencegate_resource_{name} {help}");
    let _ = writeln!(page, "# TYPE fencegate_resource_{name} {kind}");
    for (resource, view) in views {
        if let Some(value) = value(view) {
            let _ = writeln!(page, "fencegate_resource_{name}{{resource=\"{resource}\"}} {value}");
        }
    }
}

/// Milliseconds as seconds, exactly.
fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms.max(0) / 1000, ms.max(0) % 1000)
}
