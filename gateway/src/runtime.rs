//! Clock, ids and tasks of the real world, on tokio.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::OperationId;
use fence_core::ports::{Boot, Clock, Ids, Runtime, Spawn, Task};
use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// Clock, ids and tasks for the engine; `tracker` waits for the tasks when the gateway stops.
pub fn runtime(tracker: TaskTracker) -> Runtime {
    watched_runtime(tracker, CancellationToken::new())
}

/// The same; `broken` is cancelled when a task has panicked that others rely on.
pub fn watched_runtime(tracker: TaskTracker, broken: CancellationToken) -> Runtime {
    Runtime {
        clock: Arc::new(TokioClock::new()),
        ids: Arc::new(UuidIds),
        spawn: Arc::new(TokioSpawn { tracker, broken }),
    }
}

/// The clocks of this machine.
#[derive(Debug)]
pub struct TokioClock {
    start: Instant,
    /// The id of this boot; none where the system does not tell.
    boot: Option<String>,
}

impl TokioClock {
    /// A clock whose elapsed time begins now.
    pub fn new() -> Self {
        Self { start: Instant::now(), boot: boot_id() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for TokioClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
    fn now(&self) -> Timestamp {
        // As fine as the ledgers keep it: a time must read the same when it is read back.
        let micros = Timestamp::now().as_microsecond();
        // INVARIANT: these are the microseconds of a timestamp.
        Timestamp::from_microsecond(micros).expect("the time is in range")
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn boot(&self) -> Option<Boot> {
        let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let up = Duration::try_from(up).ok()?;
        Some(Boot { id: self.boot.clone()?, up })
    }

    #[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// The id of this boot of the machine, with that of the namespace in which its time is counted.
fn boot_id() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/time").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// UUIDs: random ones, and for operations ones that sort by time.
#[derive(Debug)]
pub struct UuidIds;

impl Ids for UuidIds {
    #[expect(clippy::disallowed_methods, reason = "this is the Ids port")]
    fn uuid(&self) -> Uuid {
        Uuid::new_v4()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the Ids port")]
    fn operation(&self) -> OperationId {
        OperationId(Uuid::now_v7())
    }
}

/// Tasks on tokio. A task that panics is logged under its name and ends alone, unless others rely on it.
#[derive(Debug)]
pub struct TokioSpawn {
    tracker: TaskTracker,
    broken: CancellationToken,
}

impl Spawn for TokioSpawn {
    fn spawn(&self, name: &'static str, task: Task) {
        self.tracker.spawn(ends_alone(name, task).map(drop));
    }

    fn spawn_lasting(&self, name: &'static str, task: Task) {
        let broken = self.broken.clone();
        self.tracker.spawn(async move {
            if !ends_alone(name, task).await {
                broken.cancel();
            }
        });
    }
}

/// Runs a task; says whether it ended without a panic.
///
/// The task is gone after a panic, so nobody sees state that it left half changed, except through locks, which are
/// poisoned.
async fn ends_alone(name: &'static str, task: Task) -> bool {
    match AssertUnwindSafe(task).catch_unwind().await {
        Ok(()) => true,
        Err(panic) => {
            tracing::error!(task = name, panic = panic_text(&*panic), "a task panicked");
            false
        }
    }
}

/// What a panic said, if it said it in text.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "(no text)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_its_task_alone() {
        let tracker = TaskTracker::new();
        let runtime = runtime(tracker.clone());
        runtime.spawn.spawn("broken", Box::pin(async { panic!("on purpose") }));
        let (send, receive) = tokio::sync::oneshot::channel();
        runtime.spawn.spawn(
            "whole",
            Box::pin(async {
                let _ = send.send(1);
            }),
        );
        assert_eq!(receive.await, Ok(1));
        tracker.close();
        tracker.wait().await;
    }

    #[tokio::test]
    async fn a_panic_of_a_task_that_others_rely_on_is_noticed() {
        let broken = CancellationToken::new();
        let runtime = watched_runtime(TaskTracker::new(), broken.clone());
        runtime.spawn.spawn_lasting("whole", Box::pin(async {}));
        runtime.spawn.spawn("broken", Box::pin(async { panic!("on purpose") }));
        tokio::task::yield_now().await;
        assert!(!broken.is_cancelled());
        runtime.spawn.spawn_lasting("broken", Box::pin(async { panic!("on purpose") }));
        broken.cancelled().await;
    }

    #[tokio::test]
    async fn operations_sort_by_time_and_locks_differ() {
        let first = UuidIds.operation();
        assert!(first < UuidIds.operation());
        assert_ne!(UuidIds.uuid(), UuidIds.uuid());
    }
}
