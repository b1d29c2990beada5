//! News on whether writes and grants can be made, from those that were asked for and from a trial every few seconds. A store
//! that answers reads may still take nothing new.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Clock, LedgerError, MintError};
use parking_lot::Mutex;

/// The time for which a refusal of what was asked for counts, unless the like is done meanwhile. A trial is small: it may find
/// room where little is left.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// What is known of one kind of change.
pub(in crate::engine) struct Trials {
    /// What is tried, for the log.
    name: &'static str,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last refusal of what was asked for, on the clock of this process, and its cause.
    refused: Option<(Duration, String)>,
    /// What the last trial came to.
    failed: Option<String>,
}

/// An error that says of everything else, too, that it cannot be done.
pub(in crate::engine) trait Refuses: Display {
    /// Whether it does.
    fn refuses_all(&self) -> bool;
}

impl Refuses for LedgerError {
    fn refuses_all(&self) -> bool {
        matches!(self, Self::Unwritable(_)) && !self.passes()
    }
}

impl Refuses for MintError {
    fn refuses_all(&self) -> bool {
        matches!(self, Self::Unwritable(_))
    }
}

impl Trials {
    /// Nothing is known yet: it is taken to be possible.
    pub(in crate::engine) fn new(name: &'static str, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let (clock, state) = (Arc::clone(clock), Mutex::default());
        Arc::new(Self { name, clock, state })
    }

    /// Notes what came of something that was asked for, and passes it on.
    pub(in crate::engine) fn asked<T, E: Refuses>(&self, answer: Result<T, E>) -> Result<T, E> {
        let mut state = self.state.lock();
        match &answer {
            Ok(_) => *state = State::default(),
            Err(error) if error.refuses_all() => {
                let why = error.to_string();
                if state.refused.is_none() && state.failed.is_none() {
                    tracing::error!(why, "no {} can be made", self.name);
                }
                state.refused = Some((self.clock.elapsed(), why));
            }
            Err(_) => {}
        }
        answer
    }

    /// Notes what came of a trial, and passes it on.
    pub(in crate::engine) fn tried<T, E: Display>(&self, answer: Result<T, E>) -> Result<T, E> {
        let mut state = self.state.lock();
        let why = answer.as_ref().err().map(E::to_string);
        if let (Some(why), None) = (&why, &state.failed) {
            tracing::warn!(why, "a trial says that no {} can be made", self.name);
        }
        state.failed = why;
        answer
    }

    /// Cause for which the like cannot be done, as far as is known.
    pub(in crate::engine) fn trouble(&self) -> Result<(), String> {
        let state = self.state.lock();
        let counts = |since: Duration| self.clock.elapsed().saturating_sub(since) < REFUSED_FOR;
        match (&state.refused, &state.failed) {
            (Some((since, why)), _) if counts(*since) => Err(why.clone()),
            (_, Some(why)) => Err(why.clone()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use fence_core::ports::Unwritable;
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
        assert_eq!(writes.trouble(), Err(FULL.to_string()), "a trial finds room for a little");
        advance(REFUSED_FOR).await;
        assert_eq!(writes.trouble(), Ok(()), "the last trial counts");

        let _ = writes.tried(refusal());
        advance(REFUSED_FOR * 2).await;
        assert_eq!(writes.trouble(), Err(FULL.to_string()), "the last trial counts");
        let _ = writes.asked(Ok::<_, LedgerError>(()));
        assert_eq!(writes.trouble(), Ok(()));

        // What is known of one write alone says nothing of others.
        let _ = writes.asked(Err::<(), _>(LedgerError::Defect("odd".into())));
        assert_eq!(writes.trouble(), Ok(()));
    }
}
