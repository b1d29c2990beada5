//! What a gateway says of itself: its version, what it stands on, how long it may take.

use axum::Json;
use axum::extract::State;
use fence_core::wire;
use fencegate_access::Action;

use crate::engine::access::{Asks, Want};
use crate::http::extract::NoQuery;
use crate::http::problem::Problem;
use crate::http::spec::PlainProblems;
use crate::http::state::App;

/// The version of this gateway.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a gateway stands on, in words, and its settings where they may be shown.
#[derive(Debug, Clone)]
pub struct Ground {
    /// What keeps the ledger.
    pub ledger: &'static str,
    /// What numbers grants.
    pub mint: &'static str,
    /// What keeps large payloads.
    pub blobs: &'static str,
    /// The settings, without secrets.
    pub settings: Option<String>,
}

impl Default for Ground {
    /// All in memory.
    fn default() -> Self {
        Self { ledger: "memory", mint: "memory", blobs: "memory", settings: None }
    }
}

/// What this gateway is
///
/// Of the gateway that answers; behind a load balancer another one may answer next time. It answers at once, also while
/// parts hang: what they say is left out then.
#[utoipa::path(
    get, path = "/status", operation_id = "status", tag = "seeing",
    responses(
        (status = 200, description = "What it says of itself.", body = wire::Status),
        PlainProblems,
    )
)]
pub async fn status(
    State(app): State<App>,
    asks: Asks,
    _: NoQuery,
) -> Result<Json<wire::Status>, Problem> {
    asks.may_here(&Want::Nothing)?;
    let observes = asks.could(&Want::All(Action::Observe, String::new()));
    let about = app.engine.about().await;
    let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let count = |number: usize| number as u64;
    Ok(Json(wire::Status {
        version: VERSION.to_owned(),
        api: wire::API_VERSION,
        gateway: about.gateway,
        started_at: about.started_at,
        ledger: app.ground.ledger.to_owned(),
        mint: app.ground.mint.to_owned(),
        blobs: app.ground.blobs.to_owned(),
        epoch: about.epoch,
        generation: about.last_event.map(|last| last.generation),
        events: about.last_event.map(|last| last.number),
        requires_lock_id: app.requires_lock_id(),
        draining: app.draining.is_cancelled(),
        answer_within_ms: ms(about.answer_within),
        keys_kept_ms: ms(about.keys_kept),
        own_time_behind_ms: about.own_time_lag.map(ms),
        s3: app.s3.as_ref().map(|told| told.endpoint.clone()),
        counts: wire::StatusCounts {
            waiters: count(about.waiters),
            watchers: count(about.watchers),
            event_readers: count(about.event_readers),
            forwards: count(about.forwards),
        },
        settings: app.ground.settings.clone().filter(|_| observes),
    }))
}
