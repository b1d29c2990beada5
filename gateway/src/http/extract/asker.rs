//! Who asks the ledger for a list, or for the outcome of a write: one peer may have only a few such questions
//! under way at a time.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use fence_core::ErrorCode;
use std::sync::Arc;

use crate::engine::Engine;
use crate::http::peers::{Counted, Peer};
use crate::http::problem::Problem;
use crate::http::state::App;

/// A caller whose turn has come. The turn lasts until its queries have ended, whether it is still there or not.
pub struct Asker(pub Engine);

impl Asker {
    /// Waits for a turn of this peer.
    ///
    /// # Errors
    /// `overloaded`: too many questions of the same peer are before it.
    pub async fn take(app: &App, peer: Option<Peer>) -> Result<Self, Problem> {
        let turn = app.room.queries.take(peer).await.ok_or_else(|| {
            let why = "too many questions from your address are under way at this gateway";
            Problem::new(ErrorCode::Overloaded, why)
        })?;
        Ok(Self(app.engine.holding(Arc::new(turn))))
    }
}

impl FromRequestParts<App> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Self::take(app, Counted::by(&parts.extensions)).await
    }
}
