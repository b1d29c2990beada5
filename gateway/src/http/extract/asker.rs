//! Who asks the ledger for a list, or for the outcome of a write: one principal or peer may have only a few such
//! questions under way at a time.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use fencegate_access::Quota;
use std::sync::Arc;

use crate::engine::Engine;
use crate::http::peers::Counted;
use crate::http::problem::Problem;
use crate::http::state::App;

/// A caller whose turn has come. The turn lasts until its queries have ended, whether it is still there or not.
pub struct Asker(pub Engine);

impl Asker {
    /// Waits for a turn.
    ///
    /// # Errors
    /// `overloaded`, `rate-limited`: too many questions of the same peer or principal are before it.
    pub async fn take(app: &App, counted: &Counted) -> Result<Self, Problem> {
        let turn = app.room.queries.take(counted).await.ok_or_else(|| {
            counted.refused(
                Quota::Queries.as_str(),
                "too many questions are under way at this gateway",
            )
        })?;
        Ok(Self(app.engine.holding(Arc::new(turn))))
    }
}

impl FromRequestParts<App> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Self::take(app, &Counted::by(&parts.extensions)).await
    }
}
