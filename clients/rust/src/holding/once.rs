//! Work that is done once for each message, however often the message comes (CC42).

use std::future::Future;

use fencegate_wire::json::{Operation, OperationOutcome};

use crate::error::Error;
use crate::guard::Lock;
use crate::reading::views::operation_of_key;
use crate::write::options::check_key;

/// What became of work under a key.
#[derive(Debug)]
pub enum Once<T> {
    /// It was done now.
    Done(T),
    /// It had been done before: this write has the key.
    Before(Box<Operation>),
}

impl Lock {
    /// Runs `work`, unless a write under `key` took effect before. The *last* write of `work` must carry the
    /// key ([`PutBuilder::idempotency_key`](crate::write::PutBuilder::idempotency_key)): it says that the work
    /// is done.
    ///
    /// # Errors
    /// The work's own, or what a read gives.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// use fencegate_client::{Error, Once};
    ///
    /// let lock = client.lock("orders:17").acquire().await?;
    /// for delivery in 1..=2 {
    ///     let done = lock.once("message-4711", async || {
    ///         lock.put("paid.txt", "yes").idempotency_key("message-4711").await
    ///     });
    ///     let done = done.await?;
    ///     assert_eq!(matches!(done, Once::Before(_)), delivery == 2);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn once<T, E, F, R>(&self, key: &str, work: F) -> Result<Once<T>, E>
    where
        F: FnOnce() -> R,
        R: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        check_key(key)?;
        self.held.check()?;
        let inner = &self.held.inner;
        for resource in &self.held.resources {
            let found = operation_of_key(inner, resource, key, inner.call_until_ms()).await?;
            if let Some(found) = found.filter(|found| found.outcome == OperationOutcome::Applied) {
                return Ok(Once::Before(Box::new(found)));
            }
        }
        work().await.map(Once::Done)
    }
}
