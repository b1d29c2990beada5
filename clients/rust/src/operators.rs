//! What operators do (CC57): break a lock, stop all writers, look at what was done and refused, and take it upon
//! themselves that something is over.

use std::future::IntoFuture;
use std::time::Duration;

use fencegate_wire::json::{
    AuditEntry, BreakRequest, DoubtEntry, DoubtsResolved, IntentEntry, IntentList, MarkRequest,
    RejectionEntry, ResolveDoubtsRequest, Resource,
};
use fencegate_wire::{AuditAction, ErrorCode, OperationId, Ttl};
use futures::future::{BoxFuture, FutureExt as _};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::client::builder::check_reason;
use crate::encoding::path;
use crate::error::Error;
use crate::names;
use crate::reading::Listing;
use crate::transport::request::Request;

impl Client {
    /// Breaks the lock on a resource: fences its holder off, at once, or with [`Break::after`] at the latest
    /// after some time. The audit keeps the reason for ever, and the holder is told it: 1 to 1,024 bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was never locked; [`Error::Misuse`] for a name or reason that is none;
    /// [`Error::Unavailable`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// let lock = client.lock("invoices:2026").acquire().await?;
    /// client.break_lock("invoices:2026", "worker-b hangs").await?;
    /// assert!(lock.put("total.txt", "999").await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn break_lock(&self, resource: &str, reason: &str) -> Break {
        let path = acting(resource, "break", reason);
        Break { client: self.clone(), path, reason: reason.to_owned(), after: None }
    }

    /// Stops all writers of a resource, and all grants of its lock, until it is unfrozen. Who holds the lock keeps
    /// it. Everybody sees the reason: 1 to 1,024 bytes.
    ///
    /// # Errors
    /// Those of [`Client::break_lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// let frozen = client.freeze("invoices:2026", "books are being closed").await?;
    /// assert!(frozen.frozen.is_some());
    /// client.unfreeze("invoices:2026", "books are closed").await?;
    /// # Ok(()) }
    /// ```
    pub async fn freeze(&self, resource: &str, reason: &str) -> Result<Resource, Error> {
        self.mark(resource, "freeze", reason).await
    }

    /// Lets writers and grants go on. On what is not frozen it changes nothing.
    ///
    /// # Errors
    /// Those of [`Client::break_lock`].
    pub async fn unfreeze(&self, resource: &str, reason: &str) -> Result<Resource, Error> {
        self.mark(resource, "unfreeze", reason).await
    }

    /// Forbids deleting all of a resource at once; its objects may still be written and deleted one by one.
    ///
    /// # Errors
    /// Those of [`Client::break_lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// client.protect("invoices:2026", "to be kept until 2036").await?;
    /// client.unprotect("invoices:2026", "2036 has come").await?;
    /// # Ok(()) }
    /// ```
    pub async fn protect(&self, resource: &str, reason: &str) -> Result<Resource, Error> {
        self.mark(resource, "protect", reason).await
    }

    /// Allows it again. On what is not protected it changes nothing.
    ///
    /// # Errors
    /// Those of [`Client::break_lock`].
    pub async fn unprotect(&self, resource: &str, reason: &str) -> Result<Resource, Error> {
        self.mark(resource, "unprotect", reason).await
    }

    async fn mark(
        &self,
        resource: &str,
        act: &'static str,
        reason: &str,
    ) -> Result<Resource, Error> {
        let path = acting(resource, act, reason)?;
        self.act(act, path, &MarkRequest { reason: reason.to_owned() }).await
    }

    async fn act<T: DeserializeOwned>(
        &self,
        act: &'static str,
        path: String,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let request = Request::new(Method::POST, path).json(body);
        self.inner.json(act, &request, self.inner.call_until_ms()).await
    }

    /// What was done to locks and resources, by whom and why, newest first: every grant, and all that operators
    /// did.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// # let lock = client.lock("invoices:2026").acquire().await?;
    /// let done = client.audit().resource("invoices:2026").page_size(10).page(None).await?;
    /// assert_eq!(done.items[0].action, "grant");
    /// # Ok(()) }
    /// ```
    pub fn audit(&self) -> Listing<AuditEntry> {
        Listing::new(self, "audit", Ok("/audit".to_owned()))
    }

    /// Writes that were refused, newest first: where, why, and how late they were.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// use fencegate_client::wire::ErrorCode;
    ///
    /// let late = client.rejections().reason(ErrorCode::FenceTokenStale).all().await?;
    /// assert!(late.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn rejections(&self) -> Listing<RejectionEntry> {
        Listing::new(self, "rejections", Ok("/rejections".to_owned()))
    }

    /// What was forwarded to upstreams and has no known end, oldest first. It keeps the next lock on its resource
    /// from being in force.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// for intent in client.intents().all().await? {
    ///     client.resolve_intent(intent.operation, "the service was restarted since").await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn intents(&self) -> Listing<IntentEntry> {
        Listing::new(self, "intents", Ok("/admin/intents".to_owned()))
    }

    /// Upstreams of which intents may have been lost when the ledger was re-fenced: their resources are not
    /// locked before somebody resolves that.
    ///
    /// # Errors
    /// [`Error::Unavailable`] and the like.
    pub async fn doubts(&self) -> Result<Vec<DoubtEntry>, Error> {
        let request = Request::get("/admin/intents?limit=1");
        let list: IntentList =
            self.inner.json("doubts", &request, self.inner.call_until_ms()).await?;
        Ok(list.doubts)
    }

    /// Takes it upon you that what was forwarded has no effect any more, whatever came of it. The next lock on
    /// the resource may be in force from then on. Again is harmless.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such operation; [`Error::Misuse`] for a reason that is none.
    pub async fn resolve_intent(&self, operation: OperationId, reason: &str) -> Result<(), Error> {
        check_reason(reason)?;
        let path = format!("/admin/intents/{operation}/resolve");
        let request =
            Request::new(Method::POST, path).json(&MarkRequest { reason: reason.to_owned() });
        self.inner.done("resolve", &request, self.inner.call_until_ms()).await
    }

    /// Takes it upon you that nothing that was forwarded to this upstream before a re-fence has an effect any
    /// more. Gives the number of doubts that there were. Again is harmless.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a reason that is none; [`Error::Unavailable`] and the like.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// for doubt in client.doubts().await? {
    ///     client.resolve_doubts(&doubt.upstream, "the service was restarted since").await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn resolve_doubts(&self, upstream: &str, reason: &str) -> Result<u64, Error> {
        check_reason(reason)?;
        let body =
            ResolveDoubtsRequest { upstream: upstream.to_owned(), reason: reason.to_owned() };
        let path = "/admin/intents/resolve".to_owned();
        let answer: DoubtsResolved = self.act("resolve", path, &body).await?;
        Ok(answer.resolved.max(0).unsigned_abs())
    }
}

/// The path of an act on a resource, if the names are good and there is a reason.
fn acting(resource: &str, act: &str, reason: &str) -> Result<String, Error> {
    let name = names::resource(resource)?;
    check_reason(reason)?;
    Ok(format!("{}/{act}", path::resource(&name)))
}

/// A lock to break; made by [`Client::break_lock`].
#[must_use = "nothing is broken before it is awaited"]
pub struct Break {
    client: Client,
    path: Result<String, Error>,
    reason: String,
    after: Option<Duration>,
}

impl Break {
    /// Gives the holder up to so long to end by itself: at most 24 h. It cannot renew meanwhile. Done again, a
    /// break can only come sooner.
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    async fn run(self) -> Result<Resource, Error> {
        let path = self.path?;
        let after = self.after.map(names::whole_ms).transpose()?;
        if after.is_some_and(|after| after > Ttl::MAX) {
            return Err(Error::misuse("a break comes at most 24 h later"));
        }
        self.client.act("break", path, &BreakRequest { after, reason: self.reason }).await
    }
}

impl IntoFuture for Break {
    type Output = Result<Resource, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

/// The name of a resource, as a filter has it.
fn named(resource: &str) -> Result<String, Error> {
    names::resource(resource).map(|name| name.to_string())
}

impl Listing<AuditEntry> {
    /// Only what was done to this resource.
    pub fn resource(self, resource: &str) -> Self {
        self.with("resource", named(resource))
    }

    /// Only this.
    pub fn action(self, action: AuditAction) -> Self {
        self.with("action", Ok(action.as_str().to_owned()))
    }
}

impl Listing<RejectionEntry> {
    /// Only writes on this resource.
    pub fn resource(self, resource: &str) -> Self {
        self.with("resource", named(resource))
    }

    /// Only those refused with this code.
    pub fn reason(self, code: ErrorCode) -> Self {
        self.with("reason", Ok(code.as_str().to_owned()))
    }
}

impl Listing<IntentEntry> {
    /// Only on this resource.
    pub fn resource(self, resource: &str) -> Self {
        self.with("resource", named(resource))
    }

    /// Only at this upstream.
    pub fn upstream(self, upstream: &str) -> Self {
        self.with("upstream", Ok(upstream.to_owned()))
    }
}
