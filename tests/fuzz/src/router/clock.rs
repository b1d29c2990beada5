//! Time, ids and tasks that are the same in every run: time goes on only when nothing else can.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fence_core::OperationId;
use fence_core::ports::{Clock, Ids, Runtime, Spawn, Task};
use futures::poll;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use uuid::Uuid;

/// What the ids of locks begin with.
pub(super) const LOCKS: &str = "aaaaaaaa-0000-4000-8000-";
/// How often all tasks have their turn before time may go on.
const TURNS: usize = 100;

#[derive(Default)]
struct Timers {
    elapsed: Duration,
    /// By when they are due, and then in the order in which they were begun.
    due: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    begun: u64,
}

/// A clock that is moved by hand.
#[derive(Default)]
pub(super) struct HandClock(Mutex<Timers>);

impl HandClock {
    fn timers(&self) -> std::sync::MutexGuard<'_, Timers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on to the next timer; false if there is none.
    fn advance(&self) -> bool {
        let mut timers = self.timers();
        let Some(((due, _), timer)) = timers.due.pop_first() else { return false };
        timers.elapsed = timers.elapsed.max(due);
        // Whoever waited may have given up.
        let _ = timer.send(());
        true
    }

    /// Runs this to its end, or until it has waited so long; `None` then.
    pub(super) async fn drive<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let end = self.elapsed() + limit;
        loop {
            for _ in 0..TURNS {
                if let std::task::Poll::Ready(output) = poll!(&mut future) {
                    return Some(output);
                }
                yield_now().await;
            }
            if self.elapsed() > end || !self.advance() {
                return None;
            }
        }
    }
}

#[async_trait]
impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
        Timestamp::constant(1_700_000_000, 0).saturating_add(since).unwrap_or(Timestamp::MAX)
    }

    fn elapsed(&self) -> Duration {
        self.timers().elapsed
    }

    async fn sleep(&self, duration: Duration) {
        let (done, wait) = oneshot::channel();
        {
            let mut timers = self.timers();
            timers.begun += 1;
            let key = (timers.elapsed.saturating_add(duration), timers.begun);
            timers.due.insert(key, done);
        }
        let _ = wait.await;
    }
}

#[derive(Default)]
struct Counted(AtomicU64);

impl Counted {
    fn next(&self, head: u32) -> Uuid {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let [.., b, c, d, e, f, g] = number.to_be_bytes();
        Uuid::from_fields(head, 0, 0x4000, &[0x80, 0, b, c, d, e, f, g])
    }
}

impl Ids for Counted {
    fn uuid(&self) -> Uuid {
        self.next(0xaaaa_aaaa)
    }

    fn operation(&self) -> OperationId {
        OperationId(self.next(0xbbbb_bbbb))
    }
}

struct Tasks;

impl Spawn for Tasks {
    #[expect(clippy::disallowed_methods, reason = "this is the Spawn port")]
    fn spawn(&self, _: &'static str, task: Task) {
        tokio::spawn(task);
    }
}

/// What an engine needs, on this clock.
pub(super) fn runtime(clock: Arc<HandClock>) -> Runtime {
    Runtime { clock, ids: Arc::new(Counted::default()), spawn: Arc::new(Tasks) }
}
