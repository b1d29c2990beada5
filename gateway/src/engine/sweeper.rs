//! The sweeper: stores breaks that have come due and removes what has been kept long enough.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Clock, Ledger, LedgerError, Retention, Runtime};
use tokio_util::sync::CancellationToken;

use super::agreement::Agreement;
use super::locks::Drains;
use super::metrics;

/// The least pause between two passes, which others may use the ledger in.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// What the sweeper works with.
pub(super) struct Sweeping {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) agreement: Arc<Agreement>,
    pub(super) interval: Duration,
    pub(super) drains: Drains,
}

impl Sweeping {
    /// Starts the sweeper, which also puts locks in force that nothing keeps any more, should nobody have
    /// heard of it. Several gateways may sweep at once; each pass is bounded.
    pub(super) fn start(self, runtime: &Runtime, closing: CancellationToken) {
        let Self { ledger, agreement, interval, drains } = self;
        let clock = Arc::clone(&runtime.clock);
        let task =
            async move {
                let mut pause = interval;
                let mut behind_since = None;
                loop {
                    tokio::select! {
                        biased;
                        () = closing.cancelled() => return,
                        () = clock.sleep(pause) => {}
                    }
                    drains.pass(None).await;
                    if let Ok(open) = ledger.intents_open().await {
                        ::metrics::gauge!(metrics::INTENTS_OPEN).set(open.count as f64);
                        let oldest_s = open.oldest_age_ms as f64 / 1000.0;
                        ::metrics::gauge!(metrics::INTENT_OLDEST).set(oldest_s);
                    }
                    let began = clock.elapsed();
                    let has_caught_up =
                        match sweep(&*ledger, &*clock, &agreement.retention(), began + interval)
                            .await
                        {
                            Ok(has_caught_up) => has_caught_up,
                            Err(error) => {
                                tracing::warn!(%error, "sweep failed; the next pass goes on");
                                true
                            }
                        };
                    // What is left is gone on with at once, but for the rest of what the sweeper sees to.
                    (pause, behind_since) = match has_caught_up {
                        true => (interval, None),
                        false => (PAUSE_MIN, behind_since.or(Some(began))),
                    };
                    let behind =
                        behind_since.map_or(Duration::ZERO, |since| clock.elapsed() - since);
                    ::metrics::gauge!(metrics::SWEEP_BEHIND).set(behind.as_secs_f64());
                }
            };
        runtime.spawn.spawn_lasting("sweeper", Box::pin(task));
    }
}

/// Passes, until one is not full, or until a time on the clock of this process; says whether nothing is left. What is
/// left behind faster than one pass in each interval removes it would stay for ever. Between two of them the ledger
/// is left to others for as long as the last one took.
async fn sweep(
    ledger: &dyn Ledger,
    clock: &dyn Clock,
    retention: &Retention,
    until: Duration,
) -> Result<bool, LedgerError> {
    let full = u64::try_from(retention.rows_per_pass).unwrap_or(u64::MAX);
    loop {
        let before = clock.elapsed();
        let rows = ledger.sweep(retention).await?;
        ::metrics::counter!(metrics::SWEPT).increment(rows);
        if rows > 0 {
            tracing::debug!(rows, "swept");
        }
        // One kind alone fills a pass; of several that are nearly full, the next pass finds less.
        if rows < full {
            return Ok(true);
        }
        let now = clock.elapsed();
        if now >= until {
            return Ok(false);
        }
        clock.sleep(now.saturating_sub(before).max(PAUSE_MIN)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use async_trait::async_trait;
    use fence_core::LockId;
    use fence_core::ports::{Boot, Patience, RenewVerdict};
    use jiff::{SignedDuration, Timestamp};
    use parking_lot::Mutex;
    use tempfile::TempDir;
    use uuid::Uuid;

    use super::*;
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

    /// What an hour came to.
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
        let mut time = LedgerTime::new(Arc::clone(&ledger), Arc::clone(&clock));
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
