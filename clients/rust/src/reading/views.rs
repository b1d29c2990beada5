//! Resources, locks, histories, operations and the gateway itself, as everybody may see them.

use fencegate_wire::json::{
    ObjectEntry, Operation, OperationList, Readiness, Resource, Status, Version, Waiter,
};
use fencegate_wire::{ErrorCode, OperationId, ResourceName};
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use super::pages::Listing;
use crate::client::{Client, Inner};
use crate::encoding::path;
use crate::error::Error;
use crate::names;
use crate::transport::request::{Request, RequestIds};

impl Client {
    /// The objects of a resource, in byte order of their keys.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// # lock.put("may/total.txt", "110").await?;
    /// let of_may = client.list("invoices:2026").prefix("may/").all().await?;
    /// assert_eq!(of_may[0].key, "may/total.txt");
    /// # Ok(()) }
    /// ```
    pub fn list(&self, resource: &str) -> Listing<ObjectEntry> {
        Listing::new(self, "list", below(resource, "/objects"))
    }

    /// The history of a resource, newest first: every write that took effect. With a prefix, those of objects
    /// whose keys begin with it, deletions of all objects, and commits.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// # lock.put("total.txt", "100").await?;
    /// # lock.put("total.txt", "110").await?;
    /// let writes = client.versions("invoices:2026").page_size(10).page(None).await?;
    /// assert_eq!(writes.items[0].version, 2);
    /// let written = client.get("invoices:2026", "total.txt").version(2).await?;
    /// assert_eq!(written.text()?, "110");
    /// # Ok(()) }
    /// ```
    pub fn versions(&self, resource: &str) -> Listing<Version> {
        Listing::new(self, "versions", below(resource, "/versions"))
    }

    /// A resource and its lock. It is there once it was locked for the first time.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Misuse`] for a name that is not allowed; [`Error::Unavailable`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// let lock = client.lock("invoices:2026").acquire().await?;
    /// assert_eq!(client.resource("invoices:2026").await?.owner, client.owner());
    /// # Ok(()) }
    /// ```
    pub async fn resource(&self, resource: &str) -> Result<Resource, Error> {
        let request = Request::get(below(resource, "")?);
        self.inner.json("resource", &request, self.inner.call_until_ms()).await
    }

    /// All resources that were ever locked, in byte order of their names.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// let resources = client.resources().prefix("invoices:").all().await?;
    /// assert_eq!(resources[0].resource.as_str(), "invoices:2026");
    /// # Ok(()) }
    /// ```
    pub fn resources(&self) -> Listing<Resource> {
        Listing::new(self, "resources", Ok("/resources".to_owned()))
    }

    /// All resources whose locks keep others out, in byte order of their names: held, to be broken soon, or draining.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// let lock = client.lock("invoices:2026").acquire().await?;
    /// assert_eq!(client.locks().all().await?.len(), 1);
    /// # Ok(()) }
    /// ```
    pub fn locks(&self) -> Listing<Resource> {
        Listing::new(self, "locks", Ok("/locks".to_owned()))
    }

    /// The same with resources that are held no longer and that nobody took over: those of locks that have expired, whose
    /// holders may come back and write, and of broken ones.
    pub fn all_locks(&self) -> Listing<Resource> {
        self.locks().with("also_ended", Ok("true".to_owned()))
    }

    /// Who waits in line for the lock on a resource, first come first.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// let line = client.waiters("invoices:2026").all().await?;
    /// assert!(line.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn waiters(&self, resource: &str) -> Listing<Waiter> {
        Listing::new(self, "waiters", below(resource, "/waiters"))
    }

    /// What a gateway says of itself: its version, what it stands on, and how long its answers may take.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if none answers in time.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// assert_eq!(client.status().await?.api, 1);
    /// # Ok(()) }
    /// ```
    pub async fn status(&self) -> Result<Status, Error> {
        self.inner.json("status", &Request::get("/status"), self.inner.call_until_ms()).await
    }

    /// Whether requests should be sent to a gateway, and the state of its parts.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if none answers, or the one that does should get no requests.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// assert!(client.ready().await?.ready);
    /// # Ok(()) }
    /// ```
    pub async fn ready(&self) -> Result<Readiness, Error> {
        let (request, mut ids) = (Request::get("/readyz"), RequestIds::new());
        let is_json = |headers: &HeaderMap| {
            headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == b"application/json")
        };
        // Not ready is an answer, too. One attempt: whoever asks wants to know how it is now.
        let answer = self.inner.transport.attempt_any(&request, &ids.next(), is_json).await;
        let answer = answer.map_err(|reply| reply.error(1))?;
        answer.json().await.map_err(|reply| reply.error(1))
    }

    /// What became of a write, by the id of its operation. `None` decides nothing: the write may still be under
    /// way, or it was refused.
    ///
    /// # Errors
    /// [`Error::Unavailable`] and the like: nothing is known, either.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// let written = lock.put("total.txt", "110").await?;
    /// let operation = client.operation(written.operation).await?.ok_or("none")?;
    /// assert_eq!(operation.version, Some(written.version));
    /// # Ok(()) }
    /// ```
    pub async fn operation(&self, id: OperationId) -> Result<Option<Operation>, Error> {
        operation_of_id(&self.inner, id, self.inner.call_until_ms()).await
    }

    /// The write on this resource that took effect under this idempotency key. `None` decides nothing as long as
    /// one may be under way.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a name or key that is none; [`Error::Unavailable`] and the like: nothing is known.
    pub async fn operation_by_key(
        &self,
        resource: &str,
        idempotency_key: &str,
    ) -> Result<Option<Operation>, Error> {
        let (resource, until_ms) = (names::resource(resource)?, self.inner.call_until_ms());
        operation_of_key(&self.inner, &resource, idempotency_key, until_ms).await
    }

    /// Whether a write on this resource took effect under this idempotency key: to be asked before work that
    /// is costly to do twice. `false` decides nothing as long as one may be under way.
    ///
    /// # Errors
    /// Those of [`Client::operation_by_key`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// if !client.already_done("invoices:2026", "message-17").await? {
    ///     // ... and write with this key.
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn already_done(&self, resource: &str, idempotency_key: &str) -> Result<bool, Error> {
        Ok(self.operation_by_key(resource, idempotency_key).await?.is_some())
    }
}

/// A path below a resource.
fn below(resource: &str, rest: &str) -> Result<String, Error> {
    Ok(path::resource(&names::resource(resource)?) + rest)
}

/// The operation with this id; `None` if the ledger has no record of it, which decides nothing.
pub(crate) async fn operation_of_id(
    inner: &Inner,
    id: OperationId,
    until_ms: u64,
) -> Result<Option<Operation>, Error> {
    let request = Request::get(format!("/operations/{id}"));
    let not_found = |error: &Error| error.code() == Some(ErrorCode::OperationNotFound.as_str());
    match inner.json("operation", &request, until_ms).await {
        Ok(operation) => Ok(Some(operation)),
        Err(error) if not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The operation on the resource that used this key; `None` if none did, which decides nothing as long as
/// one may be under way.
pub(crate) async fn operation_of_key(
    inner: &Inner,
    resource: &ResourceName,
    key: &str,
    until_ms: u64,
) -> Result<Option<Operation>, Error> {
    if !(1..=255).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::misuse("an idempotency key has 1 to 255 visible ASCII characters"));
    }
    let query = path::query([("idempotency_key", key.to_owned())]);
    let request = Request::get(path::resource(resource) + "/operations" + &query);
    let found: OperationList = inner.json("operations", &request, until_ms).await?;
    Ok(found.items.into_iter().next())
}
