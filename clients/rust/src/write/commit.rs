//! Many puts and deletes at once, over all resources of a lock: all or nothing (CC29).

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::json::{
    self, COMMIT_RESOURCES_MAX, CommitOperation, CommitRequest, CommitResult, CommitVerb,
    CommittedResource,
};
use fencegate_wire::{ObjectKey, OperationId, ResourceName};
use futures::StreamExt as _;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use uuid::Uuid;

use super::options::{Options, check_tags};
use super::put::checked_content_type;
use super::sending::{Effect, Receipt, Writing};
use crate::encoding::multipart;
use crate::error::{Details, Error};
use crate::guard::held::Held;
use crate::machine::settling::Condition;
use crate::names;
use crate::transport::body::{Body, ByteStream, Sent};

/// The most operations of one commit.
const OPERATIONS_MAX: usize = 1_000;

/// A commit that is put together; [`CommitBuilder::send`] sends it.
///
/// Conditions belong to the operation before them.
#[must_use = "a commit is sent by `send`"]
pub struct CommitBuilder {
    held: Arc<Held>,
    operations: Vec<(CommitOperation, Option<Body>)>,
    versions: BTreeMap<ResourceName, i64>,
    wrong: Option<Error>,
    options: Options,
}

/// What a commit became.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Committed {
    /// The operation, the same on all resources.
    pub operation: OperationId,
    /// Its resources, and the versions that they became; empty if a newer gateway says it in another way.
    pub resources: Vec<CommittedResource>,
    /// What each operation did, in order; empty if the commit was looked up afterwards.
    pub results: Vec<CommitResult>,
    /// Whether it took effect by an earlier attempt.
    pub replayed: bool,
    /// How it went.
    pub receipt: Receipt,
}

impl CommitBuilder {
    pub(crate) fn new(held: Arc<Held>) -> Self {
        let (operations, versions) = (Vec::new(), BTreeMap::new());
        Self { held, operations, versions, wrong: None, options: Options::default() }
    }

    /// Stores an object.
    pub fn put(mut self, resource: &str, key: &str, body: impl Into<Body>) -> Self {
        let body = body.into();
        if !body.is_replayable() {
            let text = "a commit takes bodies that can be sent again: bytes, files, or from_fn";
            self.wrong.get_or_insert_with(|| Error::misuse(text));
        }
        let name =
            format!("b{}", self.operations.iter().filter(|(_, body)| body.is_some()).count());
        self.add(CommitVerb::Put, resource, key, Some((name, body)))
    }

    /// Removes an object, if it is there.
    pub fn delete(self, resource: &str, key: &str) -> Self {
        self.add(CommitVerb::Delete, resource, key, None)
    }

    fn add(
        mut self,
        op: CommitVerb,
        resource: &str,
        key: &str,
        body: Option<(String, Body)>,
    ) -> Self {
        let checked = names::resource(resource).and_then(|name| Ok((name, names::object(key)?)));
        match checked {
            Ok((resource, key)) => {
                let (name, bytes) = body.unzip();
                let operation = CommitOperation {
                    op,
                    resource,
                    key,
                    body: name,
                    content_type: None,
                    if_match: None,
                    if_none_match: None,
                };
                self.operations.push((operation, bytes));
            }
            Err(error) => {
                self.wrong.get_or_insert(error);
            }
        }
        self
    }

    fn last(mut self, change: impl FnOnce(&mut CommitOperation)) -> Self {
        match self.operations.last_mut() {
            Some((operation, _)) => change(operation),
            None => {
                let text = "a condition belongs behind the operation that it is about";
                self.wrong.get_or_insert_with(|| Error::misuse(text));
            }
        }
        self
    }

    /// The type of the bytes of the put before.
    pub fn content_type(self, content_type: impl Into<String>) -> Self {
        self.last(|operation| operation.content_type = Some(content_type.into()))
    }

    /// The operation before is done only if its object carries this tag; `*`: if it is there.
    pub fn if_match(self, tag: impl Into<String>) -> Self {
        self.last(|operation| operation.if_match = Some(tag.into()))
    }

    /// The put before is done only if its object is not there.
    pub fn if_absent(self) -> Self {
        self.last(|operation| operation.if_none_match = Some("*".to_owned()))
    }

    /// The commit is done only if the resource is at this version.
    pub fn expect_version(mut self, resource: &str, version: i64) -> Self {
        match names::resource(resource) {
            Ok(_) if version < 0 => {
                self.wrong.get_or_insert_with(|| Error::misuse("a version is 0 or more"));
            }
            Ok(resource) => {
                self.versions.insert(resource, version);
            }
            Err(error) => {
                self.wrong.get_or_insert(error);
            }
        }
        self
    }

    /// A key of one's own: with it the commit takes effect once, however often it is made.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.options.key = Some(key.into());
        self
    }

    /// For how long it goes on; by default as the client says.
    pub fn within(mut self, within: Duration) -> Self {
        self.options.within = Some(within);
        self
    }

    /// Waits while an operator has a resource frozen.
    pub fn ride_out(mut self) -> Self {
        self.options.rides_out = true;
        self
    }

    /// Sends it.
    ///
    /// # Errors
    /// As any write; [`Details::index`] says which operation could not be done. [`Error::Misuse`]: more than
    /// 1,000 operations, an object twice, or a resource that the lock does not cover.
    pub async fn send(mut self) -> Result<Committed, Error> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let first = self.check()?;
        let condition = self.condition();
        let boundary = format!("fencegate-{}", Uuid::new_v4().simple());
        let target = ("commit", Method::POST, "/commit".to_owned());
        let mut prepared = self.options.prepare(&self.held, target, &first, Some(condition))?;
        if let Ok(value) = multipart::content_type(&boundary).parse() {
            prepared.request.headers.insert(CONTENT_TYPE, value);
        }
        prepared.request.body = Some(body(self.operations, self.versions, &boundary).await?);
        let (effect, receipt) = Writing::new(self.held, prepared).go().await?;
        committed(effect, receipt)
    }

    /// The gateway's limits, and what the lock covers. Gives the first resource.
    fn check(&self) -> Result<ResourceName, Error> {
        let count = self.operations.len();
        if !(1..=OPERATIONS_MAX).contains(&count) {
            return Err(Error::misuse(format!("a commit has 1 to {OPERATIONS_MAX} operations")));
        }
        let mut objects = BTreeSet::<(&ResourceName, &ObjectKey)>::new();
        let mut resources: BTreeSet<&ResourceName> = self.versions.keys().collect();
        for (operation, _) in &self.operations {
            if !objects.insert((&operation.resource, &operation.key)) {
                let (resource, key) = (&operation.resource, &operation.key);
                return Err(Error::misuse(format!("the object {key} of {resource} comes twice")));
            }
            if operation.op == CommitVerb::Delete
                && (operation.if_none_match.is_some() || operation.content_type.is_some())
            {
                return Err(Error::misuse("a delete has no if_absent and no content type"));
            }
            if let Some(content_type) = &operation.content_type {
                checked_content_type(content_type)?;
            }
            if let Some(tags) = &operation.if_match {
                check_tags(tags)?;
            }
            resources.insert(&operation.resource);
        }
        if resources.len() > COMMIT_RESOURCES_MAX {
            let text = format!("a commit is on at most {COMMIT_RESOURCES_MAX} resources");
            return Err(Error::misuse(text));
        }
        if let Some(foreign) = resources.iter().find(|name| !self.held.resources.contains(name)) {
            return Err(Error::misuse(format!("the lock does not cover {foreign}")));
        }
        let first = self.operations.iter().map(|(operation, _)| &operation.resource).min();
        first.cloned().ok_or_else(|| Error::misuse("a commit has operations"))
    }

    fn condition(&self) -> Condition {
        let tags = |tags: &Option<String>| tags.as_deref().is_some_and(|tags| tags.trim() != "*");
        let star = |tags: &Option<String>| tags.as_deref().is_some_and(|tags| tags.trim() == "*");
        let absence = !self.versions.is_empty()
            || self
                .operations
                .iter()
                .any(|(one, _)| one.if_none_match.is_some() || star(&one.if_match));
        match absence {
            true => Condition::Absence,
            false if self.operations.iter().any(|(one, _)| tags(&one.if_match)) => Condition::Tags,
            false => Condition::None,
        }
    }
}

/// The parts, in the order of the operations. Streamed, if they are not all in memory.
async fn body(
    operations: Vec<(CommitOperation, Option<Body>)>,
    versions: BTreeMap<ResourceName, i64>,
    boundary: &str,
) -> Result<Body, Error> {
    let (operations, bodies): (Vec<_>, Vec<_>) = operations.into_iter().unzip();
    let named = operations.iter().zip(bodies).filter_map(|(one, body)| Some((one, body?)));
    let mut parts: Vec<(bytes::Bytes, Body)> = Vec::new();
    for (operation, body) in named {
        let content_type = operation.content_type.as_deref().unwrap_or("application/octet-stream");
        let name = operation.body.as_deref().unwrap_or_default();
        let digest = body.digest().await?;
        parts.push((multipart::head(boundary, false, name, content_type, digest.as_deref()), body));
    }
    let list = CommitRequest { operations, versions };
    let list =
        serde_json::to_vec(&list).map_err(|error| Error::misuse(format!("no JSON: {error}")))?;
    let first = multipart::head(boundary, true, "operations", "application/json", None);
    parts.insert(0, (first, list.into()));
    let tail = multipart::tail(boundary);
    let is_whole = parts.iter().all(|(_, body)| body.bytes().is_some());
    if is_whole {
        let mut whole = Vec::new();
        for (head, body) in &parts {
            whole.extend_from_slice(head);
            whole.extend_from_slice(body.bytes().map_or(&[][..], |bytes| bytes));
        }
        whole.extend_from_slice(&tail);
        return Ok(whole.into());
    }
    let parts = Arc::new(parts);
    Ok(Body::from_fn(None, move || begin(parts.clone(), tail.clone())))
}

/// One attempt's stream of all parts.
async fn begin(
    parts: Arc<Vec<(bytes::Bytes, Body)>>,
    tail: bytes::Bytes,
) -> std::io::Result<ByteStream> {
    let pieces = futures::stream::unfold((parts, 0), |(parts, at)| async move {
        let (head, body) = parts.get(at)?.clone();
        let stream = match body.begin().await {
            Ok(Sent::Bytes(bytes)) => futures::stream::iter([Ok(head), Ok(bytes)]).boxed(),
            Ok(Sent::Stream { stream, .. }) => {
                futures::stream::iter([Ok(head)]).chain(stream).boxed()
            }
            Err(error) => {
                futures::stream::iter([Err(std::io::Error::other(error.to_string()))]).boxed()
            }
        };
        Some((stream, (parts, at + 1)))
    });
    Ok(pieces.flatten().chain(futures::stream::iter([Ok(tail)])).boxed())
}

fn committed(effect: Effect, receipt: Receipt) -> Result<Committed, Error> {
    match effect {
        Effect::Answered(answered) => {
            let read = serde_json::from_slice::<json::Committed>(&answered.body).ok();
            let operation = read.as_ref().map(|read| read.operation).or(answered.operation);
            let Some(operation) = operation else {
                let text = "the commit took effect, but its answer does not say as which operation";
                return Err(Error::GatewayFault(Details::local(text)));
            };
            let (resources, results) =
                read.map(|it| (it.resources, it.results)).unwrap_or_default();
            Ok(Committed {
                operation,
                resources,
                results,
                replayed: answered.was_replayed,
                receipt,
            })
        }
        Effect::Found(found) => {
            let one = || {
                let resource = found.resource.clone().unwrap_or_default();
                vec![CommittedResource { resource, version: found.version }]
            };
            Ok(Committed {
                operation: found.operation,
                resources: found.resources.clone().unwrap_or_else(one),
                results: Vec::new(),
                replayed: true,
                receipt,
            })
        }
    }
}

impl IntoFuture for CommitBuilder {
    type Output = Result<Committed, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
