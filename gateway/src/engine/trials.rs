//! News on whether writes and grants can be made, from those that were asked for and from a trial every few seconds. A store
//! that answers reads may still take nothing new.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Clock, LedgerError, MintError, Unwritable};
use parking_lot::Mutex;

/// The time for which a refusal of what was asked for counts, unless the like is done meanwhile. A trial is small: it may find
/// room where little is left.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// News on one kind of change.
pub(in crate::engine) struct Trials {
    /// Kind of change, for the log.
    name: &'static str,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last refusal of what was asked for, on the clock of this process, and its cause.
    refused: Option<(Duration, Unwritable)>,
    /// Why the last trial failed, and its cause if that is known.
    failed: Option<(String, Option<Unwritable>)>,
}

/// An error of a ledger or a mint.
pub(in crate::engine) trait Caused: Display {
    /// Cause for which nothing else can be done either, if it is such a one.
    fn cause(&self) -> Option<Unwritable>;
}

impl Caused for LedgerError {
    fn cause(&self) -> Option<Unwritable> {
        match self {
            Self::Unwritable(cause) => Some(*cause),
            _ => None,
        }
    }
}

impl Caused for MintError {
    fn cause(&self) -> Option<Unwritable> {
        match self {
            Self::Unwritable(cause) => Some(*cause),
            _ => None,
        }
    }
}

impl Trials {
    /// Begins without news: the change is taken to be possible.
    pub(in crate::engine) fn new(name: &'static str, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let (clock, state) = (Arc::clone(clock), Mutex::default());
        Arc::new(Self { name, clock, state })
    }

    /// Notes what came of something that was asked for, and passes it on.
    pub(in crate::engine) fn asked<T, E: Caused>(&self, answer: Result<T, E>) -> Result<T, E> {
        let mut state = self.state.lock();
        match &answer {
            Ok(_) => *state = State::default(),
            Err(error) => {
                // A start passes in a moment: the next trial says when.
                if let Some(cause) = error.cause().filter(|cause| *cause != Unwritable::Restarted) {
                    if state.refused.is_none() && state.failed.is_none() {
                        tracing::error!(%cause, "no {} can be made", self.name);
                    }
                    state.refused = Some((self.clock.elapsed(), cause));
                }
            }
        }
        answer
    }

    /// Notes what came of a trial, and passes it on.
    pub(in crate::engine) fn tried<T, E: Caused>(&self, answer: Result<T, E>) -> Result<T, E> {
        let mut state = self.state.lock();
        let failed = answer.as_ref().err().map(|error| (error.to_string(), error.cause()));
        if let (Some((why, _)), None) = (&failed, &state.failed) {
            tracing::warn!(why, "a trial says that no {} can be made", self.name);
        }
        state.failed = failed;
        answer
    }

    /// Why the like cannot be done, as far as is known. Text for operators: a store may say in it what it was sent.
    pub(in crate::engine) fn trouble(&self) -> Result<(), String> {
        let state = self.state.lock();
        match (self.refused(&state), &state.failed) {
            (Some(cause), _) => Err(cause.to_string()),
            (None, Some((why, _))) => Err(why.clone()),
            (None, None) => Ok(()),
        }
    }

    /// Cause for which the like cannot be done, if it is known.
    pub(in crate::engine) fn cause(&self) -> Option<Unwritable> {
        let state = self.state.lock();
        self.refused(&state).or_else(|| state.failed.as_ref()?.1)
    }

    fn refused(&self, state: &State) -> Option<Unwritable> {
        let (since, cause) = state.refused?;
        (self.clock.elapsed().saturating_sub(since) < REFUSED_FOR).then_some(cause)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::runtime::TokioClock;

    const FULL: LedgerError = LedgerError::Unwritable(Unwritable::Full);

    fn refusal() -> Result<(), LedgerError> {
        Err(FULL)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_outlives_a_trial_and_ends_with_the_next_that_is_done() {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let writes = Trials::new("write", &clock);
        assert_eq!(writes.trouble(), Ok(()));
        let _ = writes.asked(refusal());
        let _ = writes.tried(Ok::<_, LedgerError>(()));
        assert_eq!(writes.cause(), Some(Unwritable::Full), "a trial finds room for a little");
        advance(REFUSED_FOR).await;
        assert_eq!(writes.trouble(), Ok(()), "the last trial counts");

        let _ = writes.tried(refusal());
        advance(REFUSED_FOR * 2).await;
        assert_eq!(writes.trouble(), Err(FULL.to_string()), "the last trial counts");
        assert_eq!(writes.cause(), Some(Unwritable::Full));
        let _ = writes.asked(Ok::<_, LedgerError>(()));
        assert_eq!(writes.trouble(), Ok(()));

        // What is known of one write alone says nothing of others.
        let _ = writes.asked(Err::<(), _>(LedgerError::Defect("odd".into())));
        assert_eq!(writes.trouble(), Ok(()));
    }
}
