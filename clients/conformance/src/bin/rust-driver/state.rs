//! What the driver remembers between commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fencegate_client::{Client, Error, Fence, Lock, LockBuilder, OutcomeUnknown};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::out::Out;
use super::told;

/// What a command comes to: its answer, or its error.
pub type Told = Result<Value, Value>;

/// What writes are made on.
#[derive(Clone)]
pub enum Guard {
    /// Of a lock.
    Lock(Arc<Lock>),
    /// Of a fence.
    Fence(Arc<Fence>),
}

/// What the body of a scope is told to do.
pub enum Deed {
    /// To end in this way.
    Leave(String),
    /// To take another lock, in the task of the scope.
    Acquire(Box<LockBuilder>, oneshot::Sender<Result<Lock, Error>>),
}

/// Everything.
pub struct State {
    /// Where it speaks.
    pub out: Out,
    /// The client, once there is one.
    pub client: OnceLock<Client>,
    /// The same, which makes one attempt for each call.
    pub once: OnceLock<Client>,
    guards: Mutex<HashMap<String, Guard>>,
    unknown: Mutex<HashMap<String, Arc<OutcomeUnknown>>>,
    running: Mutex<HashMap<u64, AbortHandle>>,
    bodies: Mutex<HashMap<String, mpsc::UnboundedSender<Deed>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Nothing yet.
    pub fn new(virtual_time: bool) -> Self {
        Self {
            out: Out::new(virtual_time),
            client: OnceLock::new(),
            once: OnceLock::new(),
            guards: Mutex::default(),
            unknown: Mutex::default(),
            running: Mutex::default(),
            bodies: Mutex::default(),
        }
    }

    /// The client.
    pub fn client(&self) -> Result<&Client, Value> {
        self.client.get().ok_or_else(|| told::mistake("there is no client yet"))
    }

    /// A guard by the scenario's name for it.
    pub fn guard(&self, name: &str) -> Result<Guard, Value> {
        let found = locked(&self.guards).get(name).cloned();
        found.ok_or_else(|| told::mistake(&format!("there is no guard {name}")))
    }

    /// The same, of a lock.
    pub fn lock(&self, name: &str) -> Result<Arc<Lock>, Value> {
        match self.guard(name)? {
            Guard::Lock(lock) => Ok(lock),
            Guard::Fence(_) => Err(told::mistake(&format!("{name} is a fence"))),
        }
    }

    /// Remembers a guard.
    pub fn keep(&self, name: &str, guard: Guard) {
        locked(&self.guards).insert(name.to_owned(), guard);
    }

    /// The scenario's name for the lock on these resources.
    pub fn named(&self, resources: &[String]) -> Option<String> {
        let guards = locked(&self.guards);
        let is_it = |guard: &Guard| match guard {
            Guard::Lock(lock) => {
                let have = lock.resources().iter().map(ToString::to_string);
                have.eq(resources.iter().cloned())
            }
            Guard::Fence(_) => false,
        };
        guards.iter().find(|(_, guard)| is_it(guard)).map(|(name, _)| name.clone())
    }

    /// Remembers an unknown outcome, and gives a handle to it.
    pub fn keep_unknown(&self, outcome: OutcomeUnknown) -> String {
        let mut unknown = locked(&self.unknown);
        let handle = format!("U{}", unknown.len() + 1);
        unknown.insert(handle.clone(), Arc::new(outcome));
        handle
    }

    /// An unknown outcome.
    pub fn unknown(&self, handle: &str) -> Result<Arc<OutcomeUnknown>, Value> {
        let found = locked(&self.unknown).get(handle).cloned();
        found.ok_or_else(|| told::mistake(&format!("there is no handle {handle}")))
    }

    /// A command is under way.
    pub fn runs(&self, id: u64, task: AbortHandle) {
        locked(&self.running).insert(id, task);
    }

    /// A command is over; false if it was before.
    pub fn ran(&self, id: u64) -> bool {
        locked(&self.running).remove(&id).is_some()
    }

    /// Cancels a command, as Rust does it: its future is dropped.
    pub fn cancel(&self, id: u64) -> Told {
        let task = locked(&self.running).remove(&id);
        let Some(task) = task else { return Err(told::mistake("it is not under way")) };
        task.abort();
        self.out.answer(id, Err(json!({"class": "Cancelled"})));
        Ok(json!({}))
    }

    /// A body that goes on until it is told how to end.
    pub fn body(&self, name: &str) -> mpsc::UnboundedReceiver<Deed> {
        let (sender, receiver) = mpsc::unbounded_channel();
        locked(&self.bodies).insert(name.to_owned(), sender);
        receiver
    }

    /// Tells a body what to do.
    pub fn tell_body(&self, name: &str, deed: Deed) -> Result<(), Value> {
        let body = locked(&self.bodies).get(name).cloned();
        let told = body.and_then(|body| body.send(deed).ok());
        told.ok_or_else(|| told::mistake("there is no such body any more"))
    }

    /// Ends a body.
    pub fn leave(&self, name: &str, how: &str) -> Told {
        self.tell_body(name, Deed::Leave(how.to_owned())).map(|()| json!({}))
    }
}

/// Does what a body is told, until it is told to end; false if by a failure.
pub async fn live(mut deeds: mpsc::UnboundedReceiver<Deed>) -> bool {
    while let Some(deed) = deeds.recv().await {
        match deed {
            Deed::Leave(how) => return how != "raise",
            Deed::Acquire(builder, told) => {
                // Whoever asked may have gone.
                let _ = told.send(builder.acquire().await);
            }
        }
    }
    false
}
