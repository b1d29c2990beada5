//! A body under a lock: it is dropped when the lock is lost, and the lock is given back when it ends.

use std::future::Future;
use std::sync::Arc;

use crate::acquire::LockBuilder;
use crate::error::Error;
use crate::guard::Lock;
use crate::machine::leaving::{Body, OnLost, Outcome, Release, leave};

impl LockBuilder {
    /// Takes the lock, runs the body, gives the lock back.
    ///
    /// When the lock is lost, the body is dropped where it waits. Work that must not be dropped belongs into a
    /// task of its own, which is told by [`Lock::cancellation`].
    ///
    /// # Errors
    /// The body's own error; or, if the lock was lost meanwhile, [`Error::LockLost`]; or what
    /// [`LockBuilder::acquire`] gives.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// use fencegate_client::Error;
    ///
    /// let total = client.lock("invoices:2026").run(async |lock| {
    ///     lock.put("total.txt", "110").await?;
    ///     Ok::<_, Error>(110)
    /// });
    /// assert_eq!(total.await?, 110);
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E, F, R>(self, body: F) -> Result<T, E>
    where
        F: FnOnce(Arc<Lock>) -> R,
        R: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let on_lost = self.on_lost;
        let lock = Arc::new(self.acquire().await?);
        // Dropped here from outside, the guard gives its lock back in the background.
        let ended = tokio::select! {
            biased;
            _ = lock.lost(), if on_lost == OnLost::Fail => None,
            result = body(lock.clone()) => Some(result),
        };
        let how = match &ended {
            Some(Ok(_)) => Body::Returned,
            Some(Err(_)) => Body::Failed,
            None => Body::Cancelled,
        };
        let (outcome, release) = leave(how, lock.held.lost_reason(), on_lost);
        if release == Release::Awaited {
            lock.release().await;
        }
        match (outcome, ended) {
            (Outcome::Lost(reason), _) => Err(Error::LockLost(lock.held.loss(reason)).into()),
            (_, Some(result)) => result,
            (_, None) => Err(Error::lost(crate::LossReason::Gone).into()),
        }
    }
}
