//! The hand that leads a driver: one call of the library after another, or many at a time, each written down.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fence_history::{Answer, Answered, Asked, Call, Change, FencedWrite, Outcome};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::account::Ledger;
use super::driver::{Talk, Told};
use super::translate::{self, Settled};
use crate::book::Book;
use crate::client::{CALLERS_MAX, CALLS_MAX, Client};
use crate::line::{Line, NOT_TOLD, moment};
use crate::payload::bytes_of;

/// How long the library may take to find out, each time.
const RESOLVES_WITHIN: &str = "15s";
/// How often it is asked to, and from which time on at the price of the lock.
const RESOLVED_AFTER: u32 = 10;
const ABANDONED_AFTER: u32 = 5;

/// A lock that a driver holds.
#[derive(Debug, Clone)]
pub struct Held {
    /// Its name in the driver.
    pub name: String,
    /// Its id.
    pub lock: Uuid,
    /// Its token.
    pub token: i64,
    /// Its resources, with their versions as far as they are known.
    pub versions: Vec<(String, i64)>,
    /// How often the ledger had gone back when it was granted.
    pub rollbacks: usize,
}

/// What a write demands.
#[derive(Debug, Clone, Default)]
pub struct Demands {
    /// The version of the resource.
    pub version: Option<i64>,
    /// The tag of the object.
    pub tag: Option<String>,
    /// That the object is not there.
    pub is_absent: bool,
    /// One attempt only.
    pub once: bool,
    /// A key of the caller's own.
    pub key: Option<String>,
}

/// What is known of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// It took effect, with this version and tag.
    Written { version: Option<i64>, tag: Option<String> },
    /// It did not.
    Refused,
    /// Nobody knows, as yet or ever.
    Nothing,
}

struct Shared {
    book: Book,
    process: u32,
    calls: AtomicU64,
    values: AtomicU64,
    resolving: Mutex<Vec<JoinHandle<()>>>,
    account: Arc<Ledger>,
}

/// One of those who talk to a driver; cheap to clone.
#[derive(Clone)]
pub struct Hand {
    /// The driver.
    pub talk: Arc<Talk>,
    shared: Arc<Shared>,
    calm: watch::Receiver<bool>,
}

impl Hand {
    /// Of a driver with this number, as which no client process is numbered.
    pub fn new(
        talk: Arc<Talk>,
        book: Book,
        process: u32,
        calm: watch::Receiver<bool>,
        account: Arc<Ledger>,
    ) -> Self {
        let (calls, values, resolving) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::default());
        let shared = Shared { book, process, calls, values, resolving, account };
        Self { talk, shared: Arc::new(shared), calm }
    }

    /// A number that is given once in a run.
    pub fn fresh(&self) -> u64 {
        let count = self.shared.values.fetch_add(1, Ordering::SeqCst);
        (u64::from(self.shared.process) << 40) + count + 1
    }

    /// Something is wrong that no history shows.
    pub fn wrong(&self, what: String) {
        self.shared.account.wrong(what);
    }

    /// Each call is somebody's of its own: the library makes many at a time.
    fn begin(&self, asked: Asked) -> u64 {
        let count = self.shared.calls.fetch_add(1, Ordering::SeqCst);
        let process = self.shared.process;
        let client = process * CALLERS_MAX + u32::try_from(count).unwrap_or(0) % CALLERS_MAX;
        let number = u64::from(process) * CALLS_MAX + count;
        let begun_at = moment();
        let call =
            Call { number, client, principal: 0, gateway: 0, begun_at, asked, answered: None };
        self.shared.book.write(Line::Begun(call));
        number
    }

    fn answer(&self, number: u64, at: u64, answer: Answer) {
        self.shared.book.write(Line::Answered { number, answered: Answered { at, answer } });
    }

    async fn ask(&self, command: Value) -> Option<Told> {
        let what = command["do"].as_str().unwrap_or_default().to_owned();
        let told = self.talk.ask(command).await;
        self.shared.account.count(&what, told.as_ref().map(|told| &told.result));
        told
    }

    /// Takes a lock. The reader looks at the versions, for a driver that tells none.
    pub async fn acquire(
        &self,
        resources: &[&str],
        options: Value,
        reader: &mut Client,
    ) -> Option<Held> {
        let name = format!("L{}", self.fresh());
        let names: Vec<String> = resources.iter().map(ToString::to_string).collect();
        let call = self.begin(Asked::Acquire { lock: None, resources: names.clone() });
        let mut command = options;
        command["do"] = json!("acquire");
        command["lock"] = json!(name);
        command["resources"] = json!(names);
        let Told { mut at, result } = self.ask(command).await?;
        let told = match result {
            Ok(told) => told,
            Err(error) => {
                self.answer(call, at, translate::failure(&error, false));
                return None;
            }
        };
        let Some((lock, token, told)) = translate::granted(&told) else {
            self.wrong(format!("a grant without its id or token: {told}"));
            return None;
        };
        let mut versions = Vec::new();
        for name in names {
            self.shared.account.granted(&name, token, at);
            let version = match told.get(&name) {
                Some(version) => Some(*version),
                // A moment later it is this one or a higher one; what checkers say of it still holds.
                None => reader.version_of(&name).await,
            };
            versions.extend(version.map(|version| (name, version)));
        }
        if versions.len() == resources.len() {
            at = if told.is_empty() { moment() } else { at };
            self.answer(
                call,
                at,
                Answer::Granted { lock, token, versions: versions.clone(), again: false },
            );
        }
        Some(Held { name, lock, token, versions, rollbacks: self.shared.book.rollbacks() })
    }

    /// Gives it back. Only what a gateway has confirmed is said to be done.
    pub async fn release(&self, held: &Held) {
        let call = self.begin(Asked::Release { lock: held.lock });
        let command = json!({ "do": "release", "lock": held.name });
        let Some(Told { at, result }) = self.ask(command).await else { return };
        self.answer(
            call,
            at,
            match &result {
                Ok(told) if told["confirmed"] == true => Answer::Done,
                Ok(_) => Answer::Failed { code: "unconfirmed".into() },
                Err(error) => translate::failure(error, false),
            },
        );
    }

    /// Asks the guard what it believes.
    pub async fn believes(&self, held: &Held) {
        let asked_at = moment();
        let command = json!({ "do": "state", "lock": held.name });
        let Some(Told { result: Ok(told), .. }) = self.ask(command).await else { return };
        // A grant that the ledger has lost is nobody's, and a holder learns it later.
        if told["state"] == "held" && self.shared.book.rollbacks() == held.rollbacks {
            let on = held.versions.iter();
            on.for_each(|(resource, _)| self.shared.account.held(resource, held.token, asked_at));
        }
    }

    /// Lets the driver stand still, all that goes on in it.
    pub async fn block(&self, pause: Duration) {
        let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.ask(json!({ "do": "block", "ms": ms })).await;
    }

    /// Lets a copy of the driver's process write under the guard, which must be refused in the copy itself.
    pub async fn write_in_copy(&self, held: &Held, on: &str) {
        let command = json!({ "do": "fork", "lock": held.name, "resource": on });
        match self.ask(command).await {
            Some(Told { result: Ok(told), .. }) if told["refused"] == true => {}
            Some(told) => self.wrong(format!("{on}: a copy of the process went on: {told:?}")),
            None => {}
        }
    }

    /// Lets the driver forget the guard without giving it back.
    pub async fn drop_guard(&self, held: &Held) {
        let dropped = self.ask(json!({ "do": "drop", "lock": held.name })).await;
        if let Some(Told { result: Err(error), .. }) = dropped {
            self.wrong(format!("a guard was not forgotten: {error}"));
        }
    }

    /// Puts.
    pub async fn put(&self, held: &Held, on: &str, change: Change, demands: Demands) -> Known {
        let Change::Put { key: object, value, .. } = &change else { return Known::Nothing };
        let text = String::from_utf8_lossy(&bytes_of(value)).into_owned();
        let mut command = json!({ "do": "put", "lock": held.name, "resource": on, "object": object,
                                  "text": text });
        let by_tag = demands.tag.is_some() || demands.is_absent;
        if demands.is_absent {
            command["if_absent"] = json!(true);
        }
        if demands.once {
            command["attempts"] = json!(1);
        }
        let demanded = [
            ("if_match", demands.tag.map(Value::from)),
            ("expect_version", demands.version.map(Value::from)),
            ("key", demands.key.clone().map(Value::from)),
        ];
        for (name, demanded) in demanded {
            demanded.into_iter().for_each(|demanded| command[name] = demanded);
        }
        let asked = Asked::Write(FencedWrite {
            resource: on.to_owned(),
            token: held.token,
            forged: false,
            sequence: None,
            idempotency_key: demands.key,
            if_version: demands.version,
            change,
        });
        self.write(held, asked, command, on, by_tag).await
    }

    /// Puts into several resources in one act.
    pub async fn commit(
        &self,
        held: &Held,
        steps: Vec<(String, Change)>,
        key: Option<String>,
    ) -> Known {
        let operations = steps.iter().filter_map(|(resource, change)| match change {
            Change::Put { key, value, .. } => {
                let text = String::from_utf8_lossy(&bytes_of(value)).into_owned();
                Some(json!({ "op": "put", "resource": resource, "object": key, "text": text }))
            }
            _ => None,
        });
        let operations: Vec<Value> = operations.collect();
        let mut command = json!({ "do": "commit", "lock": held.name, "operations": operations });
        if let Some(key) = &key {
            command["key"] = json!(key);
        }
        let asked =
            Asked::Commit { token: held.token, sequence: None, idempotency_key: key, steps };
        self.write(held, asked, command, "", false).await
    }

    async fn write(
        &self,
        held: &Held,
        asked: Asked,
        command: Value,
        on: &str,
        by_tag: bool,
    ) -> Known {
        let own_key = command["key"].as_str().map(str::to_owned);
        let what = command["do"].as_str().unwrap_or_default().to_owned();
        let is_new = command["if_absent"] == true;
        let call = self.begin(asked);
        self.shared.book.leave_open(call);
        self.shared.book.learn(call, own_key.clone(), None);
        let Some(Told { at, result }) = self.ask(command).await else { return Known::Nothing };
        let told = translate::write(&result, on, by_tag);
        if own_key.is_some() && told.key.is_some() && told.key != own_key {
            self.wrong(format!(
                "{what}: its key is {own_key:?}, and it was told to be {:?}",
                told.key
            ));
        }
        self.shared.book.learn(call, told.key, told.number);
        self.answer(call, at, told.answer.clone());
        match told.answer {
            Answer::Written { versions, .. } => {
                self.as_promised(&result, is_new);
                let version = versions.first().and_then(|(_, version)| *version);
                let tag = result.ok().and_then(|told| told["etag"].as_str().map(str::to_owned));
                Known::Written { version, tag }
            }
            Answer::Unknown { operation } => {
                match told.handle {
                    Some(handle) => self.find_out(call, held, on, handle, operation),
                    None => self.wrong(format!("{what}: an unknown outcome without a handle")),
                }
                Known::Nothing
            }
            _ => Known::Refused,
        }
    }

    /// What an answer has to name.
    fn as_promised(&self, result: &Result<Value, Value>, is_new: bool) {
        let Ok(told) = result else { return };
        let missing = ["key", "number", "operation", "attempts", "created", "version", "replayed"];
        for name in missing.into_iter().filter(|name| told.get(*name).is_none()) {
            self.wrong(format!("the answer to a write does not name its {name}"));
        }
        if is_new && told["created"] == false {
            self.wrong(format!("an object that was not there was told to be replaced: {told}"));
        }
    }

    /// Begins to find out what became of a write.
    fn find_out(&self, call: u64, held: &Held, on: &str, handle: String, operation: Option<Uuid>) {
        let (hand, held, on) = (self.clone(), held.clone(), on.to_owned());
        let task = tokio::spawn(hand.resolve(call, held, on, handle, operation));
        self.shared.resolving.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// Asks until it is known, mostly once nothing is broken, and now and then at the price of the lock.
    async fn resolve(
        mut self,
        call: u64,
        held: Held,
        on: String,
        mut handle: String,
        operation: Option<Uuid>,
    ) {
        let (is_hasty, gives_up) = (call.is_multiple_of(4), call.is_multiple_of(5));
        for tries in 0..RESOLVED_AFTER {
            if tries > 0 || !is_hasty {
                // Whoever says whether it is calm ends with the run.
                let _ = self.calm.wait_for(|is_calm| *is_calm).await;
            }
            let command = match gives_up || tries >= ABANDONED_AFTER {
                true => json!({ "do": "abandon", "lock": held.name, "handle": handle }),
                false => json!({ "do": "resolve", "handle": handle, "within": RESOLVES_WITHIN }),
            };
            let Some(Told { at, result }) = self.ask(command).await else {
                return self.shared.account.forgotten();
            };
            match translate::settled(&result) {
                Some(settled) => return self.settle(call, at, &on, settled, operation),
                None => {
                    let (Ok(told) | Err(told)) = &result;
                    if let Some(next) = told["handle"].as_str() {
                        next.clone_into(&mut handle);
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.shared.account.unresolved(format!("the outcome of call {call} stays unknown"));
    }

    fn settle(&self, call: u64, at: u64, on: &str, settled: Settled, named: Option<Uuid>) {
        match settled {
            Settled::NotApplied => {
                self.shared.account.resolved("not applied");
                self.answer(call, at, Answer::Refused { code: "not applied".into() });
            }
            Settled::Applied { operation: Some(operation), version } if !on.is_empty() => {
                self.shared.account.resolved("applied");
                let versions = vec![(on.to_owned(), version)];
                let generation = NOT_TOLD;
                self.answer(
                    call,
                    at,
                    Answer::Written { operation, versions, generation, replayed: false },
                );
            }
            // Of a commit the versions are not told again: so it is one whose operation is known to be applied.
            Settled::Applied { operation: Some(operation), .. } => {
                self.shared.account.resolved("applied");
                self.answer(call, at, Answer::Unknown { operation: Some(operation) });
                let asked = self.begin(Asked::Ask { operation });
                self.answer(asked, moment(), Answer::Outcome(Outcome::Applied));
            }
            Settled::Applied { operation: None, .. } => {
                self.shared.account.resolved("applied");
                self.wrong(format!("call {call} took effect as no operation (earlier: {named:?})"));
            }
        }
    }

    /// Waits until all outcomes are known, or never will be.
    pub async fn all_resolved(&self) {
        loop {
            let next = self.shared.resolving.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(task) = next else { return };
            task.await.expect("whoever finds out comes to an end");
        }
    }
}
