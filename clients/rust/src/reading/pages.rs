//! Lists: page by page, or item by item as the pages come.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fencegate_wire::json::{AuditEntry, ObjectEntry, RejectionEntry, Resource, Version};
use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::{Client, Inner};
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::encoding::path;
use crate::error::{Details, Error};
use crate::machine::backoff::Backoff;
use crate::transport::request::Request;

/// The most items of a page, and what is asked for by default: a gateway gives no more.
const PAGE_SIZE_MAX: u32 = 1000;
/// For how long a gateway is asked to wait for the next record.
const FOLLOWED_MS: u64 = 25_000;
/// The longest beginning of a name that a gateway looks for.
const PREFIX_BYTES_MAX: usize = 1024;

/// A page of a list.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items. There may be none although more pages follow.
    pub items: Vec<T>,
    /// For [`Listing::page`], to get the next one; `None` on the last.
    pub next_cursor: Option<String>,
}

/// A list that is read as it is needed: item by item, page by page, or all at once.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
/// # let lock = client.lock("invoices:2026").acquire().await?;
/// # lock.put("may/total.txt", "110").await?;
/// use futures::TryStreamExt;
///
/// let mut objects = client.list("invoices:2026").prefix("may/").stream();
/// while let Some(object) = objects.try_next().await? {
///     println!("{} has {} bytes", object.key, object.size);
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing is read before `stream`, `page` or `all`"]
pub struct Listing<T> {
    inner: Arc<Inner>,
    call: &'static str,
    path: String,
    parameters: Vec<(&'static str, String)>,
    page_size: u32,
    /// What was asked for and makes no sense.
    wrong: Option<Error>,
    items: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> Listing<T> {
    pub(crate) fn new(client: &Client, call: &'static str, path: Result<String, Error>) -> Self {
        let (path, wrong) = match path {
            Ok(path) => (path, None),
            Err(error) => (String::new(), Some(error)),
        };
        let (inner, parameters) = (client.inner.clone(), Vec::new());
        Self { inner, call, path, parameters, page_size: PAGE_SIZE_MAX, wrong, items: PhantomData }
    }

    /// With this parameter, in the place of one of the same name.
    pub(crate) fn with(mut self, name: &'static str, value: Result<String, Error>) -> Self {
        match value {
            Ok(value) => {
                self.parameters.retain(|(known, _)| *known != name);
                self.parameters.push((name, value));
            }
            Err(error) => self.wrong = Some(self.wrong.unwrap_or(error)),
        }
        self
    }

    /// Asks for so many items at a time: 1 to 1,000, by default 1,000.
    ///
    /// Any other number is [`Error::Misuse`] once the list is read.
    pub fn page_size(mut self, items: u32) -> Self {
        if !(1..=PAGE_SIZE_MAX).contains(&items) {
            let error = Error::misuse(format!("a page has 1 to {PAGE_SIZE_MAX} items"));
            self.wrong = Some(self.wrong.unwrap_or(error));
        }
        self.page_size = items;
        self
    }

    /// One page: the first, or with the `next_cursor` of a page the one behind it.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a name, filter or cursor that is none; [`Error::NotFound`] for the contents of a
    /// resource that was never locked; [`Error::Unavailable`].
    pub async fn page(mut self, cursor: Option<&str>) -> Result<Page<T>, Error> {
        self.ask(cursor.map(str::to_owned)).await
    }

    /// The items one after another; the next page is asked for when the one before is used up. After an error
    /// it is over.
    pub fn stream(self) -> Items<T> {
        let pages = stream::try_unfold((self, Some(None)), async |(mut list, cursor)| {
            let Some(cursor) = cursor else { return Ok(None) };
            let page = list.ask(cursor.clone()).await?;
            if page.next_cursor.is_some() && page.next_cursor == cursor {
                let text = "a list that leads to the same page again";
                return Err(Error::GatewayFault(Details::local(text)));
            }
            let next = page.next_cursor.map(Some);
            Ok(Some((stream::iter(page.items.into_iter().map(Ok)), (list, next))))
        });
        Items(pages.try_flatten().boxed())
    }

    /// All of them. For lists that are known to be short.
    ///
    /// # Errors
    /// Those of [`Listing::page`].
    pub async fn all(self) -> Result<Vec<T>, Error> {
        self.stream().try_collect().await
    }

    async fn ask(&mut self, cursor: Option<String>) -> Result<Page<T>, Error> {
        let request = self.request(cursor.map(|cursor| ("cursor", cursor)))?;
        self.inner.json(self.call, &request, self.inner.call_until_ms()).await
    }

    fn request(
        &mut self,
        more: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<Request, Error> {
        if let Some(error) = self.wrong.take() {
            return Err(error);
        }
        let limit = ("limit", self.page_size.to_string());
        let parameters = self.parameters.iter().cloned().chain([limit]).chain(more);
        Ok(Request::get(format!("{}{}", self.path, path::query(parameters))))
    }
}

/// The records of what was done and refused, which may be followed.
pub trait Recorded: sealed::Recorded {}

impl Recorded for AuditEntry {}
impl Recorded for RejectionEntry {}

impl<T: Recorded + DeserializeOwned + Send + 'static> Listing<T> {
    /// What is recorded from now on, oldest first and without an end. A gateway that is away for a while is asked
    /// again; a refusal is an error, and the end.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// use futures::TryStreamExt;
    ///
    /// let mut entries = client.audit().resource("invoices:2026").follow();
    /// # let taking = async { loop {
    /// #     client.lock("invoices:2026").acquire().await?.release().await;
    /// #     tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    /// # } #[allow(unreachable_code)] Ok::<(), fencegate_client::Error>(()) };
    /// # let first = tokio::select! { entry = entries.try_next() => entry?, _ = taking => None };
    /// # /*
    /// let first = entries.try_next().await?;
    /// # */
    /// assert_eq!(first.map(|entry| entry.action).as_deref(), Some("grant"));
    /// # Ok(()) }
    /// ```
    pub fn follow(self) -> Items<T> {
        let begin = (self, "now".to_owned(), Backoff::default());
        let pages = stream::try_unfold(begin, async |(mut list, after, mut backoff)| {
            loop {
                let began_ms = now_ms();
                let page = list.ask_after(&after).await;
                match page {
                    Ok(page)
                        if !page.items.is_empty() || page.next_cursor.as_ref() != Some(&after) =>
                    {
                        let after = page.next_cursor.unwrap_or(after);
                        let items = stream::iter(page.items.into_iter().map(Ok));
                        return Ok(Some((items, (list, after, Backoff::default()))));
                    }
                    // Nothing has come in all that time.
                    Ok(_) if now_ms() - began_ms >= FOLLOWED_MS / 2 => {}
                    Ok(_) | Err(Error::Unavailable(_)) => {
                        let pause_ms = backoff.next(draw(), None, u64::MAX).unwrap_or(FOLLOWED_MS);
                        sleep_until_ms(now_ms() + pause_ms).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        });
        Items(pages.try_flatten().boxed())
    }

    async fn ask_after(&mut self, after: &str) -> Result<Page<T>, Error> {
        let wait = format!("{FOLLOWED_MS}ms");
        let request = self.request([("after", after.to_owned()), ("wait", wait)])?;
        let request = request.waits(FOLLOWED_MS);
        self.inner.json(self.call, &request, self.inner.call_until_ms()).await
    }
}

/// A list of names, which may be narrowed to those that begin with something.
pub trait Named: sealed::Named {}

impl Named for ObjectEntry {}
impl Named for Version {}
impl Named for Resource {}

mod sealed {
    /// Not for others to implement.
    pub trait Named {}
    /// Not for others to implement.
    pub trait Recorded {}

    impl Recorded for super::AuditEntry {}
    impl Recorded for super::RejectionEntry {}

    impl Named for super::ObjectEntry {}
    impl Named for super::Version {}
    impl Named for super::Resource {}
}

impl<T: Named + DeserializeOwned + Send + 'static> Listing<T> {
    /// Only names that begin with this, at most 1,024 bytes: keys of objects, in a list of objects or versions,
    /// else names of resources.
    pub fn prefix(self, prefix: &str) -> Self {
        let is_good = prefix.len() <= PREFIX_BYTES_MAX && !prefix.chars().any(char::is_control);
        let wrong = || Error::misuse("a prefix has at most 1024 bytes and no control characters");
        self.with("prefix", is_good.then(|| prefix.to_owned()).ok_or_else(wrong))
    }
}

/// The items of a list, as a `Stream`.
pub struct Items<T>(BoxStream<'static, Result<T, Error>>);

impl<T> std::fmt::Debug for Items<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Items(..)")
    }
}

impl<T> Stream for Items<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}
