//! The ledger's own time, by which it forgets. Each pass is also a trial of whether the ledger takes writes.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Clock, Ledger, LedgerError, Pass, Passed};
use jiff::Timestamp;
use tokio::sync::watch;

use super::{Base, metrics};

/// The longest pause between two passes.
const INTERVAL_MAX: Duration = Duration::from_secs(5);

/// The pause before a pass that failed is made again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The last pass of this gateway; none before the first.
#[derive(Clone)]
pub(super) struct OwnTime(watch::Receiver<Option<Pass>>);

impl OwnTime {
    /// Lag of the own time behind the ledger's clock, as of the last pass.
    pub(super) fn lag(&self) -> Option<Duration> {
        self.0.borrow().as_ref().map(|pass| pass.behind)
    }

    /// The own time as it was heard last: an earlier one than now.
    pub(super) fn heard(&self) -> Timestamp {
        self.0.borrow().as_ref().map_or(Timestamp::UNIX_EPOCH, |pass| pass.at)
    }
}

/// Starts the passes, which go on until the engine closes.
pub(super) fn start(base: &Base) -> OwnTime {
    let interval = base.settings.sweep_interval.min(INTERVAL_MAX);
    let (clock, closing) = (Arc::clone(&base.runtime.clock), base.closing.clone());
    let (found, passes) = watch::channel(None);
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
    OwnTime(passes)
}

/// The ledger's own time, as this gateway passes it on.
struct LedgerTime {
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    /// The last pass that this gateway knows, and when it heard of that.
    known: Option<(i64, Duration)>,
    /// That pass, for all who ask.
    passes: watch::Sender<Option<Pass>>,
}

impl LedgerTime {
    fn new(
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        passes: watch::Sender<Option<Pass>>,
    ) -> Self {
        Self { ledger, clock, known: None, passes }
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
        ::metrics::gauge!(metrics::OWN_TIME_BEHIND).set(pass.behind.as_secs_f64());
        self.passes.send_replace(Some(pass));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use async_trait::async_trait;
    use fence_core::LockId;
    use fence_core::ports::{Boot, Patience, RenewVerdict, Retention};
    use jiff::SignedDuration;
    use parking_lot::Mutex;
    use tempfile::TempDir;
    use uuid::Uuid;

    use super::*;
    use crate::engine::sweeper::sweep;
    use crate::ledger::sqlite::SqliteLedger;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);
    const DAYS: usize = 30;

    /// Kept for a day are ids that were given up.
    const KEPT: Retention = Retention {
        keys: DAY,
        ended_locks: DAY,
        buried: DAY,
        history: None,
        rejections_max: 100,
        rows_per_pass: 100,
    };

    /// The clocks of a machine.
    struct Shown {
        wall: Timestamp,
        boot: u64,
        up: Duration,
        /// When the gateway that runs was started.
        started: Duration,
    }

    /// A machine whose clocks the test moves.
    struct Machine(Mutex<Shown>);

    #[async_trait]
    impl Clock for Machine {
        fn now(&self) -> Timestamp {
            self.0.lock().wall
        }

        fn elapsed(&self) -> Duration {
            let shown = self.0.lock();
            shown.up - shown.started
        }

        fn boot(&self) -> Option<Boot> {
            let shown = self.0.lock();
            Some(Boot { id: shown.boot.to_string(), up: shown.up })
        }

        async fn sleep(&self, _: Duration) {}
    }

    impl Machine {
        fn new() -> Arc<Self> {
            let wall = Timestamp::constant(1_800_000_000, 0);
            let (up, started) = (Duration::ZERO, Duration::ZERO);
            Arc::new(Self(Mutex::new(Shown { wall, boot: 1, up, started })))
        }

        fn go_on(&self, by: Duration) {
            let mut shown = self.0.lock();
            shown.wall += by;
            shown.up += by;
        }

        /// Sets the wall clock, which tells nothing of what has passed.
        fn set(&self, by: SignedDuration) {
            self.0.lock().wall += by;
        }

        fn boot_anew(&self) {
            let mut shown = self.0.lock();
            (shown.boot, shown.up) = (shown.boot + 1, Duration::ZERO);
        }
    }

    /// Outcome of an hour.
    struct Served {
        /// Of the ids that were given up so far, by day, those that are still known.
        known: Vec<usize>,
        /// The lag of the own time behind the clock, after the first pass and after the last one.
        behind: [Duration; 2],
    }

    /// Serves a directory for an hour, in which an id is given up, and a pass is made every ten minutes.
    async fn serve(machine: &Arc<Machine>, file: &Path, given_up: &mut Vec<LockId>) -> Served {
        {
            let mut shown = machine.0.lock();
            shown.started = shown.up;
        }
        let clock: Arc<dyn Clock> = Arc::clone(machine) as Arc<dyn Clock>;
        let opened = SqliteLedger::open(file, Arc::clone(&clock), Uuid::from_u128(1)).await;
        let ledger: Arc<dyn Ledger> = Arc::new(opened.expect("SQLite opens"));
        let passes = watch::Sender::new(None);
        let mut time = LedgerTime::new(Arc::clone(&ledger), Arc::clone(&clock), passes);
        let behind = async || ledger.pass_time(&Passed::NOTHING).await.expect("told").behind;
        let lock = LockId(Uuid::from_u128(100 + given_up.len() as u128));
        ledger.release(Arc::from([lock.into()]), Patience::Skip).await.expect("given up");
        given_up.push(lock);
        time.pass().await.expect("passed");
        let first = behind().await;
        for _ in 0..6 {
            machine.go_on(10 * MINUTE);
            time.pass().await.expect("passed");
            let until = clock.elapsed() + MINUTE;
            assert_eq!(sweep(&*ledger, &*clock, &KEPT, until).await, Ok(true));
        }
        let mut known = Vec::new();
        for (day, lock) in given_up.iter().enumerate() {
            let item =
                fence_core::ports::RenewItem { lock: *lock, ttl: None, by: Default::default() };
            let verdicts = ledger.renew(Arc::from([item]), Patience::Skip).await.expect("decided");
            if matches!(verdicts[..], [RenewVerdict::Ended(_)]) {
                known.push(day);
            }
        }
        Served { known, behind: [first, behind().await] }
    }

    /// The machine is up meanwhile, which tells what has passed.
    #[tokio::test]
    async fn a_directory_served_an_hour_a_day_forgets_a_day_later() {
        let home = TempDir::with_prefix("fence-own-time-").expect("a directory");
        let (file, machine, mut given_up) =
            (home.path().join("ledger.db"), Machine::new(), Vec::new());
        for day in 0..DAYS {
            let served = serve(&machine, &file, &mut given_up).await;
            assert_eq!(served.known, [day], "what is due goes on the day it is due, and no sooner");
            assert_eq!(served.behind, [Duration::ZERO; 2], "day {day}: by proof, nothing is left");
            machine.go_on(DAY - HOUR);
        }
    }

    /// A start of the machine in between: nothing tells what has passed, and the clock, right or wrong, is not asked.
    #[tokio::test]
    async fn a_directory_served_an_hour_in_each_boot_keeps_things_for_longer() {
        let home = TempDir::with_prefix("fence-own-time-").expect("a directory");
        let (file, machine, mut given_up) =
            (home.path().join("ledger.db"), Machine::new(), Vec::new());
        let year = SignedDuration::from_hours(365 * 24);
        for day in 0..DAYS {
            let served = serve(&machine, &file, &mut given_up).await;
            // What was given up first is due once the ledger has been served for a day.
            let first = usize::from(day >= 24);
            assert_eq!(served.known, (first..=day).collect::<Vec<_>>(), "day {day}");
            let ahead = if day == 10 { 365 * DAY } else { Duration::ZERO };
            let lag = (DAY - HOUR) * u32::try_from(day).unwrap() + ahead;
            assert_eq!(served.behind, [lag; 2], "day {day}");
            match day {
                9 => machine.set(year),
                10 => machine.set(-year),
                _ => {}
            }
            machine.go_on(DAY - HOUR);
            machine.boot_anew();
        }
    }
}
