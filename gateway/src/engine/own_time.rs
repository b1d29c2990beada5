//! The ledger's own time, by which it forgets. Each pass is also a trial of whether the ledger takes writes.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Clock, Ledger, LedgerError, Passed};
use tokio::sync::watch;

use super::{Base, metrics};

/// The longest pause between two passes.
const INTERVAL_MAX: Duration = Duration::from_secs(5);

/// The pause before a pass that failed is made again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Lag of the own time behind the ledger's clock, as of the last pass of this gateway; none before the first.
pub(super) type Lag = watch::Receiver<Option<Duration>>;

/// Starts the passes, which go on until the engine closes; returns the lag that they find.
pub(super) fn start(base: &Base) -> Lag {
    let interval = base.settings.sweep_interval.min(INTERVAL_MAX);
    let (clock, closing) = (Arc::clone(&base.runtime.clock), base.closing.clone());
    let (found, lag) = watch::channel(None);
    let mut time = LedgerTime::new(Arc::clone(&base.ledger), Arc::clone(&clock), found);
    let writes = Arc::clone(&base.writes);
    let task = async move {
        loop {
            let pause = match writes.tried(time.pass().await) {
                Ok(()) => interval,
                Err(_) => interval.min(PAUSE_AFTER_FAILURE),
            };
            if closing.run_until_cancelled(clock.sleep(pause)).await.is_none() {
                return;
            }
        }
    };
    base.runtime.spawn.spawn_lasting("own time", Box::pin(task));
    lag
}

/// The ledger's own time, as this gateway passes it on.
struct LedgerTime {
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    /// The last pass that this gateway knows, and when it heard of that.
    known: Option<(i64, Duration)>,
    /// Lag as of that pass, for whoever asks.
    lag: watch::Sender<Option<Duration>>,
}

impl LedgerTime {
    fn new(
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        lag: watch::Sender<Option<Duration>>,
    ) -> Self {
        Self { ledger, clock, known: None, lag }
    }

    /// A clock that counts suspension, where there is one; else things are kept for longer.
    fn up(&self) -> Duration {
        self.clock.boot().map_or_else(|| self.clock.elapsed(), |boot| boot.up)
    }

    async fn pass(&mut self) -> Result<(), LedgerError> {
        let passed = match self.known {
            Some((pass, heard)) => {
                Passed { pass, since: self.up().saturating_sub(heard), boot: self.clock.boot() }
            }
            None => Passed { boot: self.clock.boot(), ..Passed::NOTHING },
        };
        let pass = self.ledger.pass_time(&passed).await?;
        if self.known.is_none_or(|(known, _)| known != pass.number) {
            // After the answer: it was made before that.
            self.known = Some((pass.number, self.up()));
        }
        self.lag.send_replace(Some(pass.behind));
        ::metrics::gauge!(metrics::OWN_TIME_BEHIND).set(pass.behind.as_secs_f64());
        Ok(())
    }
}
