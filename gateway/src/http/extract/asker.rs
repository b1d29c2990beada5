//! Who asks the ledger for a list, or for the outcome of a write: one principal or peer may have only a few such
//! questions under way at a time, and a principal that has asked for long may ask for a part of the time only.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use fence_core::ports::Clock;
use fencegate_access::Quota;

use crate::engine::Engine;
use crate::engine::access::Known;
use crate::http::peers::{Counted, Turn};
use crate::http::problem::Problem;
use crate::http::state::App;

/// Of the time of each turn that its principal has, so much is for questions, once they have taken a second together.
const PART_OF_TIME: u32 = 20;
/// How long questions may take together before that.
const AT_FIRST: Duration = Duration::from_secs(1);
/// The longest that a question waits for that.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// How long a principal waits at most that asks for nothing more.
const OWED_MAX: Duration = Duration::from_secs(5);

/// A caller whose turn has come. The turn lasts until its queries have ended, whether it is still there or not.
pub struct Asker(pub Engine);

impl Asker {
    /// Waits for a turn, and until the principal has paid back what its questions took before.
    ///
    /// # Errors
    /// `overloaded`, `rate-limited`: too many questions of the same peer or principal are before it, or they took too long.
    pub async fn take(app: &App, counted: &Counted) -> Result<Self, Problem> {
        let queries = Quota::Queries.as_str();
        let turn = app.room.queries.take(counted).await.ok_or_else(|| {
            counted.refused(queries, "too many questions are under way at this gateway")
        })?;
        let clock = &app.engine.runtime().clock;
        let Counted::Principal(known) = counted else {
            return Ok(Self(app.engine.holding(Arc::new(turn))));
        };
        let turns = known.caller.quotas().get(Quota::Queries);
        let turns = u32::try_from(turns.unwrap_or(u64::MAX)).unwrap_or(u32::MAX).max(1);
        let credit = paid_back_in(AT_FIRST, turns);
        let wait = known.holdings.questions.must_wait(clock.elapsed(), credit);
        if wait > WAIT_MAX {
            let why = "questions have taken more time than they may";
            return Err(counted.refused(queries, why).and_retry_after(wait));
        }
        clock.sleep(wait).await;
        let (known, clock) = (Arc::clone(known), Arc::clone(clock));
        let began = clock.elapsed();
        let asking = Asking { known, turns, clock, began, turn };
        Ok(Self(app.engine.holding(Arc::new(asking))))
    }
}

/// How long it takes until a question of this length is paid back by a principal with so many turns at a time.
fn paid_back_in(took: Duration, turns: u32) -> Duration {
    took.saturating_mul(PART_OF_TIME) / turns
}

/// A principal's turn; what it took is owed from its end on.
struct Asking {
    known: Arc<Known>,
    turns: u32,
    clock: Arc<dyn Clock>,
    began: Duration,
    #[expect(dead_code, reason = "held, not used")]
    turn: Turn,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let now = self.clock.elapsed();
        let took = now.saturating_sub(self.began);
        let most = paid_back_in(AT_FIRST, self.turns) + OWED_MAX;
        self.known.holdings.questions.spend(now, paid_back_in(took, self.turns), most);
    }
}

impl FromRequestParts<App> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Self::take(app, &Counted::by(&parts.extensions)).await
    }
}
