//! Clock, ids and spawning as parameters, so that a simulation can own them.

use super::Boot;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use crate::lock::OperationId;

/// A future that can be spawned.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Time. No safety decision reads it: clocks decide liveness and are shown to people.
#[async_trait]
pub trait Clock: Send + Sync {
    /// The wall clock, for people.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point in this process, which never goes back.
    fn elapsed(&self) -> Duration;

    /// The boot of this machine; none where it does not tell.
    fn boot(&self) -> Option<Boot> {
        None
    }

    /// Waits.
    async fn sleep(&self, duration: Duration);
}

/// Makes ids.
pub trait Ids: Send + Sync {
    /// A random id that nobody can guess.
    fn uuid(&self) -> Uuid;

    /// An id that sorts by time, which keeps index pages together.
    fn operation(&self) -> OperationId;
}

/// Runs tasks that outlive the request that started them.
pub trait Spawn: Send + Sync {
    /// Starts a task; `name` is for logs.
    fn spawn(&self, name: &'static str, task: Task);

    /// Starts a task that others wait for as long as the process lives: should it panic, the process has to end, for
    /// nothing else would notice what is not done any more.
    fn spawn_lasting(&self, name: &'static str, task: Task) {
        self.spawn(name, task);
    }
}

/// Clock, ids and spawning together, as the engine carries them.
#[derive(Clone)]
pub struct Runtime {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids.
    pub ids: Arc<dyn Ids>,
    /// Tasks.
    pub spawn: Arc<dyn Spawn>,
}

impl Runtime {
    /// Waits for `future` at most `limit`; `None` when the time ran out.
    ///
    /// The future is dropped then, so it must be one that may be dropped at any await: a channel,
    /// never a database call.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let future = std::pin::pin!(future);
        let timer = self.clock.sleep(limit);
        match futures::future::select(future, timer).await {
            futures::future::Either::Left((output, _)) => Some(output),
            futures::future::Either::Right(_) => None,
        }
    }
}
