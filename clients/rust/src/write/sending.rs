//! Sends a write until its outcome is known, or its deadline has passed. **Safety-critical**: an outcome
//! that is unknown is never reported as known (CC24a).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use fencegate_wire::json::{Operation, OperationOutcome};
use fencegate_wire::{ErrorCode, OperationId, ResourceName};
use serde::de::IgnoredAny;
use tokio::sync::Mutex;

use super::unknown::OutcomeUnknown;
use crate::class::Class;
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::error::{Details, Error};
use crate::guard::held::Held;
use crate::guard::numbers::UnderWay;
use crate::guard::renewing;
use crate::hooks::Event;
use crate::machine::backoff::Backoff;
use crate::machine::settling::{Beside, Condition, Said, Settling, Verdict};
use crate::reading::views::{operation_of_id, operation_of_key};
use crate::transport::answer::{JSON_BYTES_MAX, Reply, class_of, no_json};
use crate::transport::body;
use crate::transport::request::{Request, RequestIds};

/// Until the gateway has said how long it keeps keys, nothing is sent again later than this.
const RESENT_UNASKED_MS: u64 = 30_000;
/// How long a look-up may take.
const ASK_WITHIN_MS: u64 = 5_000;

/// A write, as every attempt sends it.
pub(crate) struct Prepared {
    pub(super) call: &'static str,
    pub(super) request: Request,
    /// The object; `None`: all of a resource, or many.
    pub(super) object: Option<String>,
    /// Whether the client made the key.
    pub(super) is_own_key: bool,
    /// Where an operation is looked up by its key.
    pub(super) resource: ResourceName,
    pub(super) key: String,
    /// For how long the gateway was asked to keep the key; `None`: as long as it does.
    pub(super) kept_ms: Option<u64>,
    pub(super) condition: Condition,
    pub(super) within_ms: u64,
    pub(super) retries: bool,
    /// Whether a frozen or draining resource is waited for.
    pub(super) rides_out: bool,
}

/// That a write took effect.
pub(crate) enum Effect {
    /// As the answer to it says.
    Answered(Answered),
    /// As its record says, which was looked up.
    Found(Box<Operation>),
}

/// The answer to a write that took effect. Its headers say enough if a newer gateway has another body.
pub(crate) struct Answered {
    pub(crate) operation: Option<OperationId>,
    pub(crate) version: Option<i64>,
    pub(crate) etag: Option<String>,
    pub(crate) was_created: bool,
    pub(crate) was_replayed: bool,
    /// JSON; empty if there is none.
    pub(crate) body: Bytes,
}

/// How a write went, for those who keep histories.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Receipt {
    /// Its idempotency key.
    pub key: String,
    /// Its number among the writes of its guard, if it has one.
    pub number: Option<u64>,
    /// How many attempts were made.
    pub attempts: u32,
}

/// One write under way, or whose outcome is unknown.
pub(crate) struct Writing {
    pub(crate) held: Arc<Held>,
    pub(crate) prepared: Prepared,
    state: Mutex<Progress>,
}

/// How far a write is.
struct Progress {
    settling: Settling,
    ids: RequestIds,
    number: Option<u64>,
    under_way: Option<UnderWay>,
    /// When the first attempt was sent.
    first_ms: Option<u64>,
    operation: Option<OperationId>,
    /// Once the caller was told that the outcome is unknown, the write never gets another number: it could
    /// land on top of what the caller wrote since (CC23).
    was_told_unknown: bool,
    /// What became of it, once that is known: it is never sent again.
    known: Option<Known>,
}

/// What became of a write.
pub(super) enum Known {
    Applied { operation: Option<OperationId>, version: Option<i64> },
    NotApplied(Error),
}

impl Known {
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Applied { operation, version } => {
                Self::Applied { operation: *operation, version: *version }
            }
            Self::NotApplied(error) => Self::NotApplied(error.again()),
        }
    }

    pub(super) fn of(effect: &Effect) -> Self {
        match effect {
            Effect::Answered(answered) => {
                Self::Applied { operation: answered.operation, version: answered.version }
            }
            Effect::Found(found) => {
                Self::Applied { operation: Some(found.operation), version: found.version }
            }
        }
    }
}

impl Writing {
    pub(crate) fn new(held: Arc<Held>, prepared: Prepared) -> Arc<Self> {
        let settling = Settling::new(held.is_numbered, prepared.condition);
        let settling = settling.with_own_key(prepared.is_own_key);
        let state = Mutex::new(Progress {
            settling,
            ids: RequestIds::new(),
            number: None,
            under_way: None,
            first_ms: None,
            operation: None,
            was_told_unknown: false,
            known: None,
        });
        Arc::new(Self { held, prepared, state })
    }

    /// Sends the write until it is settled.
    pub(crate) async fn go(self: &Arc<Self>) -> Result<(Effect, Receipt), Error> {
        let began_ms = now_ms();
        let held = &self.held;
        // 1. Locally: is the guard good (CC21)?
        held.check()?;
        held.learn(crate::machine::lease::Input::Beat);
        let _turn = match &held.in_order {
            Some(order) => Some(order.lock().await),
            None => None,
        };
        // 2. A large body: a stale holder learns it for a hundred bytes (CC27).
        self.renew_first().await?;
        let until_ms = began_ms.saturating_add(self.prepared.within_ms);
        let mut progress = self.state.lock().await;
        // Under way first, then looked at once more: so a release either stops it here, or waits for it (CC43).
        progress.under_way = Some(held.numbers.begin());
        if let Err(error) = held.check() {
            progress.under_way = None;
            return Err(error);
        }
        // 3. Attempts, until something settles it.
        let result = self.attempts(&mut progress, until_ms).await;
        // 4. Or else: did it take effect? A caller that is told *unknown* can go on asking.
        let result = match result {
            Err(Ended::Open(last)) => match self.ask(&mut progress).await {
                Some(found) => found,
                None => Err(self.unknown(&mut progress, last)),
            },
            Err(Ended::Failed(error)) => Err(error),
            Ok(effect) => Ok(effect),
        };
        progress.under_way = None;
        self.note_settled(&progress);
        let receipt = Receipt {
            key: self.prepared.key.clone(),
            number: progress.number,
            attempts: progress.ids.attempts(),
        };
        let error = result.as_ref().err();
        held.inner.called(self.prepared.call, began_ms, receipt.attempts, error);
        result.map(|effect| (effect, receipt))
    }

    /// Goes on with a write whose outcome was unknown, for so long (CC25).
    pub(super) async fn go_on(self: &Arc<Self>, within_ms: u64) -> Result<Known, Error> {
        let until_ms = now_ms().saturating_add(within_ms);
        let mut progress = self.state.lock().await;
        if let Some(known) = &progress.known {
            return Ok(known.again());
        }
        // First what costs nothing: is there a record of it?
        let result = match self.ask(&mut progress).await {
            Some(found) => found,
            None => match self.attempts(&mut progress, until_ms).await {
                Ok(effect) => Ok(effect),
                Err(Ended::Failed(error)) => Err(error),
                Err(Ended::Open(last)) => match self.ask(&mut progress).await {
                    Some(found) => found,
                    None => Err(self.unknown(&mut progress, last)),
                },
            },
        };
        self.note_settled(&progress);
        let known = match result {
            Ok(effect) => Known::of(&effect),
            Err(error @ Error::OutcomeUnknown(_)) => return Err(error),
            Err(error) => Known::NotApplied(error),
        };
        progress.known = Some(known.again());
        Ok(known)
    }

    /// Its number is done with, if no copy of it can land any more.
    fn note_settled(&self, progress: &Progress) {
        if let Some(number) = progress.number.filter(|_| !progress.settling.is_open()) {
            self.held.numbers.settled(number);
        }
    }

    /// Once a gateway has buried the lock, no copy of the write takes effect any more: no record means that none
    /// has, as long as the gateway still remembers the key. `None`: that cannot be said.
    pub(super) async fn ask_finally(self: &Arc<Self>) -> Option<Known> {
        let mut progress = self.state.lock().await;
        if let Some(known) = &progress.known {
            return Some(known.again());
        }
        let asked_ms = now_ms();
        let known = match self.ask(&mut progress).await {
            Some(Ok(effect)) => Some(Known::of(&effect)),
            Some(Err(error)) => Some(Known::NotApplied(error)),
            None => self.is_nowhere(&progress, asked_ms).await.then(|| {
                let text = "the lock is over, and no write has this key";
                Known::NotApplied(Error::Unavailable(Details::local(text)))
            }),
        };
        if known.is_some() {
            progress.settling = Settling::new(self.held.is_numbered, self.prepared.condition);
            self.note_settled(&progress);
        }
        progress.known = known.as_ref().map(Known::again);
        known
    }

    /// Whether a gateway says that no write has the key, at a time when it would know it if one had.
    async fn is_nowhere(&self, progress: &Progress, asked_ms: u64) -> bool {
        let inner = &self.held.inner;
        let Some(first_ms) = progress.first_ms else { return true };
        let kept_ms = inner.status_now().await.and_then(|status| status.keys_kept_ms);
        let asked_for_ms = self.prepared.kept_ms.unwrap_or(u64::MAX);
        let remembers = kept_ms.is_some_and(|kept_ms| {
            asked_ms.saturating_sub(first_ms) < kept_ms.min(asked_for_ms) / 2
        });
        let (resource, key) = (&self.prepared.resource, &self.prepared.key);
        let found = operation_of_key(inner, resource, key, now_ms() + ASK_WITHIN_MS).await;
        remembers && matches!(found, Ok(None))
    }

    async fn renew_first(&self) -> Result<(), Error> {
        let held = &self.held;
        let Some(body) = &self.prepared.request.body else { return Ok(()) };
        let is_due = held.with_lease(|lease| lease.is_stale_for_upload(now_ms()));
        if is_due && body.is_large().await {
            match renewing::renew_now(held, None).await {
                // A guard that nobody confirms may still be good: the gateway judges the write.
                Ok(()) | Err(Error::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Attempts, with pauses, until an answer settles the write or the deadline has passed.
    async fn attempts(&self, progress: &mut Progress, until_ms: u64) -> Result<Effect, Ended> {
        let (held, prepared) = (&self.held, &self.prepared);
        let mut backoff = Backoff::default();
        let mut last = *Details::local("no attempt was made");
        loop {
            // 1. Is there time for an attempt, and does the gateway still know the key?
            if now_ms() >= until_ms || !self.may_send(progress).await {
                return Err(ended(progress, last));
            }
            // 2. The attempt. Until it is answered, it counts as open: a caller that is dropped here leaves it so.
            let before = progress.settling;
            progress.settling.leave_open();
            progress.first_ms.get_or_insert_with(now_ms);
            let reply = self.attempt(progress).await;
            progress.settling = before;
            // 3. Its answer, judged for all attempts alike.
            let verdict = match self.judge(progress, &reply) {
                Verdict::Done => match effect(reply).await {
                    Ok(effect) => return Ok(effect),
                    // It took effect, and the answer that says so was cut off: again, for all of it.
                    Err(reply) => {
                        progress.settling.leave_open();
                        last = details(&reply, progress.ids.attempts());
                        Verdict::Again
                    }
                },
                Verdict::Refused => return Err(Ended::Failed(self.refused(reply, progress))),
                Verdict::Again => {
                    last = details(&reply, progress.ids.attempts());
                    if let Reply::Unsendable(error) = reply {
                        return Err(unsendable(progress, error, last));
                    }
                    held.inner.note_slowness(&reply).await;
                    Verdict::Again
                }
                // It took no effect under its number, nor will it: the next, after a while.
                Verdict::Renumber => {
                    if let Some(number) = progress.number.take() {
                        held.numbers.settled(number);
                    }
                    last = details(&reply, progress.ids.attempts());
                    Verdict::Again
                }
            };
            debug_assert_eq!(verdict, Verdict::Again);
            let is_replayable =
                prepared.request.body.as_ref().is_none_or(|body| body.is_replayable());
            if !prepared.retries || !is_replayable {
                return Err(ended(progress, last));
            }
            // 4. A pause.
            let left_ms = until_ms.saturating_sub(now_ms());
            let floor_ms = last.retry_after.map(crate::clock::ms);
            let Some(pause_ms) = backoff.next(draw(), floor_ms, left_ms) else {
                return Err(ended(progress, last));
            };
            let (attempt, detail) = (progress.ids.attempts(), last.to_string());
            held.inner.hooks.tell(&Event::Retry { call: prepared.call, attempt, detail });
            sleep_until_ms(now_ms() + pause_ms).await;
        }
    }

    async fn attempt(&self, progress: &mut Progress) -> Reply {
        let held = &self.held;
        let mut request = self.prepared.request.clone();
        if held.is_numbered {
            let number = *progress.number.get_or_insert_with(|| held.numbers.next());
            request = request.header("x-fence-seq", &number.to_string());
        }
        let id = progress.ids.next();
        let reply = held.inner.transport.attempt(&request, &id).await;
        let operation = match &reply {
            Reply::Done(answer) => answer.header("x-operation-id").and_then(|id| id.parse().ok()),
            Reply::Problem(problem) => problem.operation.map(|id| id.0),
            _ => None,
        };
        progress.operation = operation.map(OperationId).or(progress.operation);
        reply
    }

    fn judge(&self, progress: &mut Progress, reply: &Reply) -> Verdict {
        let overlaps = |under_way: &UnderWay| under_way.overlapped() && !progress.was_told_unknown;
        let earlier = |number| self.held.numbers.is_earlier_open(number);
        let beside = Beside {
            overlapped: progress.under_way.as_ref().is_some_and(overlaps),
            earlier_is_open: progress.number.is_some_and(earlier),
        };
        let said = match reply {
            Reply::Done(_) => Said::Done,
            Reply::Problem(problem) => {
                let class = class_of(problem);
                if class == Class::LockLost {
                    self.held.refused(problem);
                }
                let busy = class == Class::Busy && self.prepared.rides_out;
                Said::Problem {
                    code: &problem.code,
                    class: if busy { Class::Unavailable } else { class },
                }
            }
            Reply::Foreign(foreign) => Said::Foreign { status: foreign.status },
            Reply::Nothing(nothing) if !nothing.was_sent => Said::Unsent,
            Reply::Nothing(_) => Said::Unanswered,
            Reply::Unsendable(_) => Said::Unsent,
        };
        progress.settling.judge(said, beside)
    }

    fn refused(&self, reply: Reply, progress: &Progress) -> Error {
        let error = reply.error(progress.ids.attempts());
        if let Error::LockLost(lost) = &error {
            let (resource, reason) = (self.prepared.resource.clone(), lost.reason);
            self.held.inner.hooks.tell(&Event::StaleWrite { resource, reason });
        }
        error
    }

    /// Whether the gateway surely still knows the key of the first attempt: nothing is sent later than half
    /// of the time for which it is kept (CC20).
    async fn may_send(&self, progress: &Progress) -> bool {
        let Some(first_ms) = progress.first_ms else { return true };
        let inner = &self.held.inner;
        let known = |ms: u64| (ms > 0).then_some(ms);
        let mut kept_ms = known(inner.keys_kept_ms.load(Ordering::Relaxed));
        let since_ms = now_ms().saturating_sub(first_ms);
        if kept_ms.is_none() && since_ms >= RESENT_UNASKED_MS {
            kept_ms = inner.status_now().await.and_then(|status| status.keys_kept_ms);
        }
        let kept_ms = match (kept_ms, self.prepared.kept_ms) {
            (Some(kept_ms), asked_ms) => kept_ms.min(asked_ms.unwrap_or(kept_ms)),
            (None, _) => 2 * RESENT_UNASKED_MS,
        };
        since_ms < kept_ms / 2
    }

    /// Looks the write up: by its operation, or else by its key (CC24). `None`: that decides nothing. A record that
    /// one attempt took no effect decides nothing either: a proxy may have made two of it.
    async fn ask(&self, progress: &mut Progress) -> Option<Result<Effect, Error>> {
        let asked =
            tokio::time::timeout(Duration::from_millis(2 * ASK_WITHIN_MS), self.find(progress));
        let found = asked.await.ok()??;
        progress.settling.judge(Said::Done, Beside::default());
        if self.prepared.is_own_key || self.is_about_this(&found) {
            return Some(Ok(Effect::Found(Box::new(found))));
        }
        let title = ErrorCode::IdempotencyKeyReused.title();
        let operation = found.operation;
        Some(Err(Error::misuse(format!("{title}: by operation {operation}"))))
    }

    /// The operation of this write that took effect, if a gateway knows one.
    async fn find(&self, progress: &Progress) -> Option<Operation> {
        let inner = &self.held.inner;
        let until_ms = now_ms() + ASK_WITHIN_MS;
        if let Some(id) = progress.operation
            && let Ok(Some(found)) = operation_of_id(inner, id, until_ms).await
            && found.outcome == OperationOutcome::Applied
        {
            return Some(found);
        }
        let (resource, key) = (&self.prepared.resource, &self.prepared.key);
        let found = operation_of_key(inner, resource, key, until_ms).await.ok()??;
        if found.outcome != OperationOutcome::Applied {
            return None;
        }
        // By its key a commit tells one of its resources, by its id all of them.
        if found.kind.as_deref() == Some("commit")
            && let Ok(Some(whole)) = operation_of_id(inner, found.operation, until_ms).await
        {
            return Some(whole);
        }
        Some(found)
    }

    /// Whether the write that has a key of the caller's is this one.
    fn is_about_this(&self, found: &Operation) -> bool {
        let kind = match (self.prepared.call, &self.prepared.object) {
            ("delete", None) => "delete_all",
            (call, _) => call,
        };
        let digest = self.prepared.request.headers.get("repr-digest");
        let same_bytes = match (&found.sha256, digest) {
            (Some(stored), Some(sent)) => {
                let stored = hex::decode(stored).unwrap_or_default();
                sent.as_bytes() == body::header(&stored).as_bytes()
            }
            _ => true,
        };
        let same_object = found.key == self.prepared.object || kind == "commit";
        found.kind.as_deref().is_none_or(|found| found == kind) && same_object && same_bytes
    }

    fn unknown(self: &Arc<Self>, progress: &mut Progress, last: Details) -> Error {
        progress.was_told_unknown = true;
        let operation = progress.operation;
        Error::OutcomeUnknown(Box::new(OutcomeUnknown::of_write(self.clone(), operation, last)))
    }
}

/// How attempts ended that did not settle it well.
enum Ended {
    /// Nothing took effect, nor will it.
    Failed(Error),
    /// Something may have taken effect, or may yet.
    Open(Details),
}

fn ended(progress: &Progress, last: Details) -> Ended {
    match progress.settling.is_open() {
        true => Ended::Open(last),
        false => Ended::Failed(Error::Unavailable(Box::new(last))),
    }
}

/// Our own fault: nothing more can be sent. What was sent before may be open.
fn unsendable(progress: &Progress, error: Error, last: Details) -> Ended {
    match progress.settling.is_open() {
        true => Ended::Open(last),
        false => Ended::Failed(error),
    }
}

fn details(reply: &Reply, attempts: u32) -> Details {
    match reply {
        Reply::Problem(problem) => *Details::of_problem(problem, attempts),
        reply => Details {
            attempts,
            retryable: true,
            retry_after: reply.floor_ms().map(std::time::Duration::from_millis),
            ..*Details::local(reply.summary())
        },
    }
}

/// Reads the answer to a write that took effect.
async fn effect(reply: Reply) -> Result<Effect, Reply> {
    let Reply::Done(answer) = reply else { return Err(reply) };
    let header = |name| answer.header(name).map(str::to_owned);
    let number = |name| answer.header(name).and_then(|text| text.parse().ok());
    let mut read = Answered {
        operation: answer.header("x-operation-id").and_then(|id| id.parse().ok()).map(OperationId),
        version: number("x-resource-version"),
        etag: header("etag"),
        was_created: answer.status == reqwest::StatusCode::CREATED,
        was_replayed: answer.header("idempotent-replayed") == Some("true"),
        body: Bytes::new(),
    };
    if answer.status != reqwest::StatusCode::NO_CONTENT {
        let status = answer.status.as_u16();
        read.body = answer.bytes(JSON_BYTES_MAX).await.map_err(Reply::Nothing)?;
        serde_json::from_slice::<IgnoredAny>(&read.body)
            .map_err(|error| no_json(status, &error))?;
    }
    Ok(Effect::Answered(read))
}
