//! Elections, shards, and what operators do.

use std::sync::Arc;

use fencegate_client::{Error, Lock};
use serde_json::json;

use super::commands::duration;
use super::guards;
use super::state::{State, Told, live};
use super::told;

/// How leading fails.
enum Failure {
    Body,
    Client(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

/// Stands for election, and leads until it is told to end.
pub async fn elect(
    state: &Arc<State>,
    election: &str,
    name: &str,
    stop_grace: Option<&str>,
) -> Told {
    let mut candidacy = state.client()?.elect(name);
    if let Some(grace) = stop_grace {
        candidacy = candidacy.stop_grace(duration(grace)?);
    }
    let led = candidacy.run(|lock| lead(Arc::clone(state), election.to_owned(), lock)).await;
    led.map_err(|failure| match failure {
        Failure::Body => json!({"class": "Body"}),
        Failure::Client(error) => told::error(state, error),
    })?;
    Ok(json!({}))
}

async fn lead(state: Arc<State>, election: String, lock: Arc<Lock>) -> Result<(), Failure> {
    let told = json!({"election": election});
    let left = state.body(&election);
    state.out.event("leading", told.clone());
    let stopped = lock.cancellation();
    let mut work = std::pin::pin!(live(left));
    let is_good = tokio::select! {
        () = stopped.cancelled() => {
            state.out.event("stopping", told);
            work.as_mut().await
        }
        is_good = &mut work => is_good,
    };
    if is_good { Ok(()) } else { Err(Failure::Body) }
}

/// Takes the shards that it can get.
pub async fn shards(state: &Arc<State>, stream: &str, name: &str, n: u32) -> Told {
    let mut shards = state.client()?.shards(name, n).map_err(|error| told::error(state, error))?;
    while let Some(shard) = shards.next().await.map_err(|error| told::error(state, error))? {
        let name = format!("{stream}{}", shard.index);
        let mut told = guards::keep(state, &name, Arc::new(shard.lock));
        told["stream"] = json!(stream);
        state.out.event("shard", told);
    }
    Ok(json!({}))
}

/// Breaks a lock.
pub async fn break_lock(state: &State, resource: &str, reason: &str, after: Option<&str>) -> Told {
    let mut act = state.client()?.break_lock(resource, reason);
    if let Some(after) = after {
        act = act.after(duration(after)?);
    }
    act.await.map_err(|error| told::error(state, error))?;
    Ok(json!({}))
}
