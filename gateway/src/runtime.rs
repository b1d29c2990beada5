//! Clock, ids and tasks of the real world, on tokio.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{Clock, Ids, Runtime, Spawn, Task};
use fence_core::{LockId, OperationId};
use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// Clock, ids and tasks for the engine; `tracker` waits for the tasks when the gateway stops.
pub fn runtime(tracker: TaskTracker) -> Runtime {
    Runtime {
        clock: Arc::new(TokioClock::new()),
        ids: Arc::new(UuidIds),
        spawn: Arc::new(TokioSpawn { tracker }),
    }
}

/// The clocks of this machine.
#[derive(Debug)]
pub struct TokioClock {
    start: Instant,
}

impl TokioClock {
    /// A clock whose elapsed time begins now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
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

    #[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// UUIDs: random ones for locks, ones that sort by time for operations.
#[derive(Debug)]
pub struct UuidIds;

impl Ids for UuidIds {
    #[expect(clippy::disallowed_methods, reason = "this is the Ids port")]
    fn lock(&self) -> LockId {
        LockId(Uuid::new_v4())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the Ids port")]
    fn operation(&self) -> OperationId {
        OperationId(Uuid::now_v7())
    }
}

/// Tasks on tokio. A task that panics is logged under its name and ends alone.
#[derive(Debug)]
pub struct TokioSpawn {
    tracker: TaskTracker,
}

impl Spawn for TokioSpawn {
    fn spawn(&self, name: &'static str, task: Task) {
        self.tracker.spawn(async move {
            // The task is gone after a panic, so nobody sees state that it left half changed,
            // except through locks, which are poisoned.
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                tracing::error!(task = name, panic = panic_text(&*panic), "a task panicked");
            }
        });
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
    async fn operations_sort_by_time_and_locks_differ() {
        let first = UuidIds.operation();
        assert!(first < UuidIds.operation());
        assert_ne!(UuidIds.lock(), UuidIds.lock());
    }
}
