//! Requests for runs: somebody asks, and whoever waits for requests of that job runs it.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use uuid::Uuid;

use super::job::REASON_CHARS_MAX;
use super::name::JobName;
use super::record::{FORM, Request};
use crate::acquire::Wait;
use crate::client::Client;
use crate::error::Error;
use crate::jobs::Slot;
use crate::transport::body::Body;

/// What the requests of an inbox begin with.
const REQUESTS: &str = "requests/";
/// How long the inbox is waited for: all that hold it hold it for a moment.
const WAIT: Duration = Duration::from_secs(30);
/// So many requests may wait.
const REQUESTS_MAX: usize = 100;

pub(crate) fn key(request: Uuid) -> String {
    format!("{REQUESTS}{request}.json")
}

impl Client {
    /// Asks for a run of a job: of a slot, or of one of its own. Gives the request.
    ///
    /// # Errors
    /// [`Error::Misuse`]: there is no reason, or too many requests wait. Or the inbox cannot be written.
    pub async fn request_run(
        &self,
        name: &JobName,
        slot: Option<Slot>,
        resume: bool,
        reason: &str,
    ) -> Result<Request, Error> {
        if reason.trim().is_empty() || reason.chars().count() > REASON_CHARS_MAX {
            let text = format!("a reason has 1 to {REASON_CHARS_MAX} characters");
            return Err(Error::misuse(&text));
        }
        let request = Request {
            v: FORM,
            request: Uuid::now_v7(),
            job: name.name().to_owned(),
            slot,
            resume,
            reason: reason.to_owned(),
            by: self.owner().to_owned(),
            requested_at: Timestamp::now(),
        };
        let body = Body::json(&request)?;
        let inbox = name.inbox();
        self.lock(inbox.as_str())
            .wait(Wait::UpTo(WAIT))
            .run(async |lock| {
                let waiting = self.list(&inbox).prefix(REQUESTS).all().await?;
                if waiting.len() >= REQUESTS_MAX {
                    let text = format!("{REQUESTS_MAX} requests wait already");
                    return Err(Error::misuse(&text));
                }
                let put = lock.put(&key(request.request), body).content_type("application/json");
                put.await.map(drop)
            })
            .await?;
        Ok(request)
    }

    /// The requests that wait for a run, the oldest first.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn requested_runs(&self, name: &JobName) -> Result<Vec<Request>, Error> {
        let inbox = name.inbox();
        let waiting = match self.list(&inbox).prefix(REQUESTS).all().await {
            Err(Error::NotFound(_)) => return Ok(Vec::new()),
            waiting => waiting?,
        };
        // Their ids sort as they were made.
        let read = futures::stream::iter(waiting).map(async |it| {
            // What somebody else has put there is no request, and hides none.
            let found = self.get(&inbox, &it.key).optional().await?;
            Ok::<_, Error>(found.and_then(|it| it.json::<Request>().ok()))
        });
        let requests: Vec<_> = read.buffered(8).try_collect().await?;
        Ok(requests.into_iter().flatten().collect())
    }

    /// Removes a request that was taken or cannot be carried out.
    ///
    /// # Errors
    /// The inbox cannot be written.
    pub async fn drop_request(&self, name: &JobName, request: Uuid) -> Result<(), Error> {
        let lock = self.lock(name.inbox()).wait(Wait::UpTo(WAIT));
        lock.run(async |lock| lock.delete(&key(request)).await.map(drop)).await
    }

    /// Whether somebody waits for requests of this job.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn has_agent(&self, name: &JobName) -> Result<bool, Error> {
        match self.resource(&name.agent()).await {
            Ok(found) => Ok(super::is_held(&found)),
            Err(Error::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
