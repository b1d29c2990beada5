//! One leader among many candidates (CC52).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{LockBuilder, Wait};
use crate::class::LossReason;
use crate::client::Client;
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::error::Error;
use crate::guard::Lock;
use crate::machine::backoff::portion;

/// A candidacy; made by [`Client::elect`].
#[must_use = "nobody is elected before `run`"]
#[derive(Clone)]
pub struct Election {
    lock: LockBuilder,
    rejoins: bool,
    stop_grace: Duration,
}

impl Client {
    /// A candidate for the leadership of this name.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// use fencegate_client::Error;
    ///
    /// let led = client.elect("scheduler").owner("10.0.0.7:9000").run(|leadership| async move {
    ///     leadership.put("leader.txt", "I am").await?;
    ///     Ok::<_, Error>(()) // to return is to resign
    /// });
    /// led.await?;
    /// # Ok(()) }
    /// ```
    pub fn elect(&self, name: impl Into<String>) -> Election {
        let lock = self.lock(name.into()).wait(Wait::Forever);
        Election { lock, rejoins: true, stop_grace: Duration::from_secs(10) }
    }
}

impl Election {
    /// The leader's name for itself, shown to all who look: its address, for instance.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.lock = self.lock.owner(owner);
        self
    }

    /// The ttl of the leadership: how long nobody leads, at most, after a leader died.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Somebody who may write under the leader's token, too: see [`LockBuilder::writer`].
    pub fn writer(mut self, name: impl Into<String>) -> Self {
        self.lock = self.lock.writer(name);
        self
    }

    /// Ends with the loss of the leadership, instead of standing again.
    pub fn once(mut self) -> Self {
        self.rejoins = false;
        self
    }

    /// How long to wait, after a loss, until the work has ended; by default 10 s. Then it is aborted where it
    /// waits.
    pub fn stop_grace(mut self, stop_grace: Duration) -> Self {
        self.stop_grace = stop_grace;
        self
    }

    /// Waits for the leadership, runs `lead`, and stands again if it is lost. `lead` is told of a loss by
    /// [`Lock::cancellation`], and is waited for: never do two calls of it run at once here.
    ///
    /// # Errors
    /// What `lead` gives; or, with [`Election::once`], [`Error::LockLost`]; or what an acquire gives.
    pub async fn run<T, E, F, R>(self, mut lead: F) -> Result<T, E>
    where
        F: FnMut(Arc<Lock>) -> R,
        R: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        loop {
            let lock = Arc::new(self.lock.clone().acquire().await?);
            let mut work = AbortOnDrop(tokio::spawn(lead(lock.clone())));
            let lost = tokio::select! {
                biased;
                lost = lock.lost() => lost,
                done = &mut work.0 => {
                    lock.release().await;
                    return ended(done);
                }
            };
            // The work ends before anybody stands again.
            if tokio::time::timeout(self.stop_grace, &mut work.0).await.is_err() {
                work.0.abort();
                let _aborted = (&mut work.0).await;
            }
            if !self.rejoins || lost.reason == LossReason::Closed {
                return Err(Error::LockLost(lost).into());
            }
            sleep_until_ms(now_ms() + portion(1_000, draw())).await;
        }
    }
}

/// The work, or its panic.
fn ended<T, E: From<Error>>(done: Result<Result<T, E>, tokio::task::JoinError>) -> Result<T, E> {
    match done {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::lost(crate::LossReason::Closed).into()),
    }
}

/// A task that does not outlive whoever waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
