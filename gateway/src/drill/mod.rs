//! `fencegate drill`: plays a late writer on a canary resource of a running gateway, over HTTP.
//!
//! It believes no answer alone: it compares what the refusals say with what readers see afterwards.

mod intruder;
mod remote;
mod report;
mod steps;
mod textfile;

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Clock, Ids};
use fence_core::wire::Lock;
use fence_core::{LockId, ResourceName};
use reqwest::{Method, RequestBuilder, Url};
use tokio_util::task::TaskTracker;

use crate::runtime;
use remote::{Answer, Remote, segment, under};
pub use report::{Outcome, Report, Step};
pub use textfile::Textfile;

/// The one object that a drill writes.
const KEY: &str = "fencegate-drill";
/// Its content type, by which a later drill knows it.
const CONTENT_TYPE: &str = "application/x-fencegate-drill";
/// What the owners of its locks begin with.
const OWNER: &str = "fencegate drill";
/// How long the first holder's lock lasts: as short as a ttl may be, since the drill waits for its end.
const FIRST_TTL: &str = "1s";
/// A token that nobody was granted.
const FORGED: i64 = i64::MAX;
/// How long the time for cleaning up is at the least.
const CLEANUP: Duration = Duration::from_secs(5);

/// What to drill.
#[derive(Clone)]
pub struct Settings {
    /// The gateway's base URL; a path in it is a prefix of all calls.
    pub url: Url,
    /// The canary resource; without one a new one of a random name.
    pub resource: Option<ResourceName>,
    /// How long all of it may take.
    pub timeout: Duration,
    /// What the drill shows of who it is, where rules of access are in force.
    pub credential: Option<String>,
    /// What another principal shows, who tries to act under the drill's lock.
    pub intruder: Option<String>,
    /// Whom to trust beside the authorities of this machine, in PEM.
    pub authorities: Option<Vec<u8>>,
}

/// Runs a drill; `tell` gets each step once it is decided. An error means that it did not begin.
pub async fn drill(
    settings: &Settings,
    tell: &mut (dyn FnMut(&Step) + Send),
) -> anyhow::Result<Report> {
    let runtime = runtime::runtime(TaskTracker::new());
    let resource = match &settings.resource {
        Some(resource) => resource.clone(),
        None => ResourceName::new(format!("fencegate-drill-{}", runtime.ids.uuid().simple()))?,
    };
    let mut drill = Drill {
        remote: Remote::new(settings)?,
        has_intruder: settings.intruder.is_some(),
        path: format!("/resources/{}", segment(resource.as_str())),
        resource,
        clock: runtime.clock,
        ids: runtime.ids,
        steps: Vec::new(),
        tell,
        asked: Vec::new(),
        holder: None,
    };
    // Whatever stopped it is told among the steps.
    let _ = drill.play().await;
    drill.clean_up().await;
    let mut url = settings.url.clone();
    let _ = url.set_password(None);
    Ok(Report::new(url.to_string(), drill.resource.to_string(), drill.steps))
}

/// The drill cannot go on; why is among the steps.
struct Halt;

type Name = (&'static str, &'static str);

struct Drill<'a> {
    remote: Remote,
    has_intruder: bool,
    resource: ResourceName,
    path: String,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    steps: Vec<Step>,
    tell: &'a mut (dyn FnMut(&Step) + Send),
    /// The locks that were asked for, to be released in the end.
    asked: Vec<LockId>,
    /// The lock that was granted last.
    holder: Option<Lock>,
}

impl Drill<'_> {
    /// 1. The gateway is ready, and nobody else uses the canary resource.
    /// 2. A first holder takes its lock and writes; writes without a good token change nothing.
    /// 3. The lock lapses, and a second holder, who stood in line for it, takes over and writes.
    /// 4. An intruder gets nowhere, if there is one to play; the first holder's late write bounces. Object, history and `/rejections` bear it out.
    async fn play(&mut self) -> Result<(), Halt> {
        self.ready().await?;
        self.unused().await?;
        let first = self.take(("first-lock", "a first holder takes the lock"), FIRST_TTL).await?;
        let before = first.versions.first().copied().unwrap_or_default();
        let name = ("first-write", "the first holder's write is admitted");
        let one = self.write(name, &first, "the first holder's").await?;

        let call = self.put("without a token; nobody must ever read this");
        let name = ("no-token", "a write without a token is refused");
        self.refused(name, call, 428, "fence-token-missing").await?;
        let call = self.put("under a forged token; nobody must ever read this");
        let call = call.header("x-fence-token", FORGED.to_string());
        let name = ("forged-token", "a write with a forged, far higher token is refused");
        self.refused(name, call, 403, "fence-token-unknown").await?;
        let name = ("first-object", "the object is as the first holder left it");
        self.reads(name, "the first holder's").await?;

        let second = self.take_over(&first).await?;
        let name = ("second-write", "the second holder's write is admitted");
        let two = self.write(name, &second, "the second holder's").await?;
        if self.has_intruder {
            self.intrude(&second).await?;
        }
        let call = under(self.put("late; nobody must ever read this"), &first);
        let name = ("late-write", "the first holder's late write is refused");
        self.refused(name, call, 412, "fence-token-stale").await?;
        let name = ("second-object", "the object is as the second holder left it");
        self.reads(name, "the second holder's").await?;
        self.history(before, &one, &two).await?;
        self.rejection(&first).await
    }

    /// Deletes the object and releases the locks, whatever happened before; the fence stays, as all do.
    async fn clean_up(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        self.remote.extend(CLEANUP);
        let mut calls = Vec::new();
        if let Some(lock) = &self.holder {
            let object = format!("{}/objects/{KEY}", self.path);
            calls.push(under(self.remote.call(Method::DELETE, &object), lock));
        }
        // What the second holder has taken over is its own to release. Had it no answer, it may
        // have the lock all the same, or stand in line.
        let (last, holder) = (self.asked.last().copied(), self.holder.as_ref().map(|lock| lock.id));
        for id in last.into_iter().chain(holder.filter(|id| Some(*id) != last)) {
            calls.push(self.remote.call(Method::DELETE, &format!("/locks/{id}")));
        }
        let mut left: Option<(Option<Answer>, Option<String>)> = None;
        for call in calls {
            match self.remote.send(call).await {
                Ok(answer) if answer.status == 204 => {}
                Ok(answer) => {
                    let why = answer.detail.clone();
                    left.get_or_insert((Some(answer), why));
                }
                Err(error) => {
                    left.get_or_insert((None, Some(format!("{error:#}"))));
                }
            }
        }
        let name = ("cleanup", "the object is deleted and the lock is released");
        match left {
            None => self.tell(name, Outcome::Held, None, None),
            Some((answer, why)) => self.tell(name, Outcome::NotDone, answer.as_ref(), why),
        }
    }

    fn tell(
        &mut self,
        name: Name,
        outcome: Outcome,
        answer: Option<&Answer>,
        detail: Option<String>,
    ) {
        let step = Step::new(name, outcome, answer, detail);
        (self.tell)(&step);
        self.steps.push(step);
    }

    /// An answer that says something on the step: one of 5xx says nothing.
    async fn answered(&mut self, name: Name, call: RequestBuilder) -> Result<Answer, Halt> {
        match self.remote.send(call).await {
            Ok(answer) if answer.status >= 500 && name.0 != "ready" => {
                Err(self.not_understood(name, &answer))
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.halt(name, None, format!("{error:#}"))),
        }
    }

    fn not_understood(&mut self, name: Name, answer: &Answer) -> Halt {
        let why = answer.detail.clone().unwrap_or_else(|| "the answer is not a gateway's".into());
        self.halt(name, Some(answer), why)
    }

    fn halt(&mut self, name: Name, answer: Option<&Answer>, why: impl Into<String>) -> Halt {
        self.tell(name, Outcome::NotDone, answer, Some(why.into()));
        Halt
    }
}
