//! The client, and the guards that are taken, given back, handed over and lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use fencegate_client::{
    Client, ClientBuilder, Credential, Error, Event, Fence, Handoff, Lock, LockBuilder, LockState,
    OnLost, OnUncertain, Wait,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::commands::duration;
use super::state::{Deed, Guard, State, Told, live};
use super::told;

/// Options of a client.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    timeout: Option<String>,
    deadline: Option<String>,
    write_deadline: Option<String>,
    #[serde(default)]
    auth: Vec<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Makes the client, and its like that tries everything once.
pub fn client(state: &Arc<State>, urls: &[String], owner: &str, options: &Options) -> Told {
    let many = builder(state, urls, owner, options)?.build();
    let once = builder(state, urls, owner, options)?.no_retries().build();
    let (many, once) = (many.map_err(|error| told::error(state, error))?, once);
    let once = once.map_err(|error| told::error(state, error))?;
    if state.client.set(many).is_err() || state.once.set(once).is_err() {
        return Err(told::mistake("there is a client already"));
    }
    Ok(json!({}))
}

fn builder(
    state: &Arc<State>,
    urls: &[String],
    owner: &str,
    options: &Options,
) -> Result<ClientBuilder, Value> {
    let hook = hook(Arc::downgrade(state));
    let mut builder = Client::builder(urls.join(",")).owner(owner).on_event(hook);
    if let Some(timeout) = &options.timeout {
        builder = builder.answer_timeout(duration(timeout)?);
    }
    if let Some(deadline) = &options.deadline {
        builder = builder.call_timeout(duration(deadline)?);
    }
    if let Some(deadline) = &options.write_deadline {
        builder = builder.write_timeout(duration(deadline)?);
    }
    for (name, value) in &options.headers {
        builder = builder.header(name, value);
    }
    if !options.auth.is_empty() {
        let (tokens, asked) = (options.auth.clone(), Arc::new(AtomicUsize::new(0)));
        builder = builder.credential(Credential::from_fn(move || {
            let at = asked.fetch_add(1, Ordering::Relaxed).min(tokens.len() - 1);
            std::future::ready(Ok(tokens.get(at).cloned().unwrap_or_default()))
        }));
    }
    Ok(builder)
}

/// Warnings of the client become events.
fn hook(state: Weak<State>) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| {
        let Some(state) = state.upgrade() else { return };
        let (warning, resources) = match event {
            Event::Expiring { resources, .. } => ("expiring", resources),
            Event::Breaking { resources, .. } => ("breaking", resources),
            Event::Revived { resources, .. } => ("revived", resources),
            Event::RenewFailed { resources, .. } => ("renew_failed", resources),
            Event::ReleaseFailed { resources, .. } => ("release_failed", resources),
            _ => return,
        };
        let names: Vec<_> = resources.iter().map(ToString::to_string).collect();
        let lock = state.named(&names);
        state.out.event("warning", json!({"warning": warning, "lock": lock}));
    }
}

/// `acquire`, `try` and `run`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    lock: String,
    resources: Vec<String>,
    ttl: Option<String>,
    wait: Option<String>,
    max_hold: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    only_if_exists: bool,
    on_uncertain: Option<String>,
    watch: Option<bool>,
    numbers: Option<bool>,
    #[serde(default)]
    ordered: bool,
    stall_after: Option<String>,
    grace: Option<String>,
    attempts: Option<u32>,
    inside: Option<String>,
    on_lost: Option<String>,
}

impl Wish {
    fn builder(&self, state: &State) -> Result<LockBuilder, Value> {
        let client = if self.attempts == Some(1) { state.once.get() } else { state.client.get() };
        let client = client.ok_or_else(|| told::mistake("there is no client yet"))?;
        let mut builder = client.lock(self.resources.clone());
        builder = match self.ttl.as_deref() {
            None => builder,
            Some("infinite") => builder.infinite(),
            Some(ttl) => builder.ttl(duration(ttl)?),
        };
        builder = match self.wait.as_deref() {
            None => builder,
            Some("forever") => builder.wait(Wait::Forever),
            Some(wait) => builder.wait(Wait::UpTo(duration(wait)?)),
        };
        if let Some(max_hold) = &self.max_hold {
            builder = builder.max_hold(duration(max_hold)?);
        }
        for (name, value) in &self.metadata {
            builder = builder.metadata(name, value);
        }
        if self.only_if_exists {
            builder = builder.only_if_exists();
        }
        self.terms(builder)
    }

    fn terms(&self, mut builder: LockBuilder) -> Result<LockBuilder, Value> {
        if self.on_uncertain.as_deref() == Some("hold") {
            builder = builder.on_uncertain(OnUncertain::Hold);
        }
        if self.watch == Some(false) {
            builder = builder.unwatched();
        }
        if self.numbers == Some(false) {
            builder = builder.unnumbered();
        }
        if self.ordered {
            builder = builder.ordered();
        }
        if let Some(grace) = &self.grace {
            builder = builder.grace(duration(grace)?);
        }
        if let Some(stall_after) = &self.stall_after {
            builder = builder.stall_after(duration(stall_after)?);
        }
        if self.on_lost.as_deref() == Some("ignore") {
            builder = builder.on_lost(OnLost::Ignore);
        }
        Ok(builder)
    }
}

/// Remembers a lock, tells when it is lost, and describes it.
pub fn keep(state: &Arc<State>, name: &str, lock: Arc<Lock>) -> Value {
    let told = json!({
        "lock": name, "id": lock.id().to_string(), "token": lock.token().to_string(), "resources": lock.resources(),
    });
    state.keep(name, Guard::Lock(Arc::clone(&lock)));
    let (state, name) = (Arc::clone(state), name.to_owned());
    tokio::spawn(async move {
        let lost = lock.lost().await;
        state.out.event("lost", json!({"lock": name, "reason": lost.reason.as_str()}));
    });
    told
}

/// Takes a lock.
pub async fn acquire(state: &Arc<State>, wish: Wish) -> Told {
    let builder = wish.builder(state)?;
    let acquired = match &wish.inside {
        None => builder.acquire().await,
        Some(scope) => {
            let (told, lock) = oneshot::channel();
            state.tell_body(scope, Deed::Acquire(Box::new(builder), told))?;
            lock.await.map_err(|_| told::mistake("the scope has ended"))?
        }
    };
    let lock = acquired.map_err(|error| told::error(state, error))?;
    Ok(keep(state, &wish.lock, Arc::new(lock)))
}

/// Takes a lock, or nothing.
pub async fn attempt(state: &Arc<State>, wish: Wish) -> Told {
    let tried = wish.builder(state)?.try_acquire().await;
    let lock = tried.map_err(|error| told::error(state, error))?;
    Ok(lock.map_or(Value::Null, |lock| keep(state, &wish.lock, Arc::new(lock))))
}

/// How a scope fails.
enum Failure {
    Body,
    Client(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

/// Runs a body that ends when it is told to.
pub async fn run(state: &Arc<State>, wish: Wish) -> Told {
    let name = wish.lock.clone();
    let done = wish.builder(state)?.run(async |lock| {
        let told = keep(state, &name, lock);
        let left = state.body(&name);
        state.out.event("entered", told);
        match live(left).await {
            true => Ok(json!({"value": "the body's"})),
            false => Err(Failure::Body),
        }
    });
    done.await.map_err(|failure| match failure {
        Failure::Body => json!({"class": "Body"}),
        Failure::Client(error) => told::error(state, error),
    })
}

/// Gives a lock back.
pub async fn release(state: &State, name: &str) -> Told {
    let confirmed = state.lock(name)?.release().await;
    Ok(json!({"confirmed": confirmed}))
}

/// In what state a guard is.
pub fn state(state: &State, name: &str) -> Told {
    let lock = state.lock(name)?;
    let (word, reason) = match lock.state() {
        LockState::Held => ("held", None),
        LockState::Uncertain => ("uncertain", None),
        LockState::Lost(reason) => ("lost", Some(reason.as_str())),
        LockState::Released => ("released", None),
    };
    Ok(json!({"state": word, "reason": reason, "token": lock.token().to_string(), "s3": lock.s3()}))
}

/// Raises a fence.
pub async fn fence(
    state: &State,
    name: &str,
    resource: &str,
    order: Option<String>,
    force: bool,
) -> Told {
    let mut builder = state.client()?.fence(resource);
    if let Some(order) = order {
        builder = builder.order(order.parse().map_err(|_| told::misuse("an order is a number"))?);
    }
    if force {
        builder = builder.force();
    }
    let fence = builder.set().await.map_err(|error| told::error(state, error))?;
    Ok(keep_fence(state, name, fence))
}

fn keep_fence(state: &State, name: &str, fence: Fence) -> Value {
    let told = json!({"lock": name, "token": fence.token().to_string()});
    state.keep(name, Guard::Fence(Arc::new(fence)));
    told
}

/// Hands a lock over.
pub async fn transfer(state: &State, name: &str, owner: &str) -> Told {
    let handed = state.lock(name)?.transfer(owner).await;
    let handoff = handed.map_err(|error| told::error(state, error))?;
    Ok(json!({"handoff": handoff.to_text()}))
}

/// `adopt`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopted {
    lock: String,
    handoff: Option<String>,
    lock_id: Option<String>,
    token: Option<String>,
    #[serde(default)]
    resources: Vec<String>,
}

/// Takes over what was handed over, or writes under a token that another process holds.
pub async fn adopt(state: &Arc<State>, adopted: Adopted) -> Told {
    let client = state.client()?;
    if let (Some(id), Some(token)) = (&adopted.lock_id, &adopted.token) {
        let lent = client.lent(adopted.resources.clone(), token, id);
        let fence = lent.map_err(|error| told::error(state, error))?;
        return Ok(keep_fence(state, &adopted.lock, fence));
    }
    let text = adopted.handoff.as_deref().unwrap_or_default();
    let handoff = Handoff::from_text(text).map_err(|error| told::error(state, error))?;
    let lock = client.adopt(&handoff).acquire().await.map_err(|error| told::error(state, error))?;
    Ok(keep(state, &adopted.lock, Arc::new(lock)))
}
